#!lua flags=allow-oom
-- id, token, cause, charge -> 1, or 0 if the lease is lost
local id, token, cause = arg(1), arg(2), arg(3)
local key = task_key(id)
local record = fields(key, 'batch', 'cancel', 'released_by', 'epoch')
if record[3] == token then
  return 1
elseif not held(id, token) then
  return 0
end
local batch = record[1]
charge_wallclock(id)
settle_open_calls(id, batch)
redis.call('HSET', key, 'released_by', token)
local ends, abnormal = {}, 0
if arg(4) == '1' then
  ends = remember_end(id, cause)
  abnormal = redis.call('HINCRBY', key, 'abnormal_ends', 1)
end
if record[2] == '1' or batch_cancelled(batch) then
  seal_unattended(id, batch, 'running', 'cancelled', 'cancelled by the operator')
elseif abnormal >= MAX_ATTEMPTS then
  seal_unattended(id, batch, 'running', 'infra', abnormal .. ' attempts failed; the last: ' .. cause, {ends = ends})
else
  note(id, record[4], 'released', {cause = cause, charged = arg(4) == '1'})
  requeue(id, batch, 'released')
end
return 1
