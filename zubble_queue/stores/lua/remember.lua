#!lua
-- task type, most entries of that type, entries... -> nothing
local entries = {}
for at = 3, #ARGV - 3 do
  entries[#entries + 1] = arg(at)
end
keep_memories(arg(1), arg(2), entries)
return 1
