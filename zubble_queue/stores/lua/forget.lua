#!lua flags=allow-oom
-- task type, ids of entries... -> how many of them were there
local key = P .. 'memory:' .. arg(1)
local doomed, gone = {}, 0
for at = 2, #ARGV - 3 do
  doomed[arg(at)] = true
end
for _, text in ipairs(redis.call('LRANGE', key, 0, -1)) do
  local entry = cjson.decode(text)
  if doomed[entry.task_id .. '.' .. int(entry.round)] then
    gone = gone + redis.call('LREM', key, 1, text)
  end
end
if redis.call('EXISTS', key) == 0 then
  redis.call('ZREM', P .. 'memories', arg(1))
end
return gone
