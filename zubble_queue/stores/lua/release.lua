#!lua flags=allow-oom
-- id, token, cause -> 1, or 0 if the lease is lost. A task whose question is open goes on waiting for its answer.
local id, token, cause = arg(1), arg(2), arg(3)
local key = task_key(id)
local record = fields(key, 'batch', 'cancel', 'released_by', 'epoch', 'state')
if record[3] == token then
  return 1
elseif not held(id, token) then
  return 0
end
local batch = record[1]
charge_wallclock(id)
settle_open_calls(id, batch)
redis.call('HSET', key, 'released_by', token)
if record[2] == '1' or batch_cancelled(batch) then
  seal_unattended(id, batch, record[5], 'cancelled', 'cancelled by the operator')
else
  note(id, record[4], 'released', {cause = cause, spend_micro_usd = cost(id)})
  if record[5] == 'awaiting_human' then
    leave_waiting(id, batch, 'released')
  else
    requeue(id, batch, 'released')
  end
end
return 1
