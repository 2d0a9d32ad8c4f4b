-- Put in front of every script, after its first line. All times are microseconds by the server's clock.
local P = KEYS[1]
local clock = redis.call('TIME')
local NOW = clock[1] * 1000000 + clock[2]
local RECORD_TTL = tonumber(ARGV[1])
local LEASE = tonumber(ARGV[2])
local MAX_ATTEMPTS = tonumber(ARGV[3])
local BATCH_GRACE = 86400
local WAKE_TTL = 3600

local function arg(i)
  return ARGV[i + 3]
end

local function number(i)
  return tonumber(arg(i))
end

local function int(n)
  return string.format('%.0f', n)
end

local function task_key(id)
  return P .. 'task:' .. id
end

local function batch_key(name)
  return P .. 'batch:' .. name
end

local function tenant_key(name)
  return P .. 'tenant:' .. name
end

local function fields(key, ...)
  return redis.call('HMGET', key, ...)
end

local function wake()
  redis.call('LPUSH', P .. 'wake', '1')
  redis.call('LTRIM', P .. 'wake', 0, 0)
  redis.call('EXPIRE', P .. 'wake', WAKE_TTL)
end

local function changed(batch)
  redis.call('HINCRBY', batch_key(batch), 'changes', 1)
  redis.call('PUBLISH', P .. 'changes:' .. batch, '1')
end

local function held(id, token)
  local record = fields(task_key(id), 'state', 'token')
  return (record[1] == 'running' or record[1] == 'awaiting_human') and record[2] == token
end

local function move(id, batch, from, to)
  redis.call('HSET', task_key(id), 'state', to)
  redis.call('HINCRBY', batch_key(batch), 'state:' .. from, -1)
  redis.call('HINCRBY', batch_key(batch), 'state:' .. to, 1)
  changed(batch)
end

-- Limits of a provider are kept by the model's name, in which `:` may stand.
local MODEL_TTL = 7200

local function model_key(name)
  return P .. 'model:' .. name:gsub('[%%:]', {['%'] = '%25', [':'] = '%3A'})
end

-- The part of its rate that a model is given after it refused calls; it grows to the whole within 15 s.
local function model_share(key)
  local s = fields(key, 'share', 'share_at')
  if not s[1] then
    return 1
  end
  return tonumber(s[1]) + math.max(0, NOW - tonumber(s[2])) / 15000000
end

-- Whether nobody is to call it now, because the calls before failed one after the other.
local function model_is_open(name)
  return tonumber(redis.call('ZSCORE', P .. 'breakers', name) or 0) > NOW
end

local function batch_cancelled(batch)
  return redis.call('HGET', batch_key(batch), 'state') == 'cancelled'
end

-- An event the store itself writes; the attempt's own come from the worker.
local function note(id, attempt, kind, data)
  local seq = redis.call('HINCRBY', task_key(id), 'last_seq', 1)
  local event = cjson.encode({seq = seq, time = NOW / 1000000, attempt = tonumber(attempt), type = kind, data = data})
  redis.call('RPUSH', task_key(id) .. ':events', event)
end

-- The two hashes above the task's own that what it spends is added to: its batch's and its tenant's.
local function accounts(batch)
  return {batch_key(batch), tenant_key(redis.call('HGET', batch_key(batch), 'tenant') or 'default')}
end

-- The ceiling that keeps a batch from being fed and claimed, its own or its tenant's; nil where neither is reached.
local function ceiling_reached(batch)
  local own = fields(batch_key(batch), 'reached', 'tenant')
  return own[1] or redis.call('HGET', tenant_key(own[2] or 'default'), 'reached') or nil
end

local function charge(id, batch, field, amount)
  if amount == 0 then
    return
  end
  redis.call('HINCRBY', task_key(id), 'usage:' .. field, int(amount))
  redis.call('HINCRBY', batch_key(batch), 'usage:' .. field, int(amount))
  if field == 'spend_micro_usd' then
    local both = accounts(batch)
    local model = redis.call('HGET', task_key(id), 'model') or ''
    redis.call('HINCRBY', both[2], 'usage:spend_micro_usd', int(amount))
    for _, account in ipairs(both) do
      redis.call('HINCRBY', account, 'spend:model:' .. model, int(amount))
    end
  end
end

