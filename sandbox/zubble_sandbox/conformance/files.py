"""Promises about files, listings, fingerprints and snapshots."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from typing import Final

from zubble_queue.contracts.sandbox import MIB, Command, SandboxProvider
from zubble_sandbox.conformance.base import opened, output, promise, refused, run

_ODD_NAMES: Final = (
    "-rf",
    " ",
    "a\nb",
    "\x1b[31mred",
    os.fsdecode(b"\xff\xfe"),
    "n" * 255,
    "...",
    "\u4e2d\u6587",
    "*",
)


@promise
async def what_is_written_is_read_back(provider: SandboxProvider) -> None:
    data = os.urandom(3 * MIB + 1)
    async with opened(provider) as sandbox:
        await sandbox.write("deep/er/file", b"old")
        await sandbox.write("/work/deep/er/file", data)
        assert await sandbox.read("deep/er/file") == data
        assert await output(sandbox, "wc -c <deep/er/file") == f"{len(data)}\n"
        await sandbox.write("empty", b"")
        assert await sandbox.read("empty") == b""


@promise
async def a_script_is_executable_when_asked(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await sandbox.write("script", b"#!/bin/sh\necho ran\n", executable=True)
        assert await output(sandbox, "./script") == "ran\n"
        await sandbox.write("script", b"#!/bin/sh\necho ran\n")
        assert (await sandbox.exec(Command(("./script",)))).exit_code == 126


@promise
async def reading_says_what_is_wrong(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(
            sandbox, "mkdir folder; mkfifo fifo; head -c 1000 /dev/zero >file; truncate -s 30M sparse"
        )
        with refused(FileNotFoundError):
            await sandbox.read("missing")
        with refused(FileNotFoundError):
            await sandbox.read("missing/file")
        with refused(NotADirectoryError):
            await sandbox.read("file/below")
        with refused(IsADirectoryError):
            await sandbox.read("folder")
        with refused(OSError):
            await sandbox.read("fifo")
        for path, limit in (("file", 999), ("sparse", MIB)):
            with refused(ValueError):
                await sandbox.read(path, max_bytes=limit)
        assert len(await sandbox.read("file", max_bytes=1000)) == 1000


@promise
async def no_link_is_followed_and_no_path_leads_out(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(
            sandbox,
            "echo inside >file; ln -s / out; ln -s file alias; ln -s /etc/passwd passwd; ln -s ../.. up",
        )
        for path in (
            "out/etc/passwd",
            "alias",
            "passwd",
            "up/etc/passwd",
            "../etc/passwd",
            "/etc/passwd",
            "/proc/self/environ",
            "/dev/zero",
            "/work/../etc/passwd",
            "a\0b",
        ):
            with refused(OSError):
                await sandbox.read(path)
            with refused(OSError):
                await sandbox.write(path, b"x")
        for folder in ("out", "up", "/", "..", "/proc"):
            with refused(OSError):
                await sandbox.list(folder)
        assert await sandbox.read("file") == b"inside\n"


@promise
async def only_the_work_tree_is_written(provider: SandboxProvider) -> None:
    async with opened(provider, readonly_files={"/verify/check": b"check"}) as sandbox:
        for path in ("/verify/check", "/verify/new", "/tmp/new", "/usr/new", "."):  # noqa: S108 - in the sandbox
            with refused(OSError):
                await sandbox.write(path, b"x")
        assert await sandbox.read("/verify/check") == b"check"


@promise
async def odd_names_make_the_round_trip(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        for name in _ODD_NAMES:
            await sandbox.write(f"odd/{name}", os.fsencode(name))
        listed = [entry.path for entry in await sandbox.list("odd")]
        assert sorted(listed, key=os.fsencode) == sorted(_ODD_NAMES, key=os.fsencode)
        await sandbox.restore(await sandbox.snapshot())
        for name in _ODD_NAMES:
            assert await sandbox.read(f"odd/{name}") == os.fsencode(name)


@promise
async def a_name_that_is_too_long_is_an_error(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        with refused(OSError):
            await sandbox.write("n" * 256, b"")


@promise
async def a_listing_is_sorted_complete_and_limited(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(sandbox, "mkdir -m 750 a; echo 12 >a/x; echo >a-b; ln -s a l; mkfifo p; chmod 640 a-b")
        entries = await sandbox.list()
        assert [(entry.path, entry.kind) for entry in entries] == [
            ("a", "directory"),
            ("a-b", "file"),
            ("a/x", "file"),
            ("l", "symlink"),
            ("p", "other"),
        ]
        assert [entry.mode for entry in entries[:2]] == [0o750, 0o640]
        assert entries[2].size == 3
        assert await sandbox.list(limit=2) == entries[:2]
        assert [entry.path for entry in await sandbox.list("a")] == ["x"]


@promise
async def a_fingerprint_changes_with_the_tree_and_only_then(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(sandbox, "mkdir d; echo one >d/f; echo two >g")
        known = [await sandbox.fingerprint()]
        await output(sandbox, "cat d/f g; ls -R; sleep 0.02")
        await sandbox.write(".zubble/journal.json", b"{}")
        assert await sandbox.fingerprint() == known[0]
        for change in ("echo 1ne >d/f", "chmod 600 g", "mv g h", "rm h", "mkdir e", "ln -s d s", "rmdir e"):
            await output(sandbox, change)
            known.append(await sandbox.fingerprint())
        assert len(set(known)) == len(known), known


@promise
async def a_snapshot_restores_the_tree_elsewhere(provider: SandboxProvider) -> None:
    look = (
        "{ find . -type f -printf '%p %m %s %Ts\\n'; find . ! -type f -printf '%p %y %m %l\\n'; }"
        " | grep -v .zubble | sort; cat src/a"
    )
    long = "long/" + "/".join("x" * 60 for _ in range(5))
    async with opened(provider) as first, opened(provider) as second:
        await output(
            first, f"mkdir -p src/empty {long}; echo a >src/a; echo b >{long}/b; ln -s ../{'t' * 150} src/l"
        )
        await output(first, "touch -d 2001-02-03 src/a; chmod 751 src/a; chmod 555 src")
        await output(first, "mkfifo pipe; mkdir .zubble; echo >.zubble/journal.json")
        snapshot = await first.snapshot()
        assert snapshot == await first.snapshot()
        await output(second, "echo left over >over; mkdir -p src/a/b; chmod 0 src/a")
        await second.restore(snapshot)
        await output(first, "rm pipe")
        assert await output(first, look) == await output(second, look)


@promise
async def a_snapshot_holds_files_folders_and_links_only(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(sandbox, "mkfifo p; echo x >f; ln f hard; ln -s /etc l; mkdir d; chmod 4777 f")
        with tarfile.open(fileobj=io.BytesIO(await sandbox.snapshot())) as tar:
            members = {member.name: member for member in tar.getmembers()}
        assert sorted(members) == ["d", "f", "hard", "l"]
        assert all(members[name].isreg() and members[name].size == 2 for name in ("f", "hard"))
        assert members["f"].mode == 0o777
        assert members["l"].issym()


@promise
async def a_snapshot_over_its_limit_is_refused(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(sandbox, "head -c 100000 /dev/zero >file")
        with refused(ValueError):
            await sandbox.snapshot(max_bytes=100_000)
        assert len(await sandbox.snapshot(max_bytes=MIB)) < 110_000
        await output(sandbox, "truncate -s 30M sparse")
        with refused(ValueError):
            await sandbox.snapshot(max_bytes=16 * MIB)


def _tar(*members: tuple[str, bytes, str]) -> bytes:
    """A tar by the standard library: name, kind and, for a link, its target."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, target, 0o755
            info.size = 1 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(b"x"))
    return file.getvalue()


