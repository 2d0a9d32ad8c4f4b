#!lua
-- id, token, most entries, entry -> 1, or 0 if the lease is lost. The same entry twice in a row is one entry.
local id = arg(1)
if not held(id, arg(2)) then
  return 0
end
local key = task_key(id) .. ':journal'
if redis.call('LINDEX', key, -1) ~= arg(4) then
  redis.call('RPUSH', key, arg(4))
  redis.call('LTRIM', key, '-' .. arg(3), -1)
end
return 1
