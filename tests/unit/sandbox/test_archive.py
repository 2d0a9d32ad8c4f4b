"""Snapshots, without a sandbox around them."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import stat
import subprocess
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zubble_sandbox import archive, wire

RELAXED = settings(suppress_health_check=list(HealthCheck), max_examples=50, deadline=None)
NAMES = st.binary(min_size=1, max_size=120).filter(
    lambda name: not set(name) & set(b"/\0") and name not in {b".", b"..", b".zubble"}
)
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map(b"/".join), st.binary(max_size=1_500), max_size=6
)


def snapshot(tree, max_bytes=10_000_000) -> bytes:
    return archive.tar(tree.ask(wire.SNAPSHOT, b"%d" % max_bytes)[1], max_bytes)


def restore(tree, saved):
    tree.ask(wire.RESTORE, body=b"".join(archive.checked(saved)))


@pytest.fixture
def new_tree(new_supervisor):
    """Makes supervisors that are set up."""

    def new():
        one = new_supervisor()
        one.setup()
        assert one.answer()[0] == wire.OK
        return one

    return new


@pytest.fixture
def tree(served):
    return served


def content(tree):
    found = {}
    for path in tree.work.rglob("*"):
        mode = path.lstat().st_mode
        data = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[path.relative_to(tree.work)] = (stat.S_IFMT(mode), stat.S_IMODE(mode), data)
    return found


@RELAXED
@given(contents=FILES)
def test_what_was_saved_is_restored(new_tree, contents):
    first, second = new_tree(), new_tree()
    for name, data in contents.items():
        path = first.work / os.fsdecode(name)
        with contextlib.suppress(OSError):  # another file may be in its way
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    saved = snapshot(first)
    restore(second, saved)
    assert content(first) == content(second)
    assert snapshot(second) == saved


@RELAXED
@given(damage=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_snapshot_is_refused_or_harmless(new_tree, damage):
    tree = new_tree()
    outside = tree.work.parent / "outside"
    outside.write_text("outside")
    (tree.work / "folder").mkdir()
    (tree.work / "folder" / "file").write_text("x" * 600)
    (tree.work / "link").symlink_to(outside)
    data = bytearray(snapshot(tree))
    for position, value in damage:
        data[position % len(data)] = value
    before = content(tree)
    try:
        body = b"".join(archive.checked(bytes(data)))
    except ValueError:
        assert content(tree) == before
    else:
        with contextlib.suppress(ValueError, OSError):
            tree.ask(wire.RESTORE, body=body)
    assert outside.read_text() == "outside"
    assert sorted(path.name for path in tree.work.parent.iterdir()) == ["outside", "work"]


def test_other_programs_read_a_snapshot(tree, tmp_path):
    long = "/".join(["a" * 90] * 3)
    (tree.work / long).mkdir(parents=True)
    (tree.work / long / "file").write_text("content")
    (tree.work / "link").symlink_to("t" * 200)
    saved = snapshot(tree)
    (tmp_path / "saved.tar").write_bytes(saved)
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "saved.tar", "-C", tmp_path / "unpacked"], check=True)
    assert (tmp_path / "unpacked" / long / "file").read_text() == "content"
    assert (tmp_path / "unpacked" / "link").readlink().name == "t" * 200
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        assert f"{long}/file" in tar.getnames()


def test_a_file_that_shrinks_while_it_is_saved_is_filled_up(tree):
    size = 8_000_000  # more than the line takes in before somebody reads
    (tree.work / "file").write_bytes(b"x" * size)
    tree.send(wire.SNAPSHOT, 2, b"10000000")
    assert len(tree.sock.recv(1, socket.MSG_PEEK)) == 1, "it has begun"
    os.truncate(tree.work / "file", 10)
    kind, _, _, data = tree.answer()
    [record] = archive.records(data[: len(data) - size])
    assert (kind, record.size) == (wire.OK, size)
    content = data[-size:]
    assert content.rstrip(b"\0") == b"x" * content.count(b"x")
    assert content.count(b"x") < size


def test_too_many_entries_are_refused(tree, monkeypatch):
    for number in range(10):
        (tree.work / str(number)).touch()
    saved = snapshot(tree)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 9)
    with pytest.raises(ValueError, match="more than 9"):
        archive.checked(saved)


def test_a_snapshot_as_large_as_allowed_is_not_refused(tree):
    (tree.work / "file").write_bytes(bytes(2_048))
    size = len(snapshot(tree))
    assert len(snapshot(tree, max_bytes=size)) == size
    with pytest.raises(ValueError, match="larger"):
        snapshot(tree, max_bytes=size - 1)


def test_times_and_modes_of_files_are_kept(tree):
    (tree.work / "file").touch()
    (tree.work / "file").chmod(0o4751)
    os.utime(tree.work / "file", (1_000_000_000, 1_000_000_000))
    saved = snapshot(tree)
    (tree.work / "file").unlink()
    restore(tree, saved)
    info = (tree.work / "file").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime) == (0o751, 1_000_000_000)
