"""Attacks 24 to 26, 28 to 31, 62, 63: output that floods or lies, commands that do not want to end."""

# Looking at /proc of the host blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import MIB, Command
from zubble_sandbox import wire

from .sizes import FLOOD_MIB

KEPT = 131_072 + 200


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", ["", ">&2", "& head -c {0} /dev/zero >&2; wait"])
async def test_a_flood_of_output_is_counted_and_costs_no_memory(box, host, where):
    size = FLOOD_MIB * MIB
    before = resident_bytes()
    supervisor = Path(f"/proc/{box.supervisor}/status")
    result = await box.sh(f"head -c {size} /dev/zero {where.format(size)}", timeout_seconds=600.0)
    assert result.ok
    assert {result.stdout_bytes, result.stderr_bytes} <= {0, size}
    assert result.stdout_bytes + result.stderr_bytes >= size
    assert result.truncated
    assert len(result.stdout) + len(result.stderr) < 2 * KEPT
    assert resident_bytes() - before < 32 * MIB
    peak = next(line for line in supervisor.read_text().splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 40_000, "the supervisor keeps its memory too"


async def test_endless_output_is_stopped_by_the_deadline(box):
    result = await box.sh("yes", timeout_seconds=0.5)
    assert result.timed_out
    assert result.truncated
    assert result.stdout.startswith(b"y\ny\n")


async def test_one_line_without_end_is_kept_by_its_two_ends(box):
    size = 64 * MIB
    result = await box.sh(f"printf start; head -c {size} /dev/zero | tr '\\0' a; printf end")
    assert result.stdout_bytes == size + 8
    assert result.stdout.startswith(b"starta")
    assert result.stdout.endswith(b"aend")
    assert b"[zubble: %d bytes left out]" % (size + 8 - 131_072) in result.stdout


@pytest.mark.parametrize(
    "raw",
    [
        b"\0" * 1000,
        b"\xff\xfe\x80",
        b"\x1b]0;title\x07\x1b[2J\x1b[31m",
        b"a\rb\r" * 1000,
        b"\xe2\x80\xae",
        b"\r\n\r\n",
    ],
)
async def test_strange_bytes_arrive_as_they_were(box, raw):
    await box.write("raw", raw)
    result = await box.sh("cat raw; cat raw >&2")
    assert (result.stdout, result.stderr) == (raw, raw)


@pytest.mark.parametrize(
    "lie",
    [
        wire.frame(wire.OK, 2, wire.pack(b"exit", b"0", b"0", b"0", b"", b"", b"0", b"", b"")),
        wire.frame(wire.FAILED, 2, wire.pack(b"value", b"0", b"lie")),
        b'{"exit_code": 0, "signal": null, "timed_out": false}\n',
        b"\nexit code 0\n<completed-sentinel-value-0>\nEXITCODESTART0EXITCODEEND\n",
        b"\n[zubble: 1000000 bytes left out]\n",
    ],
)
async def test_output_that_imitates_a_result_is_output(box, lie):
    await box.write("lie", lie)
    result = await box.sh("cat lie; cat lie >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr, result.truncated) == (3, lie, lie, False)


@pytest.mark.parametrize(
    "command",
    [
        "trap '' TERM INT HUP QUIT; while :; do :; done",
        "trap '' TERM; sleep 1000 & wait; sleep 1000",
        "kill -STOP $$",
        "sleep 1000 & kill -STOP $!; wait",
        "setsid -w sleep 1000",
        "exec >/dev/null 2>&1; sleep 1000",
        "exec 1>&- 2>&-; sleep 1000",
    ],
)
async def test_a_deadline_is_kept_whatever_the_command_does(box, host, command):
    result = await box.sh(command, timeout_seconds=0.4)
    assert (result.timed_out, result.exit_code, result.signal) == (True, None, None)
    assert result.seconds < 0.4 + 5.0
    assert len(box.processes) == 1, "only the supervisor is left"
    assert await box.out("echo on") == "on\n"


TWICE_FORKED = """
import os
if os.fork(): os._exit(0)
os.setsid()
if not os.fork(): os.execlp("sleep", "sleep", "1000")
"""


@pytest.mark.parametrize(
    "daemon",
    [
        "setsid -f sleep 1000",
        "nohup sleep 1000 >/dev/null 2>&1 &",
        "(sleep 1000 &) &",
        "setsid sh -c 'sleep 1000 & disown' &",
        "sh -c 'trap \"\" TERM HUP; setsid sleep 1000 &' &",
        f"python3 -I -S -c '{TWICE_FORKED}'",
    ],
)
async def test_no_daemon_survives_its_command(box, host, daemon):
    running = asyncio.create_task(box.sh(f"{daemon}\nsleep 0.5"))
    await host.wait_until(lambda: len(box.processes) > 2, "control: the daemon ran")
    assert (await running).ok
    assert len(box.processes) == 1


async def test_a_daemon_that_holds_the_output_does_not_hold_the_result(box):
    result = await box.sh("echo before; sleep 1000 & echo after")
    assert result.ok
    assert result.stdout == b"before\nafter\n"
    assert result.seconds < 30.0


@pytest.mark.parametrize(
    "command",
    [
        "cat",
        "read line",
        "python3 -c 'input()'",
        "sh -i",
        "bash -i",
        "more /etc/passwd",
        "less /etc/passwd",
        "ssh a@b",
        "sudo true",
        "su",
        "passwd",
        "python3",
        "git commit",
        "top -b -n 1",
    ],
)
async def test_a_command_that_asks_gets_no_answer_and_ends(box, command):
    result = await box.sh(command, timeout_seconds=20.0)
    assert not result.timed_out


KILL_YOURSELF = """
import os, signal, sys
number = int(sys.argv[1])
if number != signal.SIGKILL:
    signal.signal(number, signal.SIG_DFL)
os.kill(os.getpid(), number)
"""


async def test_exit_signal_and_timeout_are_never_mixed(box):
    for code in (0, 1, 2, 124, 126, 127, 128, 130, 137, 143, 255):
        result = await box.sh(f"exit {code}")
        assert (result.exit_code, result.signal, result.timed_out, result.oom) == (code, None, False, False)
    for number in set(signal.Signals) - {
        signal.SIGSTOP,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGCONT,
        signal.SIGCHLD,
        signal.SIGURG,
        signal.SIGWINCH,
    }:
        result = await box.exec(Command(("python3", "-I", "-S", "-c", KILL_YOURSELF, str(int(number)))))
        assert (result.exit_code, result.signal, result.timed_out) == (None, number, False), number
    result = await box.sh("timeout 0.1 sleep 5; exit $?")
    assert (result.exit_code, result.timed_out) == (124, False)
    result = await box.sh("sleep 5", timeout_seconds=0.1)
    assert (result.exit_code, result.signal, result.timed_out) == (None, None, True)
