#!lua
-- name, then four values per task: facts in lines (id, repeat, content hash, task type, version, most tokens, most
-- micro-USD, expected cost, pool and sandbox), source id, model, envelope
-- -> {'added', created, existing, conflicts} | {'unknown'} | {'cancelled'}
local WIDTH = 4
local FACTS = '^' .. ('([^\n]*)\n'):rep(8) .. '(.*)$'
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

local function create(at, facts)
  local id, source_id, model = facts[1], arg(at + 1), arg(at + 2)
  local need = facts[9] .. model
  local lane = lane_for(need)
  ordinal = ordinal + 1
  created = created + 1
  repeats = math.max(repeats, tonumber(facts[2]))
  redis.call('HSET', task_key(id), 'state', 'queued', 'batch', batch, 'source_id', source_id, 'repeat', facts[2],
    'hash', facts[3], 'task_type', facts[4], 'model', model, 'version', facts[5], 'max_tokens', facts[6],
    'max_micro_usd', facts[7], 'cost', facts[8], 'need', need, 'lane', lane, 'envelope', arg(at + 3), 'round', 1,
    'epoch', 0, 'ordinal', ordinal, 'created', int(NOW))
  redis.call('ZADD', key .. ':tasks', ordinal, id)
  redis.call('ZADD', key .. ':waiting', waiting_score(lane, ordinal), id)
  note(id, 0, 'accepted', {task_id = id, batch = batch, source_id = source_id})
end

local function add(at, facts)
  local stored = redis.call('HGET', task_key(facts[1]), 'hash')
  if not stored then
    create(at, facts)
  elseif stored == facts[3] then
    existing = existing + 1
  else
    conflicts[#conflicts + 1] = arg(at + 1)
  end
end

for at = 2, #ARGV - 3, WIDTH do
  add(at, {arg(at):match(FACTS)})
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
