"""Frames that no worker of ours sends, against the program built with sanitizers, inside a real sandbox.

ZUBBLE_FUZZ_SESSIONS sets how many supervisors are fed by the long test (400).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading

import pytest

from zubble_sandbox import wire
from zubble_sandbox.box import binary

FRAMES = 150
ISOLATED = (
    *(
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
    ),
    *("--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
    *("--tmpfs", "/tmp", "--tmpfs", "/work", "--tmpfs", "/verify"),
    *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
)
RIGHT = (
    *(b"namespace", b"60", b"64", b"64", b"10000000", b"0", b"0", b"1", b"", b"0", b""),
    *(b"work", b"/work", b"tmp", b"/tmp", b"verify", b"/verify"),
)
SETUP = wire.frame(wire.SETUP, 1, wire.pack(*RIGHT))
TEXTS = (
    *(b"", b"/work", b"work", b"/work/a/b", b"a/b/c", b"..", b"/", b".", b"/tmp", b"/verify", b"a\0b", b"q"),
    *(
        b"x" * 255,
        b"x" * 300,
        b"/" * 5_000,
        b"a/" * 3_000,
        b"\xff\n",
        b"/bin/true",
        b"/bin/echo",
        b"PATH=/usr/bin",
    ),
    *(b"0", b"1", b"-1", b"0.05", b"1e308", b"nan", b"18446744073709551616", b"4096", b"one", b"two"),
    *(b"f 644 5 1", b"d 700 0 0", b"l 777 0 0", b"m 755 0 0", b"f 644 99999999999 1", b"f 644 -5 -1"),
)
BODIES = frozenset({wire.WRITE, wire.RESTORE})
LINE = frozenset({*BODIES, wire.CHUNK, wire.END})


def sensible(dice: random.Random) -> tuple[int, list[bytes]]:
    """A request as it should be."""
    path = dice.choice((b"a", b"a/b", b"/work/c", b"a/b/c/d", b"/tmp/x"))
    command = [dice.choice((b"one", b"two", b"%d" % dice.getrandbits(20))), b"0.1", b"/work"]
    return dice.choice((
        (wire.EXEC, [*command, b"2", b"/bin/echo", b"x" * dice.randrange(2_000), b"A=B"]),
        (wire.EXEC, [*command, b"3", b"sh", b"-c", b"head -c 300000 /dev/zero; sleep 0.05 & ", b"PATH=/bin"]),
        (wire.WAIT, [b"one", b"%d" % dice.randrange(99), b"0"]),
        (wire.KILL, [dice.choice((b"", b"one"))]),
        *((kind, []) for kind in (wire.FREEZE, wire.THAW, wire.PING)),
        (wire.READ, [path, b"%d" % dice.randrange(1_000_000)]),
        (wire.WRITE, [path, b"1"]),
        (wire.LIST, [b"/work", b"%d" % dice.randrange(50), b"1"]),
        (wire.SNAPSHOT, [b"%d" % dice.randrange(2_000_000)]),
        (wire.RESTORE, []),
    ))  # fmt: skip


def request(dice: random.Random) -> tuple[int, bytes]:
    """Sensible, of pieces that are, or noise."""
    kind, fields = sensible(dice)
    if dice.random() < 0.6:
        for _ in range(dice.randrange(3)):
            fields.insert(dice.randrange(len(fields) + 1), dice.choice(TEXTS))
        if fields and dice.random() < 0.3:
            fields.pop(dice.randrange(len(fields)))
        if fields and dice.random() < 0.5:
            fields[dice.randrange(len(fields))] = dice.choice(TEXTS)
    payload = bytearray(wire.pack(*fields))
    if dice.random() < 0.2:
        for _ in range(dice.randrange(1, 4)):
            if payload:
                payload[dice.randrange(len(payload))] = dice.randrange(256)
    if dice.random() < 0.05:
        payload = bytearray(dice.randbytes(dice.randrange(200)))
    if dice.random() < 0.03:
        kind = dice.choice([other for other in range(256) if other not in LINE])
    return kind, bytes(payload)


def body(dice: random.Random) -> bytes:
    """Records with content, and what is none."""
    records = b"".join(
        wire.pack(dice.choice((b"a", b"a/b", b"z", dice.choice(TEXTS))), text, dice.choice(TEXTS))
        + dice.randbytes(5 if text.startswith(b"f") else 0)
        for text in dice.choices(
            (b"f 644 5 1", b"d 700 0 0", b"l 777 0 0", b"m 755 0 0", dice.choice(TEXTS)), k=6
        )
    )
    return dice.choice((records, records[: dice.randrange(len(records))], dice.randbytes(300_000), b""))


def session(dice: random.Random) -> bytes:
    sent = bytearray()
    for call in range(2, 2 + FRAMES):
        kind, payload = request(dice)
        sent += wire.frame(kind, call, payload)
        if kind in BODIES:
            sent += b"".join(wire.body_frames(call, (body(dice),)))
    if dice.random() < 0.5:
        sent += dice.randbytes(40)
    return bytes(sent)


def beginning(dice: random.Random) -> bytes:
    """A setup that is not right, and more."""
    fields = list(RIGHT)
    for _ in range(dice.randrange(1, 4)):
        fields[dice.randrange(1, len(fields))] = dice.choice(TEXTS)
    setup = wire.frame(wire.SETUP, 1, wire.pack(*fields))
    return setup + session(dice) if dice.random() < 0.7 else dice.randbytes(60)


@pytest.fixture
def feed(program):
    """Feed a supervisor that is process 1 of a sandbox: its exit code, complaints and kinds of answers."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("bwrap is not installed")
    user = (binary(), "enter", "--uid", "60999", "--") if os.geteuid() == 0 else ()

    def feed(data: bytes) -> tuple[int, bytes, list[int]]:
        ours, theirs = socket.socketpair()
        with ours, theirs, program.open("rb") as code, tempfile.TemporaryFile() as complaint:
            inside = (f"/proc/self/fd/{code.fileno()}", "supervise", "--fd", str(theirs.fileno()), "mark")
            process = subprocess.Popen(
                (*user, bwrap, *ISOLATED, "--", *inside),
                stdin=subprocess.DEVNULL,
                stdout=complaint,
                stderr=complaint,
                pass_fds=(code.fileno(), theirs.fileno()),
                env={"ASAN_OPTIONS": "detect_leaks=0"},
            )
            theirs.close()
            answers: list[int] = []
            reader = threading.Thread(target=read_answers, args=(ours, answers))
            reader.start()
            with contextlib.suppress(OSError):  # it has hung up
                ours.sendall(data)
                ours.shutdown(socket.SHUT_WR)
            try:
                code_of_exit = process.wait(timeout=60)
            finally:
                process.kill()
                reader.join()
            complaint.seek(0)
            return code_of_exit, complaint.read(), answers

    return feed


