#!lua flags=allow-oom
-- -> orphans: entries of the global indexes without a record
local orphans = {}

local function drop(index, member)
  redis.call('ZREM', P .. index, member)
  orphans[#orphans + 1] = member
end

for _, index in ipairs({'announced', 'leases', 'delayed', 'questions'}) do
  for _, id in ipairs(redis.call('ZRANGE', P .. index, 0, -1)) do
    if redis.call('EXISTS', task_key(id)) == 0 then
      drop(index, id)
    end
  end
end
for _, index in ipairs({'batches', 'feeding'}) do
  for _, name in ipairs(redis.call('ZRANGE', P .. index, 0, -1)) do
    if redis.call('EXISTS', batch_key(name)) == 0 then
      drop(index, name)
    end
  end
end
redis.call('ZREMRANGEBYSCORE', P .. 'workers', '-inf', int(NOW))
return orphans
