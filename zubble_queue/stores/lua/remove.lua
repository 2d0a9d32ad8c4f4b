#!lua flags=allow-oom
-- batch, ids... -> 1, or 0 if there is no such batch, or -1 if a task of it is not sealed and nothing was removed.
-- Without ids the batch itself goes. A batch that is being removed takes no new tasks.
local batch = arg(1)
local key = batch_key(batch)
local counters = fields(key, 'total', 'state:sealed', 'state')
if not counters[3] then
  return 0
elseif tonumber(counters[2] or 0) < tonumber(counters[1]) then
  return -1
end
redis.call('HSET', key, 'state', 'cancelled')
for at = 2, #ARGV - 3 do
  local task = task_key(arg(at))
  redis.call('DEL', task, task .. ':events', task .. ':calls', task .. ':journal', task .. ':rounds')
  redis.call('ZREM', key .. ':tasks', arg(at))
end
if #ARGV == 4 then
  redis.call('DEL', key, key .. ':tasks', key .. ':waiting')
  redis.call('ZREM', P .. 'batches', batch)
  redis.call('ZREM', P .. 'feeding', batch)
end
return 1
