#!lua flags=allow-oom
-- id, token, seq, has segments, checkpoint -> {'kept'} | {'lost'} | {'ahead', last}
-- One that holds less than what was dropped never replaces the one that holds it.
local id, seq = arg(1), number(3)
if not held(id, arg(2)) then
  return {'lost'}
end
local key = task_key(id)
local counters = fields(key, 'last_seq', 'dropped')
local last, dropped = tonumber(counters[1] or 0), tonumber(counters[2] or 0)
if seq > last then
  return {'ahead', last}
elseif seq < dropped then
  return {'kept'}
end
redis.call('HSET', key, 'checkpoint', arg(5))
if arg(4) == '1' and seq > dropped then
  redis.call('LTRIM', key .. ':events', int(seq - dropped), -1)
  local bytes = 0
  for _, event in ipairs(redis.call('LRANGE', key .. ':events', 0, -1)) do
    bytes = bytes + #event
  end
  redis.call('HSET', key, 'dropped', int(seq), 'live_bytes', int(bytes))
end
return {'kept'}
