#!lua flags=allow-oom
-- most, latest time to begin (microseconds) -> {seen, requeued, stuck}
if NOW > number(2) then
  return {0, {}, {}}
end
local expired = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', int(NOW), 'LIMIT', 0, arg(1))
local requeued, stuck = {}, {}

local function reap(id)
  local key = task_key(id)
  local record = fields(key, 'state', 'batch', 'cancel', 'epoch', 'worker')
  local batch = record[2]
  if record[1] ~= 'running' then
    redis.call('ZREM', P .. 'leases', id)
    return
  end
  settle_open_calls(id, batch)
  local ends = remember_end(id, 'no renewal')
  local abnormal = redis.call('HINCRBY', key, 'abnormal_ends', 1)
  if record[3] == '1' or batch_cancelled(batch) then
    seal_unattended(id, batch, 'running', 'cancelled', 'cancelled by the operator')
  elseif abnormal >= MAX_ATTEMPTS then
    seal_unattended(id, batch, 'running', 'stuck', too_many_lost(abnormal, 'no renewal'), {ends = ends})
    stuck[#stuck + 1] = id
  else
    note(id, record[4], 'lease_lost', {worker = record[5], abnormal_ends = abnormal, spend_micro_usd = cost(id)})
    requeue(id, batch, 'lost')
    requeued[#requeued + 1] = id
  end
end

for _, id in ipairs(expired) do
  reap(id)
end
return {#expired, requeued, stuck}
