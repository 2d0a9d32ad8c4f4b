#!lua
-- name, info, tenant, ceiling in micro-USD or '', 'pause' or 'seal', most retries, weight, priority, concurrency
-- -> 1 if created, 0 if it was there
local key = batch_key(arg(1))
if redis.call('EXISTS', key) == 1 then
  return 0
end
redis.call('HSET', key, 'info', arg(2), 'state', 'loading', 'created', int(NOW), 'total', 0, 'ordinal', 0,
  'tenant', arg(3), 'on_ceiling', arg(5), 'max_retries', arg(6), 'weight', arg(7), 'priority', arg(8), 'concurrency', arg(9))
if arg(4) ~= '' then
  redis.call('HSET', key, 'ceiling', arg(4))
end
redis.call('EXPIRE', key, RECORD_TTL + BATCH_GRACE)
redis.call('ZADD', P .. 'batches', int(NOW), arg(1))
return 1
