#!lua flags=allow-oom
-- name -> 1, or 0 if there is no such batch. From here on nothing of it is fed or claimed.
local key = batch_key(arg(1))
if redis.call('EXISTS', key) == 0 then
  return 0
end
redis.call('HSET', key, 'state', 'cancelled')
redis.call('HDEL', key, 'paused')
redis.call('ZREM', P .. 'feeding', arg(1))
changed(arg(1))
let_batch_expire_when_done(arg(1))
return 1
