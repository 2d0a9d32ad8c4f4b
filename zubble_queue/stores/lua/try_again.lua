#!lua flags=allow-oom
-- id, token, checkpoint, ending -> {'again', number} | {'spent'} | {'lost'}
-- The attempt ended unverified and its batch asks for another one, in the same round and within the same budget. How
-- it ended is kept with the task.
local id, token = arg(1), arg(2)
local key = task_key(id)
local record = fields(key, 'batch', 'released_by', 'epoch', 'retries', 'past', 'cancel')
if record[2] == token then
  return {'again', tonumber(record[4])}
elseif not held(id, token) then
  return {'lost'}
end
local batch, retries = record[1], tonumber(record[4] or 0)
local most = tonumber(redis.call('HGET', batch_key(batch), 'max_retries') or 0)
if retries >= most or record[6] == '1' or batch_cancelled(batch) then
  return {'spent'}
end
charge_wallclock(id)
withdraw_question(id, batch)
settle_open_calls(id, batch)
local past = record[5] and cjson.decode(record[5]) or {}
local ending = cjson.decode(arg(4))
ending.attempt, ending.spend_micro_usd = tonumber(record[3]), cost(id)
past[#past + 1] = ending
redis.call('HSET', key, 'released_by', token, 'retries', retries + 1, 'past', cjson.encode(past), 'checkpoint', arg(3))
redis.call('HDEL', key, 'question', 'question_id', 'answer')
note(id, record[3], 'tried_again', {number = retries + 1, cause = ending.outcome, reason = ending.reason,
  spend_micro_usd = ending.spend_micro_usd})
requeue(id, batch, 'retried')
return {'again', retries + 1}
