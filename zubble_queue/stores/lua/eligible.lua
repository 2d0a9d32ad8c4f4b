-- What may be begun: put behind the common part of every script, so that whoever asks gets the same answer.

-- Why no task of a batch is to be begun now; nil where some may be.
local function held_back(batch)
  local own = fields(batch_key(batch), 'state', 'paused')
  if not own[1] or own[1] == 'cancelled' then
    return 'cancelled'
  elseif own[2] == '1' then
    return 'paused'
  end
  return ceiling_reached(batch)
end

-- How many more of a batch may be begun besides those that run and are announced; math.huge where it has no cap.
local function room_of(batch, announced)
  local own = fields(batch_key(batch), 'concurrency', 'state:running')
  local most = tonumber(own[1] or 0)
  return most > 0 and most - tonumber(own[2] or 0) - announced or math.huge
end

-- A batch's lanes; in a broken one, calls of the model fail one after the other.
local function lanes_of(batch)
  local key, lanes = batch_key(batch), {}
  for number_ = 0, tonumber(redis.call('HGET', key, 'lanes') or 1) - 1 do
    local need = redis.call('HGET', key, 'need:' .. number_) or ''
    local model = need:match('^[^/]*/[^/]*/(.*)$') or ''
    lanes[#lanes + 1] = {number = number_, need = need, model = model, broken = model_is_open(model)}
  end
  return lanes
end

-- Whether a call waited for a place at this provider a moment ago: another agent would only wait, too.
local function model_is_full(name)
  return tonumber(redis.call('HGET', model_key(name), 'full') or 0) > NOW - 15000000
end

-- By batch: how many of its tasks are announced, in all (`total`) and by need (`of`).
local function announced_by_lane()
  local by_batch = {}
  for _, id in ipairs(redis.call('ZRANGE', P .. 'announced', 0, -1)) do
    local record = fields(task_key(id), 'batch', 'need')
    if record[1] then
      local own = by_batch[record[1]] or {total = 0, of = {}}
      by_batch[record[1]] = own
      own.total = own.total + 1
      own.of[record[2]] = (own.of[record[2]] or 0) + 1
    end
  end
  return by_batch
end
