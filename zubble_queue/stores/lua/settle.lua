#!lua flags=allow-oom
-- id, token, call id, then pairs of usage field and amount -> 1, or 0 if the lease is lost.
-- A call that was never reserved is charged all the same: what was paid is on the books.
local id, call_id = arg(1), arg(3)
if not held(id, arg(2)) then
  return 0
end
local key = task_key(id)
local calls_key = key .. ':calls'
local batch = redis.call('HGET', key, 'batch')
local known = redis.call('HGET', calls_key, call_id)
if known and known:sub(1, 8) == 'settled:' then
  return 1
end
if known then
  local tokens, micro_usd = known:match('^open:(%d+):(%d+)$')
  hold(id, batch, 0 - tokens, 0 - micro_usd)
end
local amounts = {}
for at = 4, #ARGV - 3, 2 do
  amounts[arg(at)] = number(at + 1)
  charge(id, batch, arg(at), number(at + 1))
end
local tokens = amounts['prompt_tokens'] + amounts['completion_tokens']
redis.call('HSET', calls_key, call_id, 'settled:' .. int(tokens) .. ':' .. int(amounts['spend_micro_usd']))
return 1
