#!lua flags=allow-oom
-- role, holder, milliseconds -> 1 if it leads, 0 if another does
local key = P .. 'leader:' .. arg(1)
local holder = redis.call('GET', key)
if holder and holder ~= arg(2) then
  return 0
end
redis.call('SET', key, arg(2), 'PX', arg(3))
return 1
