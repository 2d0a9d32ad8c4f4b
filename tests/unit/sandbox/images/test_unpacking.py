"""Layers of strangers: what they may do to the folder they are written to, and what they may not."""

from __future__ import annotations

import os
import stat
import tarfile

import pytest

from zubble_queue.errors import BadInput


def tree(root) -> dict[str, str]:
    """Path to content, target or nothing."""
    found = {}
    for path in root.rglob("*"):
        short = str(path.relative_to(root))
        if path.is_symlink():
            found[short] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[short + "/"] = ""
        else:
            found[short] = path.read_text()
    return found


def test_files_folders_and_links_are_made(make, pull):
    _, root = pull(
        make.tar(
            make.folder("./"),
            make.folder("opt"),
            make.member("opt/name", b"me"),
            make.link("lib", "usr/lib"),
            make.link("opt/absolute", "/opt/name"),
            make.hard_link("again", "opt/name"),
        )
    )
    assert tree(root) == {
        "opt/": "",
        "opt/name": "me",
        "lib": "-> usr/lib",
        "opt/absolute": "-> /opt/name",
        "again": "me",
    }


def test_files_that_each_machine_has_of_its_own_are_there_to_be_covered(make, pull):
    _, root = pull(
        make.tar(make.link("etc/resolv.conf", "../run/x"), make.member("etc/passwd", b"root:x:0:0\n"))
    )
    assert tree(root) == {
        "etc/": "",
        "etc/hosts": "",
        "etc/group": "",
        "etc/resolv.conf": "",
        "etc/passwd": "root:x:0:0\n",
    }


def test_folders_that_are_not_named_are_made(make, pull):
    _, root = pull(make.files({"a/b/c": b"x"}))
    assert tree(root) == {"a/": "", "a/b/": "", "a/b/c": "x"}


def test_a_later_layer_replaces_and_removes(make, pull):
    lower = make.tar(
        make.member("kept", b"1"),
        make.member("changed", b"1"),
        make.member("gone", b"1"),
        make.member("folder/gone", b"1"),
        make.member("was-folder/x", b"1"),
        make.member("was-file", b"1"),
        make.link("was-link", "kept"),
    )
    upper = make.tar(
        make.member(".wh.gone"),
        make.member(".wh.folder"),
        make.member(".wh.never-was"),
        make.member("nowhere/.wh.x"),
        make.member("changed", b"2"),
        make.member("was-folder", b"2"),
        make.folder("was-file"),
        make.member("was-link", b"2"),
    )
    _, root = pull(make.saved(lower, upper))
    assert tree(root) == {"kept": "1", "changed": "2", "was-folder": "2", "was-file/": "", "was-link": "2"}


@pytest.mark.parametrize("first", [True, False])
def test_an_opaque_folder_hides_what_is_below_and_not_what_is_beside_it(make, pull, first):
    lower = make.files({"a/old": b"1", "a/b/old": b"1", "a/b/both": b"1", "c": b"1"})
    mark = make.member("a/.wh..wh..opq")
    added = [make.member("a/new", b"2"), make.member("a/b/both", b"2")]
    upper = make.tar(*([mark, *added] if first else [*added, mark]))
    _, root = pull(make.saved(lower, upper))
    assert tree(root) == {"a/": "", "a/new": "2", "a/b/": "", "a/b/both": "2", "c": "1"}


def test_a_file_that_is_removed_and_made_in_one_layer_is_there(make, pull):
    upper = make.tar(make.member("x", b"2"), make.member(".wh.x"))
    _, root = pull(make.saved(make.files({"x": b"1"}), upper))
    assert tree(root) == {"x": "2"}


def test_a_layer_writes_through_a_folder_that_is_a_link_inside(make, pull):
    lower = make.tar(make.folder("usr/lib"), make.link("lib", "usr/lib"), make.link("abs", "/usr"))
    _, root = pull(make.saved(lower, make.files({"lib/a": b"2", "abs/b": b"2"})))
    assert tree(root) == {
        "usr/": "",
        "usr/lib/": "",
        "usr/lib/a": "2",
        "usr/b": "2",
        "lib": "-> usr/lib",
        "abs": "-> /usr",
    }