-- Reserve, or with negative amounts give back: at the task, its batch and its tenant alike.
local function hold(id, batch, tokens, micro_usd)
  redis.call('HINCRBY', task_key(id), 'open_tokens', int(tokens))
  redis.call('HINCRBY', task_key(id), 'open_micro_usd', int(micro_usd))
  for _, account in ipairs(accounts(batch)) do
    redis.call('HINCRBY', account, 'open_micro_usd', int(micro_usd))
  end
end

-- What a task has cost since its last seal belongs to the outcome of this one.
local function charge_outcome(id, batch, outcome)
  local spent = fields(task_key(id), 'usage:spend_micro_usd', 'attributed')
  local fresh = tonumber(spent[1] or 0) - tonumber(spent[2] or 0)
  if fresh == 0 then
    return
  end
  redis.call('HSET', task_key(id), 'attributed', spent[1])
  for _, account in ipairs(accounts(batch)) do
    redis.call('HINCRBY', account, 'spend:outcome:' .. outcome, int(fresh))
  end
end

local function cost(id)
  return tonumber(redis.call('HGET', task_key(id), 'usage:spend_micro_usd') or 0)
end

-- A call that was begun and never settled may have been paid for: charge all of what was reserved.
local function settle_open_calls(id, batch)
  local calls_key = task_key(id) .. ':calls'
  local calls = redis.call('HGETALL', calls_key)
  for i = 1, #calls, 2 do
    local tokens, micro_usd = calls[i + 1]:match('^open:(%d+):(%d+)$')
    if tokens then
      hold(id, batch, 0 - tokens, 0 - micro_usd)
      redis.call('HSET', calls_key, calls[i], 'settled:' .. tokens .. ':' .. micro_usd)
      charge(id, batch, 'calls', 1)
      charge(id, batch, 'estimated_calls', 1)
      charge(id, batch, 'completion_tokens', tonumber(tokens))
      charge(id, batch, 'spend_micro_usd', tonumber(micro_usd))
    end
  end
end

-- An attempt without contact freezes itself after two thirds of a lease: what lies beyond was not its time. Nor is
-- what it waits for a person's answer.
local function charge_wallclock(id)
  local record = fields(task_key(id), 'mark', 'state')
  if record[2] ~= 'awaiting_human' then
    local spent = math.max(0, math.min(NOW - tonumber(record[1] or NOW), LEASE * 2 / 3))
    redis.call('HINCRBY', task_key(id), 'wallclock', int(spent))
  end
  redis.call('HSET', task_key(id), 'mark', int(NOW))
end

local function end_lease(id)
  local worker = redis.call('HGET', task_key(id), 'worker') or ''
  redis.call('ZREM', P .. 'leases', id)
  if redis.call('HINCRBY', P .. 'busy', worker, -1) <= 0 then
    redis.call('HDEL', P .. 'busy', worker)
  end
end

local function batch_paused(batch)
  return redis.call('HGET', batch_key(batch), 'paused') == '1'
end

-- A batch that comes (again) among those that are fed starts level with the others of its priority: what it did
-- not use before is not owed to it. `pass` is the expected cost it was given, by its weight.
local function start_level(batch)
  local own = fields(batch_key(batch), 'pass', 'priority')
  local level = redis.call('HGET', P .. 'levels', own[2] or '0')
  local pass = math.max(tonumber(own[1] or 0), tonumber(level or 0))
  redis.call('HSET', batch_key(batch), 'pass', string.format('%.6f', pass), 'served', int(NOW))
end

local function join_feeding(batch)
  local created = redis.call('HGET', batch_key(batch), 'created') or int(NOW)
  if redis.call('ZADD', P .. 'feeding', created, batch) == 1 then
    start_level(batch)
  end
end

-- The tasks of one lane need the same of a worker. A lane's part of the waiting list is a range of scores.
local LANE_SPAN = 4294967296

local function waiting_score(lane, ordinal)
  return int(tonumber(lane or 0) * LANE_SPAN + tonumber(ordinal))
end

local function put_in_waiting(id, batch)
  local place = fields(task_key(id), 'lane', 'ordinal')
  redis.call('ZADD', batch_key(batch) .. ':waiting', waiting_score(place[1], place[2]), id)
  redis.call('HSET', task_key(id), 'waits', int(NOW))
  join_feeding(batch)
  wake()
end

