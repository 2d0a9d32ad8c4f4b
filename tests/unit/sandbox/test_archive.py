"""Snapshots, without a sandbox around them."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import subprocess
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zubble_sandbox.supervisor import archive

RELAXED = settings(suppress_health_check=list(HealthCheck), max_examples=50, deadline=None)
NAMES = st.binary(min_size=1, max_size=120).filter(
    lambda name: not set(name) & set(b"/\0") and name not in {b".", b"..", b".zubble"}
)
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map(b"/".join), st.binary(max_size=1_500), max_size=6
)


def snapshot(tree, max_bytes=10_000_000) -> bytes:
    return b"".join(archive.snapshot(tree.roots, max_bytes))


def content(tree):
    found = {}
    for path in tree.path.rglob("*"):
        mode = path.lstat().st_mode
        data = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[path.relative_to(tree.path)] = (stat.S_IFMT(mode), stat.S_IMODE(mode), data)
    return found


@RELAXED
@given(contents=FILES)
def test_what_was_saved_is_restored(new_tree, given, contents):
    first, second = new_tree(), new_tree()
    for name, data in contents.items():
        path = first.path / os.fsdecode(name)
        with contextlib.suppress(OSError):  # another file may be in its way
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    saved = snapshot(first)
    archive.restore(second.roots, given(saved))
    assert content(first) == content(second)
    assert snapshot(second) == saved


@RELAXED
@given(damage=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_snapshot_is_refused_or_harmless(new_tree, given, damage):
    tree = new_tree()
    outside = tree.path.parent / "outside"
    outside.write_text("outside")
    (tree.path / "folder").mkdir()
    (tree.path / "folder" / "file").write_text("x" * 600)
    (tree.path / "link").symlink_to(outside)
    data = bytearray(snapshot(tree))
    for position, value in damage:
        data[position % len(data)] = value
    try:
        archive.restore(tree.roots, given(bytes(data)))
    except (ValueError, OSError):
        assert list(tree.path.iterdir()) == []
    assert outside.read_text() == "outside"
    assert sorted(path.name for path in tree.path.parent.iterdir()) == ["outside", "work"]


def test_other_programs_read_a_snapshot(tree, tmp_path):
    long = "/".join(["a" * 90] * 3)
    (tree.path / long).mkdir(parents=True)
    (tree.path / long / "file").write_text("content")
    (tree.path / "link").symlink_to("t" * 200)
    saved = snapshot(tree)
    (tmp_path / "saved.tar").write_bytes(saved)
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "saved.tar", "-C", tmp_path / "unpacked"], check=True)
    assert (tmp_path / "unpacked" / long / "file").read_text() == "content"
    assert (tmp_path / "unpacked" / "link").readlink().name == "t" * 200
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        assert f"{long}/file" in tar.getnames()


def test_a_file_that_shrinks_while_it_is_saved_is_filled_up(tree, monkeypatch):
    (tree.path / "file").write_text("x" * 1_000)
    opened = archive.open_regular

    def open_and_cut(parent, name):
        fd, info = opened(parent, name)
        os.truncate(tree.path / "file", 10)
        return fd, info

    monkeypatch.setattr(archive, "open_regular", open_and_cut)
    with tarfile.open(fileobj=io.BytesIO(snapshot(tree))) as tar:
        assert tar.extractfile("file").read() == b"x" * 10 + bytes(990)


def test_too_many_entries_are_refused_both_ways(tree, given, monkeypatch):
    for number in range(10):
        (tree.path / str(number)).touch()
    saved = snapshot(tree)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 9)
    with pytest.raises(ValueError, match="more than 9"):
        snapshot(tree)
    with pytest.raises(ValueError, match="more than 9"):
        archive.restore(tree.roots, given(saved))
    assert list(tree.path.iterdir()) == []


def test_a_snapshot_as_large_as_allowed_is_not_refused(tree):
    (tree.path / "file").write_bytes(bytes(2_048))
    size = len(snapshot(tree))
    assert len(snapshot(tree, max_bytes=size)) == size
    with pytest.raises(ValueError, match="larger"):
        snapshot(tree, max_bytes=size - 1)


def test_times_and_modes_of_files_are_kept(tree, given):
    (tree.path / "file").touch()
    (tree.path / "file").chmod(0o4751)
    os.utime(tree.path / "file", (1_000_000_000, 1_000_000_000))
    saved = snapshot(tree)
    (tree.path / "file").unlink()
    archive.restore(tree.roots, given(saved))
    info = (tree.path / "file").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime) == (0o751, 1_000_000_000)
