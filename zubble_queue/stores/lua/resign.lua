#!lua flags=allow-oom
-- role, holder. One of those who wait for the lead is told at once.
local key, vacant = P .. 'leader:' .. arg(1), P .. 'vacant:' .. arg(1)
if redis.call('GET', key) == arg(2) then
  redis.call('DEL', key)
  redis.call('LPUSH', vacant, '1')
  redis.call('LTRIM', vacant, 0, 0)
  redis.call('EXPIRE', vacant, WAKE_TTL)
end
