#!lua flags=allow-oom
-- ids... -> how many were sealed or told to stop just now. A task whose lease has run out has nobody to tell.
local count = 0

local function has_a_worker(id, state)
  local until_ = redis.call('ZSCORE', P .. 'leases', id)
  if not until_ then
    return state == 'running'
  end
  return (state == 'running' or state == 'awaiting_human') and tonumber(until_) >= NOW
end

local function cancel(id, state, batch)
  redis.call('HSET', task_key(id), 'cancel', 1)
  if has_a_worker(id, state) then
    changed(batch)
  else
    seal_unattended(id, batch, state, 'cancelled', 'cancelled by the operator')
  end
  count = count + 1
end

for at = 1, #ARGV - 3 do
  local record = fields(task_key(arg(at)), 'state', 'batch', 'cancel')
  local told = record[3] == '1' and has_a_worker(arg(at), record[1])
  if record[1] and record[1] ~= 'sealed' and not told then
    cancel(arg(at), record[1], record[2])
  end
end
return count
