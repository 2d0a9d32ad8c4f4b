#!lua
-- task type, most entries of that type, entries... -> nothing
local key, memories = P .. 'memory:' .. arg(1), P .. 'memories'
for at = 3, #ARGV - 3 do
  redis.call('RPUSH', key, arg(at))
end
redis.call('LTRIM', key, '-' .. arg(2), -1)
redis.call('EXPIRE', key, RECORD_TTL)
redis.call('ZADD', memories, int(NOW), arg(1))
redis.call('EXPIRE', memories, RECORD_TTL)
return 1
