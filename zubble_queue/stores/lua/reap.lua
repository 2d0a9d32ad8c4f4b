#!lua flags=allow-oom
-- most, latest time to begin (microseconds) -> {seen, requeued, stuck}
if NOW > number(2) then
  return {0, {}, {}}
end
local expired = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', int(NOW), 'LIMIT', 0, arg(1))
local requeued, stuck = {}, {}

local function note_loss(id, record, abnormal)
  note(id, record[4], 'lease_lost', {worker = record[5], abnormal_ends = abnormal, spend_micro_usd = cost(id)})
end

-- Its checkpoint is from before it asked, so its worker took nothing with it.
local function reap_waiting(id, batch, record)
  if record[3] == '1' or batch_cancelled(batch) then
    seal_unattended(id, batch, 'awaiting_human', 'cancelled', 'cancelled by the operator')
  else
    note_loss(id, record, tonumber(redis.call('HGET', task_key(id), 'abnormal_ends') or 0))
    leave_waiting(id, batch, 'lost')
  end
end

local function reap(id)
  local key = task_key(id)
  local record = fields(key, 'state', 'batch', 'cancel', 'epoch', 'worker')
  local batch = record[2]
  if record[1] ~= 'running' and record[1] ~= 'awaiting_human' then
    redis.call('ZREM', P .. 'leases', id)
    return
  end
  settle_open_calls(id, batch)
  if record[1] == 'awaiting_human' then
    reap_waiting(id, batch, record)
    return
  end
  local ends = remember_end(id, 'no renewal')
  local abnormal = redis.call('HINCRBY', key, 'abnormal_ends', 1)
  if record[3] == '1' or batch_cancelled(batch) then
    seal_unattended(id, batch, 'running', 'cancelled', 'cancelled by the operator')
  elseif abnormal >= MAX_ATTEMPTS then
    seal_unattended(id, batch, 'running', 'stuck', too_many_lost(abnormal, 'no renewal'), {ends = ends})
    stuck[#stuck + 1] = id
  else
    note_loss(id, record, abnormal)
    requeue(id, batch, 'lost')
    requeued[#requeued + 1] = id
  end
end

for _, id in ipairs(expired) do
  reap(id)
end
return {#expired, requeued, stuck}