def test_a_link_to_the_outside_leads_nowhere_while_layers_are_written(make, pull, images, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for target in (str(outside), "../" * 20 + str(outside).lstrip("/")):
        lower = make.tar(make.link("out", target))
        with pytest.raises(BadInput):
            pull(make.saved(lower, make.files({"out/planted": b"!"})))
        lower = make.tar(make.folder(str(outside).lstrip("/")), make.link("out", target))
        pull(
            make.saved(lower, make.tar(make.member("out/planted", b"!"), make.hard_link("x", "out/planted")))
        )
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (("member", "/etc/x"), "absolute path '/etc/x'"),
        (("member", "a/../../x"), "leads out"),
        (("member", "../x"), "leads out"),
        (("folder", ".."), "leads out"),
        (("hard_link", "x", "../../etc/passwd"), "leads out"),
        (("hard_link", "x", "/etc/hostname"), "cannot be made|not there"),
        (("hard_link", "x", "a"), "not there|cannot be made"),
        (("link", "x", ""), "leads nowhere"),
        (("member", ".wh..."), "no name"),
        (("member", ".wh."), "no name"),
        (("member", "/".join(["d"] * 200)), "more than 128 folders"),
        (("member", "n" * 256), "more than 255 bytes"),
        (("member", "there/x"), "cannot be made"),
    ],
)
def test_a_member_that_breaks_a_rule_refuses_the_image(make, pull, nothing_left, member, reason):
    kind, *arguments = member
    bad = getattr(make, kind)(*arguments)
    with pytest.raises(BadInput, match=reason) as refused:
        pull(make.tar(make.member("there", b"x"), bad))
    assert len(refused.value.problems) == 1
    nothing_left()


def test_a_hard_link_to_the_host_is_none(make, pull, nothing_left):
    """What its text names is looked for in the image only."""
    with pytest.raises(BadInput):
        pull(make.tar(make.link("etc", "/etc"), make.hard_link("mine", "etc/passwd")))
    nothing_left()


def test_devices_and_fifos_are_left_out_and_counted(make, pull):
    image, root = pull(
        make.tar(
            make.member("dev/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
            make.member("dev/sda", type=tarfile.BLKTYPE, devmajor=8),
            make.member("pipe", type=tarfile.FIFOTYPE),
            make.member("file", b"x"),
        )
    )
    assert tree(root) == {"file": "x"}
    assert image.skipped == 3


def test_modes_are_made_harmless_and_readable(make, pull):
    _, root = pull(
        make.tar(
            make.member("su", b"x", mode=0o4755),
            make.member("secret", b"x", mode=0o600),
            make.member("tool", b"x", mode=0o2700),
            make.member("shared", b"x", mode=0o666),
            make.folder("root", mode=0o1700),
        )
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
    assert modes == {"su": 0o755, "secret": 0o644, "tool": 0o755, "shared": 0o644, "root": 0o755}
    assert (root / "su").stat().st_mtime == 1_700_000_000, "byte code of Python is only used when this agrees"


def test_names_of_any_bytes_are_kept(make, pull):
    name = os.fsdecode(b"\xff-\n-\x1b[31m- -rf")
    _, root = pull(make.files({name: b"x"}))
    assert [path.name for path in root.iterdir()] == [name]


def test_an_image_that_is_too_large_is_refused(make, pull, monkeypatch):
    monkeypatch.setattr("zubble_sandbox.images.store.MAX_BYTES", 1_000)
    pull(make.files({"a": b"x" * 600, "b": b"x" * 400}))
    with pytest.raises(BadInput, match="larger than the 1000 bytes"):
        pull(make.files({"a": b"x" * 600, "b": b"x" * 401}))


def test_a_sparse_file_counts_as_what_it_would_become(make, pull, nothing_left, monkeypatch):
    monkeypatch.setattr("zubble_sandbox.images.store.MAX_BYTES", 1_000_000)
    info, _ = make.member("bomb", b"", type=tarfile.GNUTYPE_SPARSE)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % 2**40
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    with pytest.raises(BadInput, match="larger than"):
        pull(bytes(header) + bytes(1_024))
    nothing_left()


def test_too_many_entries_are_refused(make, pull, nothing_left, monkeypatch):
    monkeypatch.setattr("zubble_sandbox.images.unpacking.MAX_ENTRIES", 5)
    with pytest.raises(BadInput, match="more than 5 entries"):
        pull(make.files({str(n): b"" for n in range(6)}))
    nothing_left()
