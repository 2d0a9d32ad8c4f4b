#!lua flags=no-writes
-- first, last rank among the leases -> {how many there were, {need, count, ...}}
local counts, answer = {}, {}
local ids = redis.call('ZRANGE', P .. 'leases', arg(1), arg(2))
for _, id in ipairs(ids) do
  local need = redis.call('HGET', task_key(id), 'need')
  if need then
    counts[need] = (counts[need] or 0) + 1
  end
end
for need, count in pairs(counts) do
  answer[#answer + 1] = need
  answer[#answer + 1] = count
end
return {#ids, answer}
