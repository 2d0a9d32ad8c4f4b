"""Changes between two snapshots are counted without unpacking them."""

from __future__ import annotations

import io
import tarfile

from zubble_worker import worktree


def snapshot(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def changed(before: bytes, after: bytes) -> worktree.Changes:
    return worktree.changes(worktree.files_in(before), worktree.files_in(after))


def test_an_equal_tree_has_no_changes():
    tree = snapshot(a=b"1\n2\n")

    assert changed(tree, tree) == worktree.Changes()


def test_added_changed_and_removed_files_count_by_line():
    before = snapshot(kept=b"x\n", edited=b"1\n2\n3\n", gone=b"a\nb\n")
    after = snapshot(kept=b"x\n", edited=b"1\ntwo\n3\n4\n", new=b"n\n")

    assert changed(before, after) == worktree.Changes(("edited", "gone", "new"), added=3, removed=3)


def test_binary_and_huge_files_count_by_their_lines_alone():
    before = snapshot(data=b"\0\n" * 10)
    after = snapshot(data=b"\0\n" * 25)

    assert changed(before, after) == worktree.Changes(("data",), added=15, removed=0)


def test_a_link_counts_by_its_target():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as tar:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)

    assert worktree.files_in(buffer.getvalue()) == {"link": b"/etc/passwd"}


def test_at_most_500_files_are_named():
    after = snapshot(**{f"f{number:04}": b"x\n" for number in range(600)})

    changes = changed(snapshot(), after)

    assert len(changes.files) == 500
    assert changes.added == 600
