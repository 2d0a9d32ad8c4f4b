"""Where a process is among the control groups, from what the kernel says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zubble_sandbox import hierarchies
from zubble_sandbox.hierarchies import Hierarchy, parse

UNIFIED = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def only(found) -> Hierarchy:
    (hierarchy,) = found
    return hierarchy


def test_a_unified_machine_has_one_hierarchy():
    found = only(parse(UNIFIED, "0::/user.slice/user-1000.slice/session-2.scope\n"))
    assert found.version == 2
    assert found.root == Path("/sys/fs/cgroup")
    assert found.own == Path("/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope")


def test_a_hybrid_machine_has_one_for_each_set_of_controllers():
    groups = "9:name=systemd:/\n4:memory:/workers/7\n2:cpuacct,cpu:/\n0::/\n"
    found = list(parse(HYBRID, groups))
    assert [(each.version, sorted(each.mounted), str(each.own)) for each in found] == [
        (1, ["cpu", "cpuacct"], "/sys/fs/cgroup/cpu,cpuacct"),
        (1, ["memory"], "/sys/fs/cgroup/memory/workers/7"),
        (1, ["name=systemd"], "/sys/fs/cgroup/systemd"),
        (2, [], "/sys/fs/cgroup/unified"),
    ]


def test_a_container_sees_its_group_below_what_is_mounted():
    mounts = "5 4 0:9 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    assert only(parse(mounts, "4:memory:/docker/ab/inner\n")).own == Path("/sys/fs/cgroup/memory/inner")
    assert only(parse(mounts, "4:memory:/docker/ab\n")).own == Path("/sys/fs/cgroup/memory")
    assert list(parse(mounts, "4:memory:/docker/abc\n")) == [], "a name that only begins alike"
    assert list(parse(mounts, "4:memory:/elsewhere\n")) == []


def test_a_group_above_what_is_mounted_is_not_there():
    assert list(parse(UNIFIED, "0::/../../other\n")) == []


def test_spaces_in_a_mount_point_are_understood():
    mounts = UNIFIED.replace("/sys/fs/cgroup ", "/mnt/a\\040b ")
    assert only(parse(mounts, "0::/x\n")).own == Path("/mnt/a b/x")


def test_groups_are_made_beside_the_leaf_of_the_workers():
    own, root = Path("/cg/job/zubble-workers"), Path("/cg")
    assert Hierarchy(2, frozenset(), root, own).below(None) == Path("/cg/job")
    assert Hierarchy(1, frozenset({"memory"}), root, own).below(None) == own
    assert Hierarchy(2, frozenset(), root, own).below("/shared/") == Path("/cg/shared")


def test_a_group_that_is_not_there_has_no_controllers(tmp_path):
    assert Hierarchy(2, frozenset(), tmp_path, tmp_path).controllers(tmp_path / "gone") == frozenset()


def test_this_process_is_in_the_groups_that_are_found():
    found = hierarchies.found()
    if not found:
        pytest.skip("no control groups are mounted here")
    for hierarchy in found:
        assert str(hierarchy.own).startswith(str(hierarchy.root))
        assert (hierarchy.own / "cgroup.procs").exists()
