#!lua flags=no-writes
-- batch, 'id hash id hash ...' -> a letter per pair: n(ew), e(xisting) or c(onflict)
local marks = {}
for id, hash in arg(2):gmatch('(%S+) (%S+)') do
  local stored = fields(task_key(id), 'batch', 'hash')
  if not stored[2] then
    marks[#marks + 1] = 'n'
  else
    marks[#marks + 1] = stored[1] == arg(1) and stored[2] == hash and 'e' or 'c'
  end
end
return table.concat(marks)
