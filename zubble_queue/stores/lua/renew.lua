#!lua flags=allow-oom
-- id, token -> {held, cancel}. An expired lease that nobody reaped yet is renewed like any other.
local id = arg(1)
if not held(id, arg(2)) then
  return {0, 0}
end
charge_wallclock(id)
redis.call('ZADD', P .. 'leases', int(NOW + LEASE), id)
local record = fields(task_key(id), 'cancel', 'batch')
local cancel = record[1] == '1' or batch_cancelled(record[2])
return {1, cancel and 1 or 0}