def _changed(tar: bytes, change: Callable[[bytearray], object]) -> bytes:
    data = bytearray(tar)
    change(data)
    return bytes(data)


def _hostile_tars() -> dict[str, bytes]:
    regular, link = tarfile.REGTYPE, tarfile.SYMTYPE
    good = _tar(("f", regular, ""))
    return {
        "absolute": _tar(("/var/escaped", regular, "")),
        "parent": _tar(("../escaped", regular, "")),
        "parent inside": _tar(("a/../../escaped", regular, "")),
        "through a link": _tar(("l", link, "/var"), ("l/escaped", regular, "")),
        "over a link": _tar(("l", link, "/var/escaped"), ("l", regular, "")),
        "hard link": _tar(("h", tarfile.LNKTYPE, "/etc/passwd")),
        "character device": _tar(("c", tarfile.CHRTYPE, "")),
        "block device": _tar(("b", tarfile.BLKTYPE, "")),
        "fifo": _tar(("p", tarfile.FIFOTYPE, "")),
        "twice": _tar(("f", regular, ""), ("f", regular, "")),
        "through a file": _tar(("f", regular, ""), ("f/g", regular, "")),
        "ours": _tar((".zubble/journal.json", regular, "")),
        "cut": good[:700],
        "without its end": good[:1024],
        "checksum": _changed(good, lambda data: data.__setitem__(0, 0x67)),
        "no tar": b"x" * 10_000,
        "nothing": b"",
    }


