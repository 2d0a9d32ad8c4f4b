#!lua flags=allow-oom
-- worker, info, milliseconds. The feeder is woken only by what changes how much it may feed.
local key = P .. 'worker:' .. arg(1)
local before = redis.call('GET', key)
redis.call('SET', key, arg(2), 'PX', arg(3))
redis.call('ZADD', P .. 'workers', int(NOW + number(3) * 1000), arg(1))
if before ~= arg(2) then
  wake()
end
