#!lua flags=allow-oom
-- id, token, most live bytes, then pairs of seq and event -> {'appended'} | {'lost'} | {'gap', last} | {'full', bytes}
local id = arg(1)
if not held(id, arg(2)) then
  return {'lost'}
end
local key = task_key(id)
local counters = fields(key, 'last_seq', 'live_bytes')
local last, bytes = tonumber(counters[1] or 0), tonumber(counters[2] or 0)
local first_new, seq = nil, last
for at = 4, #ARGV - 3, 2 do
  if number(at) > last then
    if number(at) ~= seq + 1 then
      return {'gap', last}
    end
    first_new = first_new or at
    seq = seq + 1
    bytes = bytes + #arg(at + 1)
  end
end
if not first_new then
  return {'appended'}
elseif bytes > number(3) then
  return {'full', bytes}
end
for at = first_new, #ARGV - 3, 2 do
  redis.call('RPUSH', key .. ':events', arg(at + 1))
end
redis.call('HSET', key, 'last_seq', int(seq), 'live_bytes', int(bytes))
return {'appended'}
