#!lua flags=allow-oom
-- most -> how many waiting tasks were sealed: those of batches that end at their ceiling and have reached it
local most, count = number(1), 0

local function seal_waiting(batch, limit)
  for _, id in ipairs(redis.call('ZRANGE', batch_key(batch) .. ':waiting', 0, most - count - 1)) do
    local reason = 'the ceiling of the ' .. limit:match('^%a+') .. ' was reached before it was begun'
    seal_unattended(id, batch, 'queued', 'limit:' .. limit, reason)
    count = count + 1
  end
  if redis.call('ZCARD', batch_key(batch) .. ':waiting') == 0 then
    redis.call('ZREM', P .. 'feeding', batch)
  end
end

for _, batch in ipairs(redis.call('ZRANGE', P .. 'feeding', 0, -1)) do
  local limit = ceiling_reached(batch)
  if limit and count < most and redis.call('HGET', batch_key(batch), 'on_ceiling') == 'seal' then
    seal_waiting(batch, limit)
  end
end
return count
