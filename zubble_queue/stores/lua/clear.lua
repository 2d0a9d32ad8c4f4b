#!lua
-- id, most rounds, checkpoint, question id, kind, question, answer -> 'begun' | 'unknown' | 'not blocked' | 'spent'
-- A new round of a task that ended as blocked: it goes on from its end, in what is left of its budget, with the answer
-- that clears its guard.
local id, round_limit = arg(1), number(2)
local key = task_key(id)
local record = fields(key, 'state', 'round', 'outcome', 'ending', 'epoch', 'batch')
if not record[1] then
  return 'unknown'
elseif record[1] ~= 'sealed' or record[3] ~= 'blocked' then
  return 'not blocked'
elseif tonumber(record[2]) >= round_limit then
  return 'spent'
end
local batch, round = record[6], tonumber(record[2]) + 1
archive(key, round - 1)
begin_events(key, record[4])
redis.call('HDEL', key, 'ending', 'outcome', 'sealed', 'sealed_by', 'worklog', 'ends', 'abnormal_ends', 'infra_failures',
  'infra_since', 'released_by', 'retries', 'past')
redis.call('HSET', key, 'checkpoint', arg(3), 'previous_end', 'released', 'question_id', arg(4), 'question_kind', arg(5),
  'question', arg(6), 'unanswered', arg(7), 'answer', arg(7), 'asked', int(NOW), 'answer_by', int(NOW), 'answered', int(NOW))
note(id, record[5], 'cleared', {round = round, after = record[3]})
begin_round(id, batch, round, record[3])
reopen(batch)
return 'begun'
