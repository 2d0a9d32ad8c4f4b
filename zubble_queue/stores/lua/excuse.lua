#!lua flags=allow-oom
-- id, token, microseconds -> 1, or 0 if the lease is lost. The attempt waited for others: that was not its time.
local id = arg(1)
if not held(id, arg(2)) then
  return 0
end
charge_wallclock(id)
local charged = tonumber(redis.call('HGET', task_key(id), 'wallclock'))
redis.call('HSET', task_key(id), 'wallclock', int(math.max(0, charged - number(3))))
redis.call('HINCRBY', task_key(id), 'parked', arg(3))
return 1
