#!lua
-- id, token, call id, tokens, micro-USD -> {'reserved'} | {'tokens'|'spend', left} | {'lost'}
local id, call_id, tokens, micro_usd = arg(1), arg(3), number(4), number(5)
if not held(id, arg(2)) then
  return {'lost'}
end
local key = task_key(id)
local calls_key = key .. ':calls'
local known = redis.call('HGET', calls_key, call_id)
if known and known:sub(1, 5) == 'open:' then
  return {'reserved'}
end

local r = fields(key, 'max_tokens', 'usage:prompt_tokens', 'usage:completion_tokens', 'open_tokens',
  'max_micro_usd', 'usage:spend_micro_usd', 'open_micro_usd')
for i = 1, 7 do
  r[i] = tonumber(r[i] or 0)
end
local left_tokens = r[1] - r[2] - r[3] - r[4]
local left_micro_usd = r[5] - r[6] - r[7]
if tokens > left_tokens then
  return {'tokens', math.max(0, left_tokens)}
elseif micro_usd > left_micro_usd then
  return {'spend', math.max(0, left_micro_usd)}
end
redis.call('HSET', calls_key, call_id, 'open:' .. int(tokens) .. ':' .. int(micro_usd))
redis.call('HINCRBY', key, 'open_tokens', int(tokens))
redis.call('HINCRBY', key, 'open_micro_usd', int(micro_usd))
return {'reserved'}
