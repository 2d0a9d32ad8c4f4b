#!lua flags=allow-oom
-- id, token, seq, has segments, checkpoint -> {'kept'} | {'lost'} | {'ahead', last}
local id, seq = arg(1), number(3)
if not held(id, arg(2)) then
  return {'lost'}
end
local key = task_key(id)
local last = tonumber(redis.call('HGET', key, 'last_seq') or 0)
if seq > last then
  return {'ahead', last}
end
redis.call('HSET', key, 'checkpoint', arg(5))
if arg(4) == '1' then
  redis.call('XTRIM', key .. ':events', 'MINID', int(seq + 1) .. '-0')
  local bytes = 0
  for _, entry in ipairs(redis.call('XRANGE', key .. ':events', '-', '+')) do
    bytes = bytes + #entry[2][2]
  end
  redis.call('HSET', key, 'live_bytes', int(bytes))
end
return {'kept'}
