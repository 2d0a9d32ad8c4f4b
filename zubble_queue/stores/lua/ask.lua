#!lua flags=allow-oom
-- id, token, question id, kind, question, the answer where nobody gives one, microseconds until then
-- -> 1, or 0 if the lease is lost. The lease stays; giving it up leaves the task waiting.
local id, question_id = arg(1), arg(3)
local key = task_key(id)
local record = fields(key, 'question_id', 'batch', 'state')
if not held(id, arg(2)) then
  return 0
elseif record[1] == question_id then
  return 1
end
local batch = record[2]
local answer_by = int(NOW + number(7))
charge_wallclock(id)
redis.call('HSET', key, 'question_id', question_id, 'question_kind', arg(4), 'question', arg(5), 'unanswered', arg(6),
  'asked', int(NOW), 'answer_by', answer_by)
redis.call('HDEL', key, 'answer', 'answered')
redis.call('ZADD', P .. 'questions', answer_by, id)
if record[3] == 'running' then
  move(id, batch, 'running', 'awaiting_human')
end
return 1
