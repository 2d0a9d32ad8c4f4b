#!lua flags=allow-oom
-- role, holder
local key = P .. 'leader:' .. arg(1)
if redis.call('GET', key) == arg(2) then
  redis.call('DEL', key)
end
