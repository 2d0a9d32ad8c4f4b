#!lua
-- batch, most rounds, ids... -> {how many were begun, {ids that are not sealed}, {ids that have had all rounds}}
-- A new round: the old seal goes to the history, its count to nobody; the epochs go on, so that tokens never recur.
local batch, most_rounds = arg(1), number(2)
local key = batch_key(batch)
local begun, unsealed, spent = 0, {}, {}
local OF_THE_TASK = {}
for _, field in ipairs({'state', 'batch', 'source_id', 'repeat', 'hash', 'task_type', 'model', 'version', 'max_tokens',
  'max_micro_usd', 'cost', 'need', 'lane', 'envelope', 'round', 'epoch', 'ordinal', 'created', 'last_seq', 'dropped',
  'live_bytes'}) do
  OF_THE_TASK[field] = true
end

local function archive(task, round)
  local r = fields(task, 'ending', 'epoch', 'worker', 'claimed', 'sealed', 'usage:calls', 'usage:estimated_calls',
    'usage:prompt_tokens', 'usage:completion_tokens', 'usage:cached_tokens', 'usage:reasoning_tokens',
    'usage:spend_micro_usd')
  local usage = {}
  for i = 6, 12 do
    usage[i - 5] = r[i] or '0'
  end
  redis.call('RPUSH', task .. ':rounds', cjson.encode({round = round, ending = r[1], attempts = r[2],
    worker = r[3] or '', claimed = r[4] or '', sealed = r[5] or '', usage = usage}))
end

-- Events of a round that ended without a trajectory are nowhere else, so they stay in front of the new ones.
local function begin_events(task, ending)
  if cjson.decode(ending).artifacts and cjson.decode(ending).artifacts.trajectory then
    redis.call('DEL', task .. ':events')
  end
  if redis.call('EXISTS', task .. ':events') == 0 then
    redis.call('HSET', task, 'dropped', redis.call('HGET', task, 'last_seq') or '0', 'live_bytes', 0)
  end
end

local function begin_round(id, record)
  local task, round = task_key(id), tonumber(record[2])
  archive(task, round)
  begin_events(task, record[4])
  for _, field in ipairs(redis.call('HKEYS', task)) do
    if not OF_THE_TASK[field] then
      redis.call('HDEL', task, field)
    end
  end
  redis.call('DEL', task .. ':calls', task .. ':journal')
  redis.call('HSET', task, 'round', int(round + 1))
  for _, suffix in ipairs({'', ':events', ':rounds'}) do
    redis.call('PERSIST', task .. suffix)
  end
  note(id, record[5], 'retried', {round = round + 1, after = record[3]})
  redis.call('HINCRBY', key, 'outcome:' .. record[3], -1)
  move(id, batch, 'sealed', 'queued')
  put_in_waiting(id, batch)
  begun = begun + 1
end

for at = 3, #ARGV - 3 do
  local record = fields(task_key(arg(at)), 'state', 'round', 'outcome', 'ending', 'epoch', 'batch')
  if record[6] == batch and record[1] ~= 'sealed' then
    unsealed[#unsealed + 1] = arg(at)
  elseif record[6] == batch and tonumber(record[2]) >= most_rounds then
    spent[#spent + 1] = arg(at)
  elseif record[6] == batch then
    begin_round(arg(at), record)
  end
end
if begun > 0 then
  if batch_cancelled(batch) then
    redis.call('HSET', key, 'state', 'open')
  end
  redis.call('PERSIST', key)
  redis.call('PERSIST', key .. ':tasks')
end
return {begun, unsealed, spent}
