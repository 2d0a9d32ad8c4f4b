#!lua flags=allow-oom
-- most, seconds until a waiting batch rises by one priority, number of offers or -1 for an offer of everything,
-- then per offer: room, number of needs, needs... -> rows of {id, envelope, epoch, round, push, need}
-- Every row is drawn from the batch whose turn it is: the highest priority first, waiting included; among equals the
-- one that was given the least expected cost for its weight. O((batches + announced) x log batches).
local most, ageing, rows = number(1), number(2) * 1000000, {}
local everything, serving = number(3) < 0, {}
local PLENTY = {room = math.huge}

local function read_offers()
  local at = 4
  for _ = 1, number(3) do
    local offer = {room = number(at)}
    for i = at + 2, at + 1 + number(at + 1) do
      serving[arg(i)] = serving[arg(i)] or {}
      table.insert(serving[arg(i)], offer)
    end
    at = at + 2 + number(at + 1)
  end
end

-- The offer with the most room of those that serve a need; nil where none has any.
local function offer_for(need)
  if everything then
    return PLENTY
  end
  local best = nil
  for _, offer in ipairs(serving[need] or {}) do
    if offer.room > 0 and (not best or offer.room > best.room) then
      best = offer
    end
  end
  return best
end

local function take_from_offers_what_is_announced(by_batch)
  for _, of_batch in pairs(by_batch) do
    for need, count in pairs(of_batch.of) do
      for _ = 1, count do
        local offer = offer_for(need)
        if offer then
          offer.room = offer.room - 1
        end
      end
    end
  end
end

-- A batch that waits rises, but never above the highest priority that can be fed: there, weights alone decide.
local highest = -math.huge

local function rank(turn)
  turn.rank = math.min(highest, turn.priority + math.floor((NOW - turn.served) / ageing))
  turn.risen = turn.rank > turn.priority
end

local function before(one, two)
  if one.rank ~= two.rank then
    return one.rank > two.rank
  elseif one.risen ~= two.risen then
    return one.risen
  elseif one.pass ~= two.pass then
    return one.pass < two.pass
  end
  return one.number < two.number
end

-- A binary heap: the batch whose turn it is stands first.
local heap = {}

local function sink()
  local at = 1
  while true do
    local first = at
    for child = 2 * at, 2 * at + 1 do
      if heap[child] and before(heap[child], heap[first]) then
        first = child
      end
    end
    if first == at then
      return
    end
    heap[at], heap[first] = heap[first], heap[at]
    at = first
  end
end

local function insert(turn)
  local at = #heap + 1
  heap[at] = turn
  while at > 1 and before(heap[at], heap[math.floor(at / 2)]) do
    local up = math.floor(at / 2)
    heap[at], heap[up] = heap[up], heap[at]
    at = up
  end
end

local function leave_heap()
  heap[1] = heap[#heap]
  heap[#heap] = nil
  sink()
end

-- The first task of a lane that still waits; entries without one are dropped on the way.
local function head_of(turn, lane)
  local low, high = waiting_score(lane, 0), '(' .. waiting_score(lane + 1, 0)
  while true do
    local id = redis.call('ZRANGEBYSCORE', turn.waiting, low, high, 'LIMIT', 0, 1)[1]
    if not id then
      return nil
    end
    local record = fields(task_key(id), 'state', 'envelope', 'epoch', 'round', 'ordinal', 'cost')
    if record[1] == 'queued' then
      return {id = id, record = record, ordinal = tonumber(record[5]), cost = tonumber(record[6] or 1)}
    end
    redis.call('ZREM', turn.waiting, id)
  end
end

local function turn_of(batch, number_, announced)
  local left = room_of(batch, announced)
  if held_back(batch) or left <= 0 then
    return nil
  end
  local key = batch_key(batch)
  local b = fields(key, 'priority', 'weight', 'served', 'pass')
  return {batch = batch, key = key, waiting = key .. ':waiting', number = number_, left = left, lanes = lanes_of(batch),
    priority = tonumber(b[1] or 0), weight = tonumber(b[2] or 1), served = tonumber(b[3] or NOW),
    pass = tonumber(b[4] or 0)}
end

-- The oldest task of the batch that some offer has room for, its lane and the offer; nil where there is none.
local function draw(turn)
  local best, best_lane, best_offer = nil, nil, nil
  for _, lane in ipairs(turn.lanes) do
    local offer = not lane.dry and not lane.broken and offer_for(lane.need)
    if offer then
      lane.head = lane.head or head_of(turn, lane.number)
      lane.dry = lane.head == nil
      if lane.head and (not best or lane.head.ordinal < best.ordinal) then
        best, best_lane, best_offer = lane.head, lane, offer
      end
    end
  end
  return best, best_lane, best_offer
end

local function announce(turn, task, lane, offer)
  local push = redis.call('HINCRBY', task_key(task.id), 'push', 1)
  redis.call('ZREM', turn.waiting, task.id)
  redis.call('ZADD', P .. 'announced', int(NOW), task.id)
  rows[#rows + 1] = {task.id, task.record[2], task.record[3], task.record[4], push, lane.need}
  offer.room = offer.room - 1
  lane.head = nil
  turn.left = turn.left - 1
  redis.call('HSET', P .. 'levels', int(turn.priority), string.format('%.6f', turn.pass))
  turn.pass = turn.pass + task.cost / turn.weight
  turn.served, turn.drawn = NOW, true
  rank(turn)
end

local function put_down(turn)
  if turn.drawn then
    redis.call('HSET', turn.key, 'pass', string.format('%.6f', turn.pass), 'served', int(turn.served))
  end
  if redis.call('ZCARD', turn.waiting) == 0 then
    redis.call('ZREM', P .. 'feeding', turn.batch)
  end
end

read_offers()
local announced = announced_by_lane()
take_from_offers_what_is_announced(announced)
local turns = {}
for i, batch in ipairs(redis.call('ZRANGE', P .. 'feeding', 0, -1)) do
  local turn = turn_of(batch, i, announced[batch] and announced[batch].total or 0)
  if turn then
    turns[#turns + 1] = turn
  end
end
local able = {}
for _, turn in ipairs(turns) do
  if draw(turn) then
    able[#able + 1] = turn
    highest = math.max(highest, turn.priority)
  end
end
for _, turn in ipairs(able) do
  rank(turn)
  insert(turn)
end
while #rows < most and #heap > 0 do
  local turn = heap[1]
  local task, lane, offer = draw(turn)
  if task then
    announce(turn, task, lane, offer)
  end
  if task and turn.left > 0 then
    sink()
  else
    leave_heap()
  end
end
for _, turn in ipairs(turns) do
  put_down(turn)
end
if #rows > 0 then
  redis.call('EXPIRE', P .. 'levels', RECORD_TTL)
end
return rows
