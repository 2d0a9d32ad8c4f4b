#!lua flags=allow-oom
-- id, token, cause, most failures, most microseconds since the first one, most microseconds of delay,
-- '1' where nobody foresaw the failure
-- -> {'postponed', microseconds} | {'sealed'} | {'lost'}
-- The machinery failed: the task is tried again a little later, and counts against nobody. One that goes on failing
-- is sealed `infra`. What nobody foresaw may be the task's own doing, so it counts as a lost attempt, too.
local id, token, cause = arg(1), arg(2), arg(3)
local key = task_key(id)
local record = fields(key, 'batch', 'cancel', 'released_by', 'epoch')
if record[3] == token then
  return {'postponed', 0}
elseif not held(id, token) then
  return {'lost'}
end
local batch = record[1]
charge_wallclock(id)
withdraw_question(id, batch)
settle_open_calls(id, batch)
redis.call('HSET', key, 'released_by', token)
redis.call('HSETNX', key, 'infra_since', int(NOW))
local ends = remember_end(id, cause)
local failures = redis.call('HINCRBY', key, 'infra_failures', 1)
local since = NOW - tonumber(redis.call('HGET', key, 'infra_since'))
local lost = arg(7) == '1' and redis.call('HINCRBY', key, 'abnormal_ends', 1) or 0
if record[2] == '1' or batch_cancelled(batch) then
  seal_unattended(id, batch, 'running', 'cancelled', 'cancelled by the operator')
  return {'sealed'}
elseif lost >= MAX_ATTEMPTS then
  seal_unattended(id, batch, 'running', 'stuck', too_many_lost(lost, cause), {ends = ends})
  return {'sealed'}
elseif failures >= number(4) or since >= number(5) then
  local reason = 'the machinery failed ' .. failures .. ' times; the last: ' .. cause
  seal_unattended(id, batch, 'running', 'infra', reason:sub(1, 1000), {ends = ends})
  return {'sealed'}
end
-- A script's random numbers are the same in every run; the clock's last digits are not.
local jitter = 0.5 + (NOW % 1000) / 1000
local delay = math.min(1000000 * 2 ^ (failures - 1), number(6)) * jitter
note(id, record[4], 'postponed', {cause = cause, number = failures, delay_seconds = delay / 1000000,
  spend_micro_usd = cost(id)})
requeue(id, batch, 'released', delay)
wake()
return {'postponed', delay}
