#!lua
-- name, then ten values per task -> {'added', created, existing, conflicts} | {'unknown'} | {'cancelled'}
local batch = arg(1)
local key = batch_key(batch)
local known = fields(key, 'state', 'ordinal', 'created')
if not known[1] then
  return {'unknown'}
elseif known[1] == 'cancelled' then
  return {'cancelled'}
end

local ordinal, created, existing, conflicts = tonumber(known[2]), 0, 0, {}

local function create(at)
  local id = arg(at)
  ordinal = ordinal + 1
  created = created + 1
  redis.call('HSET', task_key(id), 'state', 'queued', 'batch', batch, 'source_id', arg(at + 1),
    'repeat', arg(at + 2), 'hash', arg(at + 3), 'task_type', arg(at + 4), 'model', arg(at + 5),
    'version', arg(at + 6), 'max_tokens', arg(at + 7), 'max_micro_usd', arg(at + 8), 'envelope', arg(at + 9),
    'round', 1, 'epoch', 0, 'ordinal', ordinal, 'created', int(NOW))
  redis.call('ZADD', key .. ':tasks', ordinal, id)
  redis.call('ZADD', key .. ':waiting', ordinal, id)
  note(id, 0, 'accepted', {task_id = id, batch = batch, source_id = arg(at + 1)})
end

for at = 2, #ARGV - 3, 10 do
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
  redis.call('HSET', key, 'ordinal', ordinal)
  redis.call('HINCRBY', key, 'total', created)
  redis.call('HINCRBY', key, 'state:queued', created)
  redis.call('PERSIST', key)
  redis.call('PERSIST', key .. ':tasks')
  redis.call('PERSIST', key .. ':waiting')
  redis.call('ZADD', P .. 'feeding', known[3], batch)
  changed(batch)
  wake()
end
return {'added', created, existing, conflicts}
