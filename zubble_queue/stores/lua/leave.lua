#!lua flags=allow-oom
-- model, slot, 'answered', 'throttled', 'failed' or 'cancelled', requests a minute or '', tokens a minute or '',
-- tokens reserved, tokens used, microseconds to hold or '' -> 1 if the breaker is open now
local name, slot, how, rpm, tpm, hold = arg(1), arg(2), arg(3), number(4), number(5), number(8)
local FAILURES, OPEN, LEAST, CUT, ONCE, STILL, HOLD = 10, 60000000, 0.05, 0.7, 5000000, 10000000, 1000000
local key = model_key(name)
local m = fields(key, 'failures', 'open', 'lowered', 'hold', 'prober', 'count')
redis.call('ZREM', key .. ':slots', slot)
if tpm then
  redis.call('HINCRBY', key, 'tokens', int((number(7) - number(6)) * 60000000 / tpm))
end

local function close()
  redis.call('HDEL', key, 'failures', 'open', 'probe', 'prober')
  if redis.call('ZREM', P .. 'breakers', name) == 1 then
    wake()
  end
end

-- For all workers, and once for a burst of refusals: a part of the rate, which then grows back.
local function lower()
  redis.call('HSET', key, 'hold', int(math.max(tonumber(m[4] or 0), NOW + (hold or HOLD))))
  if NOW - tonumber(m[3] or 0) < ONCE then
    return
  end
  local share = model_share(key)
  if not rpm then
    local borne = redis.call('HGET', key, 'learned') or math.max(6, tonumber(m[6] or 1) * 6)
    redis.call('HSET', key, 'learned', int(math.max(6, borne * math.min(share, 2))))
    share = 1
  end
  redis.call('HSET', key, 'lowered', int(NOW), 'share', math.max(LEAST, math.min(1, share) * CUT), 'share_at', int(NOW))
end

local function fail()
  redis.call('HSET', key, 'share', model_share(key), 'share_at', int(NOW + STILL))
  if redis.call('HINCRBY', key, 'failures', 1) >= FAILURES then
    redis.call('HSET', key, 'open', int(NOW + OPEN))
    redis.call('HDEL', key, 'probe', 'prober')
    redis.call('ZADD', P .. 'breakers', int(NOW + OPEN), name)
    redis.call('EXPIRE', P .. 'breakers', MODEL_TTL)
  end
end

if how == 'answered' then
  close()
elseif how == 'throttled' then
  close()
  lower()
elseif how == 'failed' then
  fail()
elseif m[5] == slot then
  redis.call('HDEL', key, 'probe', 'prober')
end
redis.call('EXPIRE', key, MODEL_TTL)
return model_is_open(name) and 1 or 0
