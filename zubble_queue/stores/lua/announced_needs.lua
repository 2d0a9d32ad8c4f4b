#!lua flags=no-writes
-- -> the need of every task that is announced
local needs = {}
for _, id in ipairs(redis.call('ZRANGE', P .. 'announced', 0, -1)) do
  needs[#needs + 1] = redis.call('HGET', task_key(id), 'need') or nil
end
return needs
