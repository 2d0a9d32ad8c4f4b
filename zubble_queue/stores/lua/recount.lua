#!lua flags=allow-oom
-- batch, changes, then pairs of counter and value -> 1 if a counter was wrong and is right now.
-- Does nothing when the batch moved since it was counted.
local batch = arg(1)
local key = batch_key(batch)
if (redis.call('HGET', key, 'changes') or '0') ~= arg(2) then
  return 0
end
local counted, total, wrong = {}, 0, 0
for at = 3, #ARGV - 3, 2 do
  counted[arg(at)] = number(at + 1)
  if arg(at):sub(1, 6) == 'state:' then
    total = total + number(at + 1)
  end
end
counted['total'] = total
local stored = redis.call('HGETALL', key)
for i = 1, #stored, 2 do
  local prefix = stored[i]:match('^(%a+):')
  if (prefix == 'state' or prefix == 'outcome') and not counted[stored[i]] then
    counted[stored[i]] = 0
  end
end
for field, value in pairs(counted) do
  if tonumber(redis.call('HGET', key, field) or 0) ~= value then
    redis.call('HSET', key, field, int(value))
    wrong = 1
  end
end
if wrong == 1 then
  changed(batch)
end
let_batch_expire_when_done(batch)
return wrong
