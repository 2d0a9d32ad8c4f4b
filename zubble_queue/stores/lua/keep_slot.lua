#!lua flags=allow-oom
-- model, slot, microseconds it lives on
redis.call('ZADD', model_key(arg(1)) .. ':slots', 'XX', int(NOW + number(3)), arg(2))
