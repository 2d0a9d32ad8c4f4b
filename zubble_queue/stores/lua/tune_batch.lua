#!lua flags=allow-oom
-- name, then pairs of weight, priority, concurrency or max_retries and its value -> 1, or 0 if there is no such batch
local key = batch_key(arg(1))
if redis.call('EXISTS', key) == 0 then
  return 0
end
local priority = redis.call('HGET', key, 'priority') or '0'
for at = 2, #ARGV - 3, 2 do
  redis.call('HSET', key, arg(at), arg(at + 1))
end
if redis.call('HGET', key, 'priority') ~= priority then
  start_level(arg(1))
end
changed(arg(1))
wake()
return 1
