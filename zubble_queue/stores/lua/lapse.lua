#!lua flags=allow-oom
-- most -> how many questions had their time and were answered as was said for that case
local due = redis.call('ZRANGEBYSCORE', P .. 'questions', '-inf', int(NOW), 'LIMIT', 0, arg(1))
for _, id in ipairs(due) do
  local record = fields(task_key(id), 'state', 'batch', 'unanswered')
  if record[1] == 'awaiting_human' then
    take_answer(id, record[2], record[3])
  else
    redis.call('ZREM', P .. 'questions', id)
  end
end
return #due
