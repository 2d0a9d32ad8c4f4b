#!lua flags=no-writes
-- -> per batch that has waiting or announced tasks: {name, why nothing of it is begun or '', how many more of it may be
-- begun or -1, rows of {need, why nothing of it is begun or '', waiting, announced, microseconds the first waits}}
-- What the feeder announces by is asked here, too. O(batches x lanes + announced).
local announced, batches = announced_by_lane(), redis.call('ZRANGE', P .. 'feeding', 0, -1)
local seen, rows = {}, {}
for _, batch in ipairs(batches) do
  seen[batch] = true
end
for batch in pairs(announced) do
  if not seen[batch] then
    batches[#batches + 1] = batch
  end
end

local function waits_for(key, low, high)
  local id = redis.call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, 1)[1]
  local record = id and fields(task_key(id), 'waits', 'created')
  return record and math.max(0, NOW - tonumber(record[1] or record[2] or NOW)) or 0
end

for _, batch in ipairs(batches) do
  local of_batch = announced[batch] or {total = 0, of = {}}
  local room, lanes = room_of(batch, of_batch.total), {}
  for _, lane in ipairs(lanes_of(batch)) do
    local key = batch_key(batch) .. ':waiting'
    local low, high = waiting_score(lane.number, 0), '(' .. waiting_score(lane.number + 1, 0)
    local waiting, sent = redis.call('ZCOUNT', key, low, high), of_batch.of[lane.need] or 0
    if waiting + sent > 0 then
      local why = lane.broken and 'breaker' or model_is_full(lane.model) and 'model_slots' or ''
      lanes[#lanes + 1] = {lane.need, why, waiting, sent, int(waits_for(key, low, high))}
    end
  end
  rows[#rows + 1] = {batch, held_back(batch) or '', room == math.huge and -1 or math.max(0, room), lanes}
end
return rows
