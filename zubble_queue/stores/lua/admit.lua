#!lua flags=allow-oom
-- model, requests a minute or '', tokens a minute or '', most slots or '', tokens, slot, microseconds a slot lives
-- -> {'admitted'} | {'wait', microseconds, why}
-- The generic cell rate algorithm: each request moves the time `requests` by its share of a minute, and is admitted
-- when that time is at most BURST ahead; `tokens` likewise. Every refusal says when to ask again.
local name, rpm, tpm, most, tokens, slot, life = arg(1), number(2), number(3), number(4), number(5), arg(6), number(7)
local BURST, TOKEN_BURST, PROBE = 400000, 1000000, 60000000
local key = model_key(name)
local slots = key .. ':slots'
local m = fields(key, 'requests', 'tokens', 'hold', 'failures', 'open', 'probe', 'second', 'count', 'learned')
for i = 1, 8 do
  m[i] = tonumber(m[i] or 0)
end

local function wait(microseconds, why)
  return {'wait', math.ceil(math.max(microseconds, 1000) + NOW % 1000 * 5), why}
end

local share, rate = model_share(key), rpm
if rate then
  rate = rate * math.min(1, share)
elseif m[9] then
  rate = tonumber(m[9]) * share
end

if NOW < m[5] then
  return wait(math.min(m[5] - NOW, PROBE / 60), 'breaker')
elseif m[5] > 0 and NOW < m[6] then
  return wait(PROBE / 600, 'probe')
elseif NOW < m[3] then
  return wait(m[3] - NOW, 'hold')
elseif rate and m[1] - BURST > NOW then
  return wait(m[1] - BURST - NOW, 'requests')
elseif tpm and m[2] - TOKEN_BURST > NOW then
  return wait(m[2] - TOKEN_BURST - NOW, 'tokens')
end
if most then
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', int(NOW))
  if redis.call('ZCARD', slots) >= most then
    redis.call('HSET', key, 'full', int(NOW))
    return wait(50000 + NOW % 1000 * 100, 'slots')
  end
  redis.call('ZADD', slots, int(NOW + life), slot)
  redis.call('EXPIRE', slots, MODEL_TTL)
end

if rate then
  redis.call('HSET', key, 'requests', int(math.max(m[1], NOW) + 60000000 / rate))
end
if tpm then
  redis.call('HSET', key, 'tokens', int(math.max(m[2], NOW) + tokens * 60000000 / tpm))
end
if m[5] > 0 then
  redis.call('HSET', key, 'probe', int(NOW + PROBE), 'prober', slot)
end
-- How many were admitted in the current ten seconds: what a model without a stated rate is known to have borne.
local second = math.floor(NOW / 10000000)
redis.call('HSET', key, 'second', int(second), 'count', int(second == m[7] and m[8] + 1 or 1))
redis.call('EXPIRE', key, MODEL_TTL)
return {'admitted'}