-- `delay` is how long it is kept from being fed, in microseconds.
local function requeue(id, batch, previous_end, delay)
  end_lease(id)
  redis.call('HSET', task_key(id), 'previous_end', previous_end)
  redis.call('HINCRBY', batch_key(batch), 'requeues', 1)
  move(id, batch, 'running', 'queued')
  if delay then
    redis.call('ZADD', P .. 'delayed', int(NOW + delay), id)
  else
    put_in_waiting(id, batch)
  end
end

local function let_batch_expire_when_done(batch)
  local key = batch_key(batch)
  local counters = fields(key, 'state', 'total', 'state:sealed')
  local total = tonumber(counters[2] or 0)
  if counters[1] ~= 'loading' and tonumber(counters[3] or 0) >= total then
    for _, suffix in ipairs({'', ':tasks'}) do
      redis.call('EXPIRE', key .. suffix, RECORD_TTL + BATCH_GRACE)
    end
  end
end

-- The one way into `sealed`. `from` is the state before; `ending` is JSON without usage, which is the ledger's.
local function seal(id, batch, from, outcome, ending)
  if from == 'running' or redis.call('ZSCORE', P .. 'leases', id) then
    settle_open_calls(id, batch)
    end_lease(id)
  end
  redis.call('ZREM', batch_key(batch) .. ':waiting', id)
  for _, index in ipairs({'announced', 'delayed', 'questions'}) do
    redis.call('ZREM', P .. index, id)
  end
  charge_outcome(id, batch, outcome)
  redis.call('HSET', task_key(id), 'ending', ending, 'outcome', outcome, 'sealed', int(NOW))
  redis.call('HINCRBY', batch_key(batch), 'outcome:' .. outcome, 1)
  move(id, batch, from, 'sealed')
  for _, suffix in ipairs({'', ':events', ':calls', ':journal', ':rounds'}) do
    redis.call('EXPIRE', task_key(id) .. suffix, RECORD_TTL)
  end
  let_batch_expire_when_done(batch)
  wake()
end

-- What an agent changed, as of the last checkpoint of its task.
local function kept_edits(id)
  local point = redis.call('HGET', task_key(id), 'checkpoint')
  local checkpoint = point and cjson.decode(point) or {}
  local artifacts = checkpoint.artifacts or {}
  if type(checkpoint.snapshot) == 'table' then
    artifacts.work_tree = checkpoint.snapshot.ref
  end
  return artifacts
end

-- Seal on the store's own account: nobody runs the task, so nobody else can.
local function seal_unattended(id, batch, from, stop, reason, evidence)
  note(id, redis.call('HGET', task_key(id), 'epoch'), 'sealed', {outcome = stop, reason = reason})
  seal(id, batch, from, stop, cjson.encode({stop = stop, verdict = 'not_run', reason = reason, evidence = evidence,
    artifacts = kept_edits(id)}))
end

local function too_many_lost(count, cause)
  local reason = 'max_attempts=' .. int(MAX_ATTEMPTS) .. ' reached: ' .. count .. ' attempts were lost; the last: ' .. cause
  return reason:sub(1, 1000)
end

-- How leases ended that did not end well: the evidence of a stuck task.
local function remember_end(id, cause)
  local record = fields(task_key(id), 'ends', 'epoch', 'worker')
  local ends = record[1] and cjson.decode(record[1]) or {}
  if #ends < 20 then
    ends[#ends + 1] = {attempt = tonumber(record[2]), worker = record[3], cause = cause, time = NOW / 1000000}
    redis.call('HSET', task_key(id), 'ends', cjson.encode(ends))
  end
  return ends
end

-- What later runs of a task type may know: the newest `most` entries; a type that nobody adds to is forgotten.
local function keep_memories(task_type, most, entries)
  local memory, memories = P .. 'memory:' .. task_type, P .. 'memories'
  for _, entry in ipairs(entries) do
    redis.call('RPUSH', memory, entry)
  end
  redis.call('LTRIM', memory, '-' .. most, -1)
  redis.call('EXPIRE', memory, RECORD_TTL)
  redis.call('ZADD', memories, int(NOW), task_type)
  redis.call('ZREMRANGEBYSCORE', memories, '-inf', int(NOW - RECORD_TTL * 1000000))
  redis.call('EXPIRE', memories, RECORD_TTL)
end
