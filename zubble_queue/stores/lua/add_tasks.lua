#!lua
-- name, then twelve values per task: id, source id, repeat, content hash, task type, model, version, most tokens,
-- most micro-USD, expected cost, need, envelope
-- -> {'added', created, existing, conflicts} | {'unknown'} | {'cancelled'}
local WIDTH = 12
local batch = arg(1)
local key = batch_key(batch)
local known = fields(key, 'state', 'ordinal', 'repeats', 'lanes')
if not known[1] then
  return {'unknown'}
elseif known[1] == 'cancelled' then
  return {'cancelled'}
end

local ordinal, created, existing, conflicts = tonumber(known[2]), 0, 0, {}
local repeats, lanes, lane_of = tonumber(known[3] or 1), tonumber(known[4] or 0), {}
for lane = 0, lanes - 1 do
  lane_of[redis.call('HGET', key, 'need:' .. lane)] = lane
end

local function lane_for(need)
  if not lane_of[need] then
    lane_of[need] = lanes
    redis.call('HSET', key, 'need:' .. int(lanes), need, 'lanes', int(lanes + 1))
    lanes = lanes + 1
  end
  return lane_of[need]
end

local function create(at)
  local id = arg(at)
  local lane = lane_for(arg(at + 10))
  ordinal = ordinal + 1
  created = created + 1
  repeats = math.max(repeats, number(at + 2))
  redis.call('HSET', task_key(id), 'state', 'queued', 'batch', batch, 'source_id', arg(at + 1),
    'repeat', arg(at + 2), 'hash', arg(at + 3), 'task_type', arg(at + 4), 'model', arg(at + 5),
    'version', arg(at + 6), 'max_tokens', arg(at + 7), 'max_micro_usd', arg(at + 8), 'cost', arg(at + 9),
    'need', arg(at + 10), 'envelope', arg(at + 11), 'lane', lane, 'round', 1, 'epoch', 0, 'ordinal', ordinal,
    'created', int(NOW))
  redis.call('ZADD', key .. ':tasks', ordinal, id)
  redis.call('ZADD', key .. ':waiting', waiting_score(lane, ordinal), id)
  note(id, 0, 'accepted', {task_id = id, batch = batch, source_id = arg(at + 1)})
end

for at = 2, #ARGV - 3, WIDTH do
  local stored = redis.call('HGET', task_key(arg(at)), 'hash')
  if not stored then
    create(at)
  elseif stored == arg(at + 3) then
    existing = existing + 1
  else
    conflicts[#conflicts + 1] = arg(at + 1)
  end
end

if created > 0 then
  redis.call('HSET', key, 'ordinal', ordinal, 'repeats', repeats)
  redis.call('HINCRBY', key, 'total', created)
  redis.call('HINCRBY', key, 'state:queued', created)
  redis.call('PERSIST', key)
  redis.call('PERSIST', key .. ':tasks')
  join_feeding(batch)
  changed(batch)
  wake()
end
return {'added', created, existing, conflicts}
