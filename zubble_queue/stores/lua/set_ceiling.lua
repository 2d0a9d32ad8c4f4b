#!lua flags=allow-oom
-- 'batch' or 'tenant', name, micro-USD or '' for none, 'pause', 'seal' or '' to leave it -> {'set'} | {'below', settled}
-- | {'unknown'}
local key = arg(1) == 'batch' and batch_key(arg(2)) or tenant_key(arg(2))
if arg(1) == 'batch' and redis.call('EXISTS', key) == 0 then
  return {'unknown'}
end
local settled = tonumber(redis.call('HGET', key, 'usage:spend_micro_usd') or 0)
if arg(3) == '' then
  redis.call('HDEL', key, 'ceiling')
elseif number(3) < settled then
  return {'below', settled}
else
  redis.call('HSET', key, 'ceiling', arg(3))
end
if arg(4) ~= '' then
  redis.call('HSET', key, 'on_ceiling', arg(4))
end
redis.call('HDEL', key, 'reached')
if arg(1) == 'batch' then
  changed(arg(2))
end
wake()
return {'set'}
