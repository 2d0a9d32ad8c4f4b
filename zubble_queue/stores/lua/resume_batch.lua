#!lua flags=allow-oom
-- name -> 1, or 0 if there is no such batch
local key = batch_key(arg(1))
if redis.call('EXISTS', key) == 0 then
  return 0
end
if redis.call('HDEL', key, 'paused') == 1 then
  start_level(arg(1))
  changed(arg(1))
  wake()
end
return 1
