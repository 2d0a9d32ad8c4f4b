#!lua
-- batch, most rounds, ids... -> {how many were begun, {ids that are not sealed}, {ids that have had all rounds}}
-- A new round: the old seal goes to the history, its count to nobody; the epochs go on, so that tokens never recur.
local batch, most_rounds = arg(1), number(2)
local key = batch_key(batch)
local begun, unsealed, spent = 0, {}, {}
local OF_THE_TASK = {}
for _, field in ipairs({'state', 'batch', 'source_id', 'repeat', 'hash', 'task_type', 'model', 'version', 'max_tokens',
  'max_micro_usd', 'cost', 'need', 'lane', 'envelope', 'round', 'epoch', 'ordinal', 'created', 'last_seq', 'dropped',
  'live_bytes'}) do
  OF_THE_TASK[field] = true
end

local function begin_afresh(id, record)
  local task, round = task_key(id), tonumber(record[2])
  archive(task, round)
  begin_events(task, record[4])
  for _, field in ipairs(redis.call('HKEYS', task)) do
    if not OF_THE_TASK[field] then
      redis.call('HDEL', task, field)
    end
  end
  redis.call('DEL', task .. ':calls', task .. ':journal')
  note(id, record[5], 'retried', {round = round + 1, after = record[3]})
  begin_round(id, batch, round + 1, record[3])
  begun = begun + 1
end

for at = 3, #ARGV - 3 do
  local record = fields(task_key(arg(at)), 'state', 'round', 'outcome', 'ending', 'epoch', 'batch')
  if record[6] == batch and record[1] ~= 'sealed' then
    unsealed[#unsealed + 1] = arg(at)
  elseif record[6] == batch and tonumber(record[2]) >= most_rounds then
    spent[#spent + 1] = arg(at)
  elseif record[6] == batch then
    begin_afresh(arg(at), record)
  end
end
if begun > 0 then
  reopen(batch)
end
return {begun, unsealed, spent}
