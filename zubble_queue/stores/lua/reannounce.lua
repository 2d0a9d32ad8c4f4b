#!lua flags=allow-oom
-- older than (microseconds), most -> rows of {id, envelope, epoch, round, push}
local due = redis.call('ZRANGEBYSCORE', P .. 'announced', '-inf', int(NOW - number(1)), 'LIMIT', 0, arg(2))
local rows = {}
for _, id in ipairs(due) do
  local record = fields(task_key(id), 'state', 'envelope', 'epoch', 'round')
  if record[1] == 'queued' then
    local push = redis.call('HINCRBY', task_key(id), 'push', 1)
    redis.call('ZADD', P .. 'announced', int(NOW), id)
    rows[#rows + 1] = {id, record[2], record[3], record[4], push}
  else
    redis.call('ZREM', P .. 'announced', id)
  end
end
return rows
