import pytest

from zubble_queue.stores.address import place
from zubble_queue.stores.connection import unfit, used_share

REDIS = {"redis_version": "7.0.15", "role": "master", "maxmemory": 0, "maxmemory_policy": "noeviction"}
VALKEY = {**REDIS, "redis_version": "7.2.4", "valkey_version": "8.1.1", "server_name": "valkey"}


@pytest.mark.parametrize(
    "info",
    [REDIS, VALKEY, {**REDIS, "redis_version": "8.2.0"}, {**REDIS, "maxmemory_policy": "allkeys-lru"}],
)
def test_a_server_that_is_fit_is_taken(info):
    assert unfit(info) is None


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ({**REDIS, "redis_version": "6.2.14"}, "is Redis 6.2.14; 7.0 or newer is needed"),
        ({**VALKEY, "valkey_version": "7.1.9"}, "is Valkey 7.1.9; 7.2 or newer is needed"),
        ({**REDIS, "cluster_enabled": 1}, "is a cluster; a standalone server is needed"),
        ({**REDIS, "redis_mode": "cluster"}, "is a cluster; a standalone server is needed"),
        ({**REDIS, "role": "slave"}, "is a read-only replica; name its primary"),
        (
            {**REDIS, "maxmemory": 1, "maxmemory_policy": "volatile-ttl"},
            "may evict tasks (maxmemory-policy volatile-ttl); set it to noeviction",
        ),
    ],
)
def test_a_server_that_is_not_fit_is_refused_with_the_reason(info, problem):
    assert unfit(info) == problem


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/2", "redis://host:6379/2"),
        ("rediss://host/0?password=secret", "rediss://host/0"),
        ("unix://user:se@cret@/run/socket?db=1", "unix:///run/socket"),
    ],
)
def test_a_place_is_named_without_user_and_password(url, shown):
    assert place(url) == shown


@pytest.mark.parametrize(("maxmemory", "share"), [(0, 0.0), (200, 0.5)])
def test_the_used_share_is_of_maxmemory_where_there_is_one(maxmemory, share):
    assert used_share({"used_memory": 100, "maxmemory": maxmemory}) == share
