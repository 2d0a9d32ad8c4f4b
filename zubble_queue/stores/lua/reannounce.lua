#!lua flags=allow-oom
-- older than (microseconds), most, need or '' for all -> rows of {id, envelope, epoch, round, push, need}
local due = redis.call('ZRANGEBYSCORE', P .. 'announced', '-inf', int(NOW - number(1)))
local rows = {}

local function send_again(id)
  local record = fields(task_key(id), 'state', 'envelope', 'epoch', 'round', 'need')
  if record[1] ~= 'queued' then
    redis.call('ZREM', P .. 'announced', id)
  elseif arg(3) == '' or record[5] == arg(3) then
    local push = redis.call('HINCRBY', task_key(id), 'push', 1)
    redis.call('ZADD', P .. 'announced', int(NOW), id)
    rows[#rows + 1] = {id, record[2], record[3], record[4], push, record[5]}
  end
end

for _, id in ipairs(due) do
  if #rows >= number(2) then
    break
  end
  send_again(id)
end
return rows
