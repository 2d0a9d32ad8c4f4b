import pytest

from zubble_queue.stores.keys import KEY_KINDS, Keys


@pytest.fixture
def keys():
    return Keys("zubble")


def test_every_key_begins_with_namespace_and_version(keys):
    names = (
        keys.task("1-a"),
        keys.batch("b"),
        keys.worker("w"),
        keys.leader("feeder"),
        keys.preflight("0"),
        keys.changes("b"),
        keys.leases,
        keys.wake,
    )

    assert all(name.startswith("zubble:1:") for name in names)


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        ("zubble:1:task:7-a-00000000", "task:*"),
        ("zubble:1:task:7-a-00000000:events", "task:*:events"),
        ("zubble:1:batch:He.l_lo-1:waiting", "batch:*:waiting"),
        ("zubble:1:batches", "batches"),
    ],
)
def test_a_key_belongs_to_its_row_of_the_table(keys, key, pattern):
    assert keys.kind(key).pattern == pattern


@pytest.mark.parametrize(
    "key", ["other:1:batches", "zubble:2:batches", "zubble:1:task:a:other", "zubble:1:task:", "zubble:1:x"]
)
def test_a_key_of_no_row_is_nobodys(keys, key):
    assert keys.kind(key) is None


def test_every_row_says_what_bounds_it():
    assert all(kind.bound for kind in KEY_KINDS)
    assert len({kind.pattern for kind in KEY_KINDS}) == len(KEY_KINDS)
