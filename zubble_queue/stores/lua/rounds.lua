-- Shared: how a new round of a sealed task begins; the old seal goes to the history.

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

local function begin_round(id, batch, round, after)
  redis.call('HSET', task_key(id), 'round', int(round))
  for _, suffix in ipairs({'', ':events', ':calls', ':journal', ':rounds'}) do
    redis.call('PERSIST', task_key(id) .. suffix)
  end
  redis.call('HINCRBY', batch_key(batch), 'outcome:' .. after, -1)
  move(id, batch, 'sealed', 'queued')
  put_in_waiting(id, batch)
end

-- A batch of which something is begun again is neither cancelled nor over.
local function reopen(batch)
  if batch_cancelled(batch) then
    redis.call('HSET', batch_key(batch), 'state', 'open')
  end
  redis.call('PERSIST', batch_key(batch))
  redis.call('PERSIST', batch_key(batch) .. ':tasks')
end
