-- Shared: what becomes of a task whose question to a person is open.

-- The holder of a lease ends its attempt before its question was answered.
local function withdraw_question(id, batch)
  if redis.call('HGET', task_key(id), 'state') == 'awaiting_human' then
    redis.call('ZREM', P .. 'questions', id)
    move(id, batch, 'awaiting_human', 'running')
  end
end

-- A task goes on waiting for its answer without a worker.
local function leave_waiting(id, batch, previous_end)
  end_lease(id)
  redis.call('HSET', task_key(id), 'previous_end', previous_end)
  redis.call('HDEL', task_key(id), 'token')
  changed(batch)
  wake()
end

-- An attempt whose worker still waits goes on; else the next one does, and nobody is charged for it. A worker that
-- did not renew in time finds its lease gone, and the checkpoint it made before it asked.
local function take_answer(id, batch, answer)
  local until_ = redis.call('ZSCORE', P .. 'leases', id)
  redis.call('ZREM', P .. 'questions', id)
  redis.call('HSET', task_key(id), 'answer', answer, 'answered', int(NOW), 'mark', int(NOW))
  if until_ and tonumber(until_) >= NOW then
    move(id, batch, 'awaiting_human', 'running')
    return
  elseif until_ then
    end_lease(id)
  end
  move(id, batch, 'awaiting_human', 'queued')
  put_in_waiting(id, batch)
end
