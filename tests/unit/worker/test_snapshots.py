"""A snapshot is read as what an enemy could have sent; nothing of it is unpacked."""

from __future__ import annotations

import io
import tarfile

import pytest

from zubble_queue.contracts.sandbox import MIB, SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_worker import snapshots
from zubble_worker.sizes import snapshot_bytes
from zubble_worker.snapshots import Item

LONG = "/".join(["folder"] * 40) + "/file"


def tar(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=form) as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def test_files_links_and_long_names_are_read_and_folders_are_not_items():
    found = snapshots.read(
        tar(
            (member("a", mode=0o755), b"1\n"),
            (member("folder", tarfile.DIRTYPE), b""),
            (member(LONG), b"x" * 1_000),
            (member("link", tarfile.SYMTYPE, "/" + LONG), b""),
        )
    )

    assert found == {
        b"a": Item(b"1\n", executable=True),
        LONG.encode(): Item(b"x" * 1_000),
        b"link": Item(b"/" + LONG.encode(), is_link=True),
    }


@pytest.mark.parametrize(
    "name", ["../up", "/etc/passwd", "a/../../b", "a//b", "./a", ""], ids=lambda name: name or "empty"
)
def test_a_path_that_leads_out_is_refused(name):
    with pytest.raises(SandboxUnavailable, match="leads out"):
        snapshots.read(tar((member(name), b"")))


@pytest.mark.parametrize(
    "kind", [tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE]
)
def test_another_kind_of_entry_is_refused(kind):
    with pytest.raises(SandboxUnavailable, match="entry of kind"):
        snapshots.read(tar((member("a", kind, "target"), b"")))


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (124, b"-1\0", "a number that is none|checksum"),
        (124, b"77777777777\0", "ends within a file"),
        (148, b"000000\0 ", "checksum"),
        (124, b"\x80" + b"\xff" * 11, "number that is none"),
    ],
)
def test_a_header_that_lies_is_refused(at, value, problem):
    data = bytearray(tar((member("a"), b"1\n")))
    data[at : at + len(value)] = value
    if at != 148:
        data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))

    with pytest.raises(SandboxUnavailable, match=problem):
        snapshots.read(bytes(data))


def test_a_snapshot_that_was_cut_is_refused():
    whole = tar((member("a"), b"x" * 2_000))

    with pytest.raises(SandboxUnavailable, match="ends within a file"):
        snapshots.read(whole[:1_500])
    with pytest.raises(SandboxUnavailable, match="ends too early"):
        snapshots.read(whole[:100])


@pytest.mark.parametrize(("work_mb", "most_mb"), [(1, 1.25), (256, 320), (10_240, 512)])
def test_a_worker_copies_no_more_than_it_can_hold(work_mb, most_mb):
    spec = SandboxSpec("name", "owner", work_bytes=work_mb * MIB)

    assert snapshot_bytes(spec) == most_mb * MIB


def test_what_is_written_has_no_owner_no_time_no_link_and_two_modes():
    tree = {b"b": Item(b"2", executable=True), b"a\xff": Item(b"1"), b"l": Item(b"/etc", is_link=True)}

    data = snapshots.write(tree)

    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
    assert [(one.name.encode("utf-8", "surrogateescape"), one.mode) for one in members] == [
        (b"a\xff", 0o644),
        (b"b", 0o755),
    ]
    assert {(one.uid, one.gid, one.mtime, one.uname) for one in members} == {(0, 0, 0, "")}
    assert data == snapshots.write(tree)
