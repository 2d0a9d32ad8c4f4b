"""Walking and emptying trees."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zubble_sandbox.supervisor import files
from zubble_sandbox.supervisor import tree as trees

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


def paths(content, prefix=""):
    for name, inner in (content or {}).items():
        yield prefix + name
        yield from paths(inner, f"{prefix}{name}/")


@settings(suppress_health_check=list(HealthCheck), max_examples=60, deadline=None)
@given(content=FOLDERS)
def test_a_walk_visits_everything_in_the_order_of_its_paths(new_tree, content):
    tree = new_tree()
    build(tree.path, content)
    assert [entry.path.decode() for entry in trees.walk(tree.roots.work)] == sorted(paths(content))


def test_a_walk_names_the_folder_it_cannot_enter(tree):
    folder = tree.path
    for _ in range(trees.MAX_DEPTH + 20):
        folder = folder / "d"
        folder.mkdir()
    found = [entry.path.count(b"/") for entry in trees.walk(tree.roots.work)]
    assert max(found) == trees.MAX_DEPTH


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_walk_that_is_left_early_leaves_no_descriptor_open(tree):
    (tree.path / "a" / "b" / "c").mkdir(parents=True)
    before = open_descriptors()
    walking = trees.walk(tree.roots.work)
    for _ in range(3):
        next(walking)
    assert open_descriptors() > before
    walking.close()
    assert open_descriptors() == before


def test_only_so_many_entries_of_a_folder_are_looked_at(tree, monkeypatch):
    monkeypatch.setattr(trees, "MAX_FOLDER_ENTRIES", 10)
    for number in range(30):
        (tree.path / str(number)).touch()
    assert len(list(trees.walk(tree.roots.work))) == 10


def test_skipped_names_are_skipped_at_the_top_only(tree):
    (tree.path / ".zubble").mkdir()
    (tree.path / ".zubble" / "journal.json").touch()
    (tree.path / "a" / ".zubble").mkdir(parents=True)
    assert [entry.path for entry in trees.walk(tree.roots.work, skip=files.PRIVATE)] == [b"a", b"a/.zubble"]


def test_a_folder_of_any_depth_and_mode_is_emptied(tree):
    deep = os.open(tree.path, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=deep)
        inner = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    (tree.path / "shut" / "in").mkdir(parents=True)
    (tree.path / "shut" / "in" / "file").touch()
    (tree.path / "shut" / "in").chmod(0)
    (tree.path / "shut").chmod(0)
    trees.empty(tree.roots.work)
    assert list(tree.path.iterdir()) == []


def test_emptying_does_not_follow_links_and_keeps_what_is_to_be_kept(tree, tmp_path):
    (tree.path / "link").symlink_to(tmp_path)
    (tree.path / ".zubble").mkdir()
    (tree.path / ".zubble" / "journal.json").touch()
    trees.empty(tree.roots.work, keep=files.PRIVATE)
    assert (tmp_path / "outside").read_text() == "outside"
    assert [path.name for path in tree.path.rglob("*")] == [".zubble", "journal.json"]
    shutil.rmtree(tree.path)


@pytest.mark.parametrize(
    "path", [b"/", b"/etc", b"/proc/self", b"..", b"a/../..", b"/work/..", b"a\0b", b"/verify/x"]
)
def test_a_path_outside_the_roots_is_refused(tree, path):
    with pytest.raises(PermissionError):
        tree.roots.place(path)


def test_a_file_is_read_by_at_most_as_many_bytes_as_allowed(tree):
    (tree.path / "file").write_bytes(b"12345")
    assert files.read(tree.roots, b"file", 5) == b"12345"
    with pytest.raises(ValueError, match="larger than 4"):
        files.read(tree.roots, b"/work/file", 4)


def test_a_failed_write_leaves_the_old_file_and_no_other(tree, given):
    (tree.path / "file").write_text("old")

    class Broken(given):
        def read(self, size):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        files.write(tree.roots, b"file", Broken(b""), executable=False)
    assert [(path.name, path.read_text()) for path in tree.path.iterdir()] == [("file", "old")]


def test_names_like_those_used_for_emptying_do_not_disturb_it(tree):
    for number in range(3):
        (tree.path / "folder" / str(number) / "in").mkdir(parents=True)
        (tree.path / f".zubble-removed-{number}").touch()
    trees.empty(tree.roots.work)
    assert list(tree.path.iterdir()) == []