def read_answers(sock: socket.socket, kinds: list[int]) -> None:
    """The kinds of all answers, in order."""
    with contextlib.suppress(OSError), sock.makefile("rb") as stream:
        while header := stream.read(wire.HEADER_BYTES):
            length, kind, _ = wire.parse_header(header)
            stream.read(length)
            kinds.append(kind)


def test_what_is_fed_is_understood(feed):
    """The control: most of it is done, and none of it ends the line."""
    dice = random.Random(1)
    requests = [sensible(dice) for _ in range(FRAMES)]
    sent = SETUP
    for call, (kind, fields) in enumerate(requests, 2):
        sent += wire.frame(kind, call, wire.pack(*fields))
        sent += wire.frame(wire.END, call) if kind in BODIES else b""
    code, complaint, answers = feed(sent)
    assert (code, complaint) == (0, b"")
    assert answers.count(wire.OK) > FRAMES / 3


@pytest.mark.parametrize("seed", range(12))
def test_no_session_breaks_it(feed, seed):
    dice = random.Random(seed)
    data = SETUP + session(dice) if seed % 3 else beginning(dice)
    assert feed(data)[:2] == (0, b"")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_no_session_of_many_breaks_it(feed):
    first = random.SystemRandom().randrange(2**31)
    for seed in range(first, first + int(os.environ.get("ZUBBLE_FUZZ_SESSIONS", "400"))):
        dice = random.Random(seed)
        data = SETUP + session(dice) if seed % 3 else beginning(dice)
        assert feed(data)[:2] == (0, b""), f"seed {seed}"
