"""What an agent changed, as a patch that git and patch apply, as files, and as numbers."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.errors import SandboxUnavailable
from zubble_worker import worktree

Files = dict[bytes, bytes]
APPLY = {
    "git": ["git", "apply", "--whitespace=nowarn", "-p1"],
    "patch": ["patch", "--binary", "-s", "-p1", "-i"],
}


def snapshot(files: Files, *, executable: tuple[bytes, ...] = (), links: Files | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.GNU_FORMAT) as tar:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(os.fsdecode(name))
            member.size, member.mode = len(data), 0o755 if name in executable else 0o644
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(os.fsdecode(name))
            member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(target)
            tar.addfile(member)
    return buffer.getvalue()


def patched(tool: str, folder: Path, before: Files, patch: bytes) -> Files:
    """What a tool makes of the files by the patch."""
    for name, data in before.items():
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if patch:
        file = folder.parent / f"{folder.name}.patch"
        file.write_bytes(patch)
        subprocess.run([*APPLY[tool], str(file)], cwd=folder, check=True, capture_output=True)
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {os.fsencode(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(params=["git", "patch"])
def tool(request, missing_part) -> str:
    if shutil.which(request.param) is None:
        missing_part(f"{request.param} is not installed.")
    return request.param


BEFORE = {b"kept": b"x\n", b"edited": b"".join(b"%d\n" % n for n in range(40)), b"gone": b"a\nb\n", b"e": b""}
AFTER = {
    b"kept": b"x\n",
    b"edited": b"first\n"
    + b"".join(b"%d\n" % n for n in range(20))
    + b"".join(b"%d\n" % n for n in range(21, 39))
    + b"end",
    b"new folder/new": b"n\r\n\x0b\n",
    b'caf\xc3\xa9 "q" \\ \t.txt': b"\xff\xfe no UTF-8\n",
    b"e": b"now\n",
}


def test_the_patch_makes_the_new_tree_of_the_old_one(tool, tmp_path):
    (tmp_path / "tree").mkdir()

    edits = worktree.compare(snapshot(BEFORE), snapshot(AFTER))

    assert patched(tool, tmp_path / "tree", BEFORE, edits.patch) == AFTER


@given(
    st.lists(st.sampled_from([b"a\n", b"b\n", b"-- c\n", b"+\n", b"", b"no end"]), max_size=30),
    st.lists(st.sampled_from([b"a\n", b"b\n", b"-- c\n", b"+\n", b"", b"no end"]), max_size=30),
)
def test_any_text_becomes_any_other(tmp_path_factory, old, new):
    if shutil.which("git") is None:
        pytest.skip("git is not installed.")
    before, after = {b"f": b"".join(old)}, {b"f": b"".join(new)}
    folder = tmp_path_factory.mktemp("any") / "tree"
    folder.mkdir()

    edits = worktree.compare(snapshot(before), snapshot(after))

    assert patched("git", folder, before, edits.patch) == after


def test_a_mode_that_changed_is_in_the_patch(tmp_path, missing_part):
    if shutil.which("git") is None:
        missing_part("git is not installed.")
    (tmp_path / "tree").mkdir()
    files = {b"run.sh": b"echo\n"}

    edits = worktree.compare(snapshot(files), snapshot(files, executable=(b"run.sh",)))
    patched("git", tmp_path / "tree", files, edits.patch)

    assert os.access(tmp_path / "tree/run.sh", os.X_OK)


def test_an_equal_tree_has_no_changes():
    tree = snapshot({b"a": b"1\n2\n"})

    assert worktree.compare(tree, tree) == worktree.Edits()


def test_added_changed_and_removed_files_count_by_line():
    before = snapshot({b"kept": b"x\n", b"edited": b"1\n2\n3\n", b"gone": b"a\nb\n"})
    after = snapshot({b"kept": b"x\n", b"edited": b"1\ntwo\n3\n4\n", b"new": b"n\n"})

    changes = worktree.compare(before, after).changes

    assert changes == worktree.Changes(("edited", "gone", "new"), added=3, removed=3)


def test_a_binary_file_counts_by_its_lines_is_named_in_the_patch_and_kept_whole():
    before, after = snapshot({b"data": b"\0\n" * 10}), snapshot({b"data": b"\0\n" * 25})

    edits = worktree.compare(before, after)

    assert edits.changes == worktree.Changes(("data",), added=15, removed=0)
    assert edits.patch == b"# binary or large file: data (50 bytes)\n"
    assert members(edits.files) == {"data": b"\0\n" * 25}


def test_a_link_is_text_in_the_patch_and_nothing_else():
    edits = worktree.compare(snapshot({}), snapshot({}, links={b"link": b"/etc/pass\nwd"}))

    assert edits.patch == b'# symbolic link: link -> "/etc/pass\\nwd" (12 bytes)\n'
    assert edits.files == b""
    assert edits.changes.files == ("link",)


def test_only_new_and_different_files_are_kept():
    edits = worktree.compare(snapshot(BEFORE), snapshot(AFTER))

    assert members(edits.files).keys() == {os.fsdecode(name) for name in AFTER if name != b"kept"}


def test_at_most_500_files_are_named():
    after = snapshot({b"f%04d" % number: b"x\n" for number in range(600)})

    changes = worktree.compare(snapshot({}), after).changes

    assert len(changes.files) == 500
    assert changes.added == 600


def test_what_goes_beyond_a_cap_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(worktree, "PATCH_BYTES", 200)
    monkeypatch.setattr(worktree, "FILES", 2)
    after = {b"a": b"x\n" * 100, b"b": b"y\n", b"c": b"z\n", b"d" * 1_100: b"w\n"}

    edits = worktree.compare(snapshot({}), snapshot(after))

    head, _, diffs = edits.patch.partition(b"diff --git ")
    assert b"# not in this patch, which would be too large: a (200 bytes)\n" in head
    assert b"# not among the changed files, which would be too many or too large: c (2 bytes)\n" in head
    assert b"# left out, its path is too long or too deep: " in head
    assert diffs.count(b"\ndiff --git ") == 1
    assert members(edits.files) == {"a": after[b"a"], "b": after[b"b"]}


def test_of_a_part_of_a_tree_only_what_it_is_about_is_compared():
    before = snapshot({b"same": b"1\n", b"other": b"1\n", b"gone": b"1\n"})

    edits = worktree.compare(before, snapshot({b"other": b"2\n"}), only={b"other", b"gone"})

    assert edits.changes.files == ("gone", "other"), "nothing is said about `same`"
    assert (edits.changes.added, edits.changes.removed) == (1, 2)


def test_a_hostile_pair_of_files_takes_no_longer_than_the_budget():
    lines = [b"%d\n" % (number % 101) for number in range(60_000)]
    before = snapshot({b"f%d" % at: b"".join(lines) for at in range(4)})
    after = snapshot({b"f%d" % at: b"".join(reversed(lines)) for at in range(4)})

    edits = worktree.compare(before, after)

    assert len(edits.changes.files) == 4
    assert edits.changes.added == edits.changes.removed > 0


def test_a_broken_snapshot_is_the_sandboxs_fault():
    with pytest.raises(SandboxUnavailable, match="snapshot is broken"):
        worktree.compare(snapshot({}), b"x" * 512)


def members(tar: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive if one.isreg()}
