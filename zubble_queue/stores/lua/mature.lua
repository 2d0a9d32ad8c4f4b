#!lua flags=allow-oom
-- most -> how many postponed tasks wait to be fed again
local due = redis.call('ZRANGEBYSCORE', P .. 'delayed', '-inf', int(NOW), 'LIMIT', 0, arg(1))
for _, id in ipairs(due) do
  local record = fields(task_key(id), 'state', 'batch')
  redis.call('ZREM', P .. 'delayed', id)
  if record[1] == 'queued' then
    put_in_waiting(id, record[2])
  end
end
return #due
