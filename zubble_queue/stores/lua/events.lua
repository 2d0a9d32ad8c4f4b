#!lua flags=no-writes
-- id, after, most -> the live events behind a seq; the first one in the list has the seq after `dropped`
local id = arg(1)
local dropped = tonumber(redis.call('HGET', task_key(id), 'dropped') or 0)
local first = math.max(number(2), dropped) - dropped
return redis.call('LRANGE', task_key(id) .. ':events', int(first), int(first + number(3) - 1))
