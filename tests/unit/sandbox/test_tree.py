"""Walking, reading and emptying trees, by the program that does it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zubble_sandbox import archive, wire
from zubble_sandbox.removal import remove_folder

MAX_DEPTH = 128
NAMES = st.text("ab-./\x01", min_size=1, max_size=4).filter(
    lambda name: "/" not in name and name not in {".", ".."}
)
FOLDERS = st.recursive(st.none(), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=15)


def build(folder, content):
    for name, inner in (content or {}).items():
        if inner is None:
            (folder / name).write_text(name)
        else:
            (folder / name).mkdir()
            build(folder / name, inner)


def paths(content, prefix=()):
    """As a walk visits them: a folder before what is in it, names in the order of their bytes."""
    for name in sorted(content or {}):
        yield "/".join((*prefix, name))
        yield from paths(content[name], (*prefix, name))


def listed(served, skip=b"0", most=b"1000"):
    return archive.records(served.ask(wire.LIST, b"", most, skip)[1])


@settings(suppress_health_check=list(HealthCheck), max_examples=60, deadline=None)
@given(content=FOLDERS)
def test_a_walk_visits_everything_in_order(served, content):
    remove_folder(str(served.work / "top"))
    (served.work / "top").mkdir()
    build(served.work / "top", content)
    found = archive.records(served.ask(wire.LIST, b"top", b"1000", b"0")[1])
    assert [record.path.decode() for record in found] == list(paths(content))


def test_a_walk_names_the_folder_it_cannot_enter(served):
    folder = served.work
    for _ in range(MAX_DEPTH + 20):
        folder = folder / "d"
        folder.mkdir()
    assert max(record.path.count(b"/") for record in listed(served)) == MAX_DEPTH


def test_a_record_tells_everything_about_an_entry(served):
    (served.work / "file").write_bytes(b"12345")
    (served.work / "file").chmod(0o4751)
    os.utime(served.work / "file", ns=(0, 1_234_567_890_123_456_789))
    (served.work / "link").symlink_to("/no/where")
    file, link = listed(served)
    assert file == archive.Record(b"file", b"f", 0o4751, 5, 1_234_567_890_123_456_789, b"")
    assert (link.path, link.kind, link.target) == (b"link", b"l", b"/no/where")


def test_a_walk_leaves_no_descriptor_open(served):
    (served.work / "a" / "b" / "c").mkdir(parents=True)
    open_ones = Path(f"/proc/{served.process.pid}/fd")
    before = sorted(open_ones.iterdir())
    assert len(listed(served, most=b"2")) == 2
    assert sorted(open_ones.iterdir()) == before


def test_our_own_folder_is_skipped_at_the_top_only(served):
    (served.work / ".zubble").mkdir()
    (served.work / ".zubble" / "journal.json").touch()
    (served.work / "a" / ".zubble").mkdir(parents=True)
    assert [record.path for record in listed(served, skip=b"1")] == [b"a", b"a/.zubble"]


def make_deep(folder):
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=deep)
        inner = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)


def make_shut(folder):
    (folder / "shut" / "in").mkdir(parents=True)
    (folder / "shut" / "in" / "file").touch()
    (folder / "shut" / "in").chmod(0)
    (folder / "shut").chmod(0)


def test_a_folder_of_any_depth_and_mode_is_emptied_by_both_sides(served):
    make_deep(served.work)
    make_shut(served.work)
    served.ask(wire.RESTORE, body=b"")
    assert list(served.work.iterdir()) == []
    make_deep(served.work)
    make_shut(served.work)
    assert remove_folder(str(served.work))
    assert not remove_folder(str(served.work))


def test_emptying_does_not_follow_links_and_keeps_what_is_to_be_kept(served):
    (served.work / "link").symlink_to(served.work.parent)
    (served.work / ".zubble").mkdir()
    (served.work / ".zubble" / "journal.json").touch()
    served.ask(wire.RESTORE, body=b"")
    assert (served.work.parent / "outside").read_text() == "outside"
    assert [path.name for path in served.work.rglob("*")] == [".zubble", "journal.json"]
    shutil.rmtree(served.work / ".zubble")


@pytest.mark.parametrize(
    "path", [b"/", b"/etc", b"/proc/self", b"..", b"a/../..", b"/work/..", b"a\0b", b"/verify/x"]
)
def test_a_path_outside_the_roots_is_refused(served, path):
    (served.work / "a").mkdir()
    with pytest.raises(PermissionError):
        served.ask(wire.READ, path, b"10")
    with pytest.raises(PermissionError):
        served.ask(wire.WRITE, path, b"0", body=b"x")


def test_a_file_is_read_by_at_most_as_many_bytes_as_allowed(served):
    (served.work / "file").write_bytes(b"12345")
    assert served.ask(wire.READ, b"file", b"5")[1] == b"12345"
    with pytest.raises(ValueError, match="larger than 4"):
        served.ask(wire.READ, b"/work/file", b"4")


def test_a_failed_write_leaves_the_old_file_and_no_other(new_supervisor):
    one = new_supervisor()
    (one.work / "file").write_text("old")
    subprocess.run(["prlimit", "--pid", str(one.process.pid), "--fsize=1000"], check=True)
    one.setup()
    one.answer()
    with pytest.raises(OSError, match="too large"):
        one.ask(wire.WRITE, b"file", b"0", body=b"x" * 2_000)
    assert [(path.name, path.read_text()) for path in one.work.iterdir()] == [("file", "old")]


@pytest.mark.slow
def test_a_folder_of_many_files_is_listed_whole_up_to_what_a_snapshot_takes(served):
    (served.work / "wide").mkdir()
    for number in range(archive.MAX_ENTRIES + 1):
        os.close(os.open(served.work / "wide" / f"{number}", os.O_CREAT))
    most = b"%d" % (2 * archive.MAX_ENTRIES)
    found = archive.records(served.ask(wire.LIST, b"wide", most, b"0")[1])
    assert len(found) == archive.MAX_ENTRIES + 1
