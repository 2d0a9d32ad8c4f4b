#!lua flags=allow-oom
-- batch, after ordinal, most -> {next ordinal or '', orphans, put back, {'state:x' or 'outcome:x', ...}}
-- One page of a batch's members: drops entries without a record, puts records back that are in no index.
local batch = arg(1)
local key = batch_key(batch)
local page = redis.call('ZRANGEBYSCORE', key .. ':tasks', '(' .. arg(2), '+inf', 'WITHSCORES', 'LIMIT', 0, arg(3))
local next_ordinal, orphans, mended, seen = '', {}, {}, {}

local function indexed(id, index)
  return redis.call('ZSCORE', index, id)
end

local function inspect(id)
  local record = fields(task_key(id), 'state', 'outcome', 'answer_by')
  local state = record[1]
  if not state then
    redis.call('ZREM', key .. ':tasks', id)
    redis.call('ZREM', key .. ':waiting', id)
    orphans[#orphans + 1] = id
    return
  end
  seen[#seen + 1] = 'state:' .. state
  if state == 'sealed' then
    seen[#seen + 1] = 'outcome:' .. record[2]
  elseif state == 'queued' and not indexed(id, key .. ':waiting') and not indexed(id, P .. 'announced')
    and not indexed(id, P .. 'delayed') then
    put_in_waiting(id, batch)
    mended[#mended + 1] = id
  elseif state == 'running' and not indexed(id, P .. 'leases') then
    redis.call('ZADD', P .. 'leases', int(NOW + LEASE), id)
  elseif state == 'awaiting_human' and not indexed(id, P .. 'questions') then
    redis.call('ZADD', P .. 'questions', record[3], id)
  end
end

for i = 1, #page, 2 do
  inspect(page[i])
  next_ordinal = page[i + 1]
end
if redis.call('ZCARD', key .. ':waiting') > 0 and not batch_cancelled(batch) then
  join_feeding(batch)
end
return {next_ordinal, orphans, mended, seen}
