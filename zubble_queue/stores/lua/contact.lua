#!lua flags=allow-oom
-- longest gap (microseconds) -> microseconds in which feeders came here without a longer one, until now
local key = P .. 'contact'
local before = fields(key, 'last', 'since')
local last, since = tonumber(before[1]), tonumber(before[2])
if not last or NOW < last or NOW - last > number(1) then
  since = NOW
end
redis.call('HSET', key, 'last', int(NOW), 'since', int(since))
redis.call('EXPIRE', key, WAKE_TTL)
return int(NOW - since)
