#!lua flags=allow-oom
-- ids... -> how many were sealed or told to stop just now
local count = 0
for at = 1, #ARGV - 3 do
  local id = arg(at)
  local record = fields(task_key(id), 'state', 'batch', 'cancel')
  if record[1] == 'running' and record[3] ~= '1' then
    redis.call('HSET', task_key(id), 'cancel', 1)
    changed(record[2])
    count = count + 1
  elseif record[1] and record[1] ~= 'running' and record[1] ~= 'sealed' then
    redis.call('HSET', task_key(id), 'cancel', 1)
    seal_unattended(id, record[2], record[1], 'cancelled', 'cancelled by the operator')
    count = count + 1
  end
end
return count
