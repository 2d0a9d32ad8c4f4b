#!lua flags=allow-oom
-- id, token, outcome, tokens saved, ending, worklog, seconds to keep the events, task type to remember it by
-- or '', most entries of that type, memory entry, then pairs of phase and microseconds
-- -> 1, or 0 if the lease is lost
local id, token = arg(1), arg(2)
local key = task_key(id)
local record = fields(key, 'state', 'sealed_by', 'batch')
if record[1] == 'sealed' and record[2] == token then
  return 1
elseif not held(id, token) then
  return 0
end
local batch = record[3]
charge_wallclock(id)
withdraw_question(id, batch)
redis.call('HSET', key, 'sealed_by', token, 'worklog', arg(6))
redis.call('HINCRBY', batch_key(batch), 'tokens_saved', arg(4))
for at = 11, #ARGV - 3, 2 do
  redis.call('HINCRBY', batch_key(batch), 'phase:' .. arg(at), arg(at + 1))
end
seal(id, batch, 'running', arg(3), arg(5))
redis.call('EXPIRE', key .. ':events', arg(7))
if arg(8) ~= '' then
  keep_memories(arg(8), arg(9), {arg(10)})
end
return 1
