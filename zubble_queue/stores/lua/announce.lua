#!lua flags=allow-oom
-- most -> rows of {id, envelope, epoch, round, push}; batches in the order of their creation
local most, rows = number(1), {}

local function announce(id)
  local record = fields(task_key(id), 'state', 'envelope', 'epoch', 'round')
  if record[1] == 'queued' then
    local push = redis.call('HINCRBY', task_key(id), 'push', 1)
    redis.call('ZADD', P .. 'announced', int(NOW), id)
    rows[#rows + 1] = {id, record[2], record[3], record[4], push}
  end
end

local function draw_from(batch)
  local waiting = batch_key(batch) .. ':waiting'
  while #rows < most do
    local popped = redis.call('ZPOPMIN', waiting, most - #rows)
    if #popped == 0 then
      redis.call('ZREM', P .. 'feeding', batch)
      return
    end
    for i = 1, #popped, 2 do
      announce(popped[i])
    end
  end
end

for _, batch in ipairs(redis.call('ZRANGE', P .. 'feeding', 0, -1)) do
  if #rows >= most then
    break
  end
  draw_from(batch)
end
return rows
