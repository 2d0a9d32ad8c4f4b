#!lua
-- id, attempt, round, newest version, worker, lease id, push
-- -> {'granted', the record, most retries, microseconds it waited} | {reason}
local id, attempt, worker = arg(1), number(2), arg(5)
local key = task_key(id)
local record = fields(key, 'state', 'epoch', 'round', 'version', 'token', 'cancel', 'batch', 'outcome', 'model',
  'taken')
local state, epoch, batch = record[1], tonumber(record[2]), record[7]
local token = int(attempt) .. ':' .. arg(6)
local at_work = state == 'running' or state == 'awaiting_human'

local function refusal()
  if not state then
    return 'unknown'
  elseif tonumber(record[4]) > number(4) then
    return 'version'
  elseif state == 'sealed' then
    return record[8] == 'cancelled' and 'cancelled' or 'sealed'
  elseif record[6] == '1' or batch_cancelled(batch) then
    return 'cancelled'
  elseif at_work and attempt == epoch and record[10] == arg(7) then
    return 'doubled'
  elseif state == 'running' then
    return 'leased'
  elseif attempt ~= epoch + 1 or arg(3) ~= record[3] then
    return 'stale'
  elseif state ~= 'queued' or batch_paused(batch) or ceiling_reached(batch) or model_is_open(record[9]) then
    return 'paused'
  end
end

-- What cannot be run now waits where it waited before, and is announced again when it can.
local function put_back()
  if state == 'queued' then
    redis.call('ZREM', P .. 'announced', id)
    put_in_waiting(id, batch)
  end
end

local function grant()
  redis.call('HSET', key, 'epoch', int(attempt), 'token', token, 'worker', worker, 'push', 0, 'taken', arg(7))
  redis.call('HSETNX', key, 'claimed', int(NOW))
  local since = fields(key, 'waits', 'created')
  redis.call('HSET', key, 'waited', int(math.max(0, NOW - tonumber(since[1] or since[2]))))
  redis.call('ZREM', P .. 'announced', id)
  redis.call('ZREM', batch_key(batch) .. ':waiting', id)
  redis.call('HINCRBY', P .. 'busy', worker, 1)
  move(id, batch, 'queued', 'running')
end

local function begin()
  redis.call('HSET', key, 'mark', int(NOW))
  redis.call('ZADD', P .. 'leases', int(NOW + LEASE), id)
end

local asked_again = state == 'running' and record[5] == token
if not asked_again then
  local reason = refusal()
  if reason then
    if reason == 'paused' then
      put_back()
    end
    return {reason}
  end
  grant()
end
begin()

local given = fields(key, 'batch', 'round', 'envelope', 'wallclock', 'checkpoint', 'last_seq', 'previous_end',
  'retries', 'past', 'question', 'asked', 'answer_by', 'answered', 'answer', 'unanswered', 'usage:calls', 'usage:estimated_calls', 'usage:prompt_tokens', 'usage:completion_tokens', 'usage:cached_tokens',
  'usage:reasoning_tokens', 'usage:spend_micro_usd')
return {'granted', given, redis.call('HGET', batch_key(batch), 'max_retries') or '0',
  redis.call('HGET', key, 'waited') or '0'}
