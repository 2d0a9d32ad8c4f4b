#!lua flags=allow-oom
-- name -> 1, or 0 if there is no such batch
local key = batch_key(arg(1))
local state = redis.call('HGET', key, 'state')
if not state then
  return 0
end
if state == 'loading' then
  redis.call('HSET', key, 'state', 'open')
  changed(arg(1))
  let_batch_expire_when_done(arg(1))
  wake()
end
return 1
