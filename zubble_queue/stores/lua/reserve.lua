#!lua flags=allow-oom
-- id, token, call id, tokens, micro-USD, micro-USD of the smallest useful call
-- -> {'reserved', micro-USD} | {'parked', limit} | {limit, left, 'pause' or 'seal'} | {'lost'}
-- A batch or tenant grants what its ceiling still allows, which may be less than was asked for. Where only open
-- reservations are in the way, the call waits until they are settled.
local id, call_id, tokens, micro_usd, least = arg(1), arg(3), number(4), number(5), number(6)
if not held(id, arg(2)) then
  return {'lost'}
end
local key = task_key(id)
local calls_key = key .. ':calls'
local known = redis.call('HGET', calls_key, call_id)
if known and known:sub(1, 5) == 'open:' then
  return {'reserved', tonumber(known:match('^open:%d+:(%d+)$'))}
end

local r = fields(key, 'max_tokens', 'usage:prompt_tokens', 'usage:completion_tokens', 'open_tokens',
  'max_micro_usd', 'usage:spend_micro_usd', 'open_micro_usd')
for i = 1, 7 do
  r[i] = tonumber(r[i] or 0)
end
local left_tokens = r[1] - r[2] - r[3] - r[4]
local left_micro_usd = r[5] - r[6] - r[7]
if tokens > left_tokens then
  return {'tokens', math.max(0, left_tokens), 'seal'}
elseif micro_usd > left_micro_usd then
  return {'spend', math.max(0, left_micro_usd), 'seal'}
end

local batch = redis.call('HGET', key, 'batch')
local granted, rooms = micro_usd, {}

local function reach(account, limit, left)
  if not redis.call('HGET', account, 'reached') then
    redis.call('HSET', account, 'reached', limit)
    changed(batch)
    wake()
  end
  return {limit, math.max(0, left), redis.call('HGET', batch_key(batch), 'on_ceiling') or 'pause'}
end

for i, account in ipairs(accounts(batch)) do
  local a = fields(account, 'ceiling', 'usage:spend_micro_usd', 'open_micro_usd')
  if a[1] then
    local limit = i == 1 and 'batch_spend' or 'tenant_spend'
    local left = tonumber(a[1]) - tonumber(a[2] or 0)
    if left < math.min(least, micro_usd) then
      return reach(account, limit, left)
    end
    granted = math.min(granted, left)
    rooms[#rooms + 1] = {limit, left - tonumber(a[3] or 0)}
  end
end
for _, room in ipairs(rooms) do
  if granted > room[2] then
    return {'parked', room[1]}
  end
end
redis.call('HSET', calls_key, call_id, 'open:' .. int(tokens) .. ':' .. int(granted))
hold(id, batch, tokens, granted)
return {'reserved', granted}
