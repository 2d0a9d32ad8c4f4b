#!lua flags=allow-oom
-- name -> 1, or 0 if there is no such batch. What is announced of it goes back; what runs goes on.
local batch = arg(1)
if redis.call('EXISTS', batch_key(batch)) == 0 then
  return 0
end
redis.call('HSET', batch_key(batch), 'paused', 1)
for _, id in ipairs(redis.call('ZRANGE', P .. 'announced', 0, -1)) do
  if redis.call('HGET', task_key(id), 'batch') == batch then
    redis.call('ZREM', P .. 'announced', id)
    put_in_waiting(id, batch)
  end
end
changed(batch)
return 1
