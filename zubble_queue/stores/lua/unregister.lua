#!lua flags=allow-oom
-- worker
redis.call('DEL', P .. 'worker:' .. arg(1))
redis.call('ZREM', P .. 'workers', arg(1))
wake()