@promise
async def a_hostile_snapshot_is_refused_and_leaves_nothing(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        for what, tar in _hostile_tars().items():
            try:
                with refused(ValueError):
                    await sandbox.restore(tar)
            except AssertionError as error:
                raise AssertionError(what) from error
            assert await sandbox.list() == [], what
        await sandbox.restore(_tar(("d", tarfile.DIRTYPE, ""), ("d/f", tarfile.REGTYPE, "")))
        assert await sandbox.read("d/f") == b"x"


@promise
async def a_snapshot_larger_than_the_place_is_an_error(provider: SandboxProvider) -> None:
    async with opened(provider) as large:
        await output(large, "head -c 8000000 /dev/urandom >file")
        snapshot = await large.snapshot()
        async with opened(provider) as same:
            await same.restore(snapshot)
            assert (await same.list())[0].size == 8_000_000


@promise
async def read_only_files_are_there_and_run(provider: SandboxProvider) -> None:
    files = {"/verify/check.sh": b"#!/bin/sh\necho checked\n", "/verify/data/in": b"1"}
    async with opened(provider, readonly_files=files) as sandbox:
        assert await output(sandbox, "$ZUBBLE_VERIFY/check.sh; cat $ZUBBLE_VERIFY/data/in") == "checked\n1"
        assert await sandbox.read("/verify/data/in") == b"1"
        assert [entry.path for entry in await sandbox.list("/verify")] == ["check.sh", "data", "data/in"]


@promise
async def read_only_files_cannot_be_changed(provider: SandboxProvider) -> None:
    async with opened(provider, readonly_files={"/verify/check": b"real"}) as sandbox:
        for attack in (
            "echo forged >$V",
            "chmod 777 $V",
            "rm -f $V",
            "mv $V $V.old",
            "ln -sf /dev/null $V",
            "touch $V.new",
        ):
            await run(sandbox, f"V=$ZUBBLE_VERIFY/check; {attack}")
            assert await sandbox.read("/verify/check") == b"real", attack
        assert [entry.path for entry in await sandbox.list("/verify")] == ["check"]


@promise
async def a_full_work_tree_refuses_and_keeps_what_it_had(provider: SandboxProvider) -> None:
    async with opened(provider, work_bytes=4 * MIB) as sandbox:
        await sandbox.write("kept", b"old")
        for size in (5 * MIB, 4 * MIB - 100):
            with refused(OSError):
                await sandbox.write("kept", bytes(size))
        assert [(entry.path, entry.size) for entry in await sandbox.list()] == [("kept", 3)]
        result = await run(sandbox, "head -c 3500000 /dev/zero >a; head -c 3500000 /dev/zero >b")
        assert b"No space" in result.stderr


@promise
async def trees_that_are_deep_or_closed_are_survived(provider: SandboxProvider) -> None:
    deep = "i=0; while [ $i -lt 400 ]; do mkdir d && cd -P d; i=$((i+1)); done; echo end >f"
    async with opened(provider) as sandbox:
        await output(sandbox, "mkdir -p shut/inner; echo >shut/inner/f; chmod 000 shut/inner shut")
        assert (await sandbox.list(limit=1))[0].path == "shut"
        await sandbox.snapshot()
        await run(sandbox, deep)
        assert len(await sandbox.list()) > 100
        await sandbox.fingerprint()
        await sandbox.restore(_tar(("f", tarfile.REGTYPE, "")))
        assert [entry.path for entry in await sandbox.list()] == ["f"]
