"""Promises about commands."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final

from zubble_queue.contracts.sandbox import (
    MIB,
    OUTPUT_HEAD_BYTES,
    OUTPUT_TAIL_BYTES,
    Command,
    SandboxProvider,
)
from zubble_sandbox.conformance.base import PATIENCE_SECONDS, exists, opened, output, promise, run, until

KEPT: Final = OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES
_SIGNALS: Final = ("HUP", "INT", "QUIT", "ILL", "ABRT", "BUS", "FPE", "KILL", "SEGV", "PIPE", "ALRM", "TERM")
_LEFT_BEHIND: Final = (
    "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; done | grep -c '[s]leep 98765'"
)


@promise
async def an_exit_code_is_reported_as_it_is(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        for code in (0, 1, 2, 124, 126, 127, 130, 137, 143, 255):
            result = await run(sandbox, f"exit {code}")
            assert (result.exit_code, result.signal, result.timed_out) == (code, None, False), result


@promise
async def death_by_a_signal_is_no_exit_code(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        for name in _SIGNALS:
            result = await run(sandbox, f"kill -{name} $$")
            assert (result.exit_code, result.signal) == (None, signal.Signals[f"SIG{name}"]), (name, result)
            assert not result.timed_out


@promise
async def a_program_that_is_not_there_is_127(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        for program in ("no-such-program", "./no-such-program"):
            result = await sandbox.exec(Command((program,)))
            assert result.exit_code == 127, result
            assert program.encode() in result.stderr


@promise
async def a_command_that_cannot_be_started_is_126(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await sandbox.write("data", b"no program")
        for command in (
            Command(("./data",)),
            Command(("echo", "a\0b")),
            Command(("echo", "a" * 5 * MIB)),
            Command(("echo",), env={"A=B": "c"}),
            Command(()),
        ):
            result = await sandbox.exec(command)
            assert result.exit_code == 126, result
            assert result.stderr
        assert await output(sandbox, "echo on") == "on\n"


@promise
async def standard_input_is_at_its_end(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        assert await output(sandbox, "cat; read -r line || echo end") == "end\n"


@promise
async def the_two_streams_are_kept_apart(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(sandbox, "echo out; echo err >&2; exit 4")
        assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 4)


@promise
async def arguments_arrive_byte_for_byte(provider: SandboxProvider) -> None:
    arguments = (
        "--",
        "-rf",
        "",
        " a  b ",
        "$HOME",
        "`id`",
        "line\nline",
        "\u00e9\u4e2d",
        os.fsdecode(b"\xff\xfe"),
        "\x1b[31m",
    )
    async with opened(provider) as sandbox:
        result = await sandbox.exec(Command(("printf", "%s\\0", *arguments)))
        assert result.stdout == b"".join(os.fsencode(argument) + b"\0" for argument in arguments), result


@promise
async def the_environment_is_small_and_has_what_the_command_adds(provider: SandboxProvider) -> None:
    os.environ["ZUBBLE_CONFORMANCE_PLANTED"] = "planted"
    try:
        async with opened(provider) as sandbox:
            result = await sandbox.exec(Command(("env",), env={"ADDED": "a b\nc", "TERM": "other"}))
    finally:
        del os.environ["ZUBBLE_CONFORMANCE_PLANTED"]
    lines = result.stdout.decode().splitlines()
    names = {line.partition("=")[0] for line in lines if "=" in line}
    assert {"PATH", "HOME", "LANG", "ZUBBLE_WORK", "ZUBBLE_VERIFY", "ADDED"} <= names, names
    assert "TERM=other" in lines
    assert "ADDED=a b" in lines
    assert b"planted" not in result.stdout


@promise
async def a_command_starts_in_the_folder_it_names(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        work = (await output(sandbox, "pwd -P")).strip()
        assert (await output(sandbox, "mkdir -p a/b; cd $ZUBBLE_WORK && pwd -P")).strip() == work
        for cwd in ("a/b", "/work/a/b"):
            result = await sandbox.exec(Command(("pwd", "-P"), cwd=cwd))
            assert result.stdout.decode().strip() == f"{work}/a/b", result


@promise
async def a_folder_outside_is_refused(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(sandbox, "ln -s / out; ln -s .. up")
        for cwd in ("/", "/etc", "/proc", "..", "/work/../etc", "out", "out/usr", "up", "missing"):
            result = await sandbox.exec(Command(("pwd",), cwd=cwd))
            assert result.exit_code == 126, (cwd, result)
            assert not result.stdout


@promise
async def little_output_is_whole(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(sandbox, f"head -c {KEPT} /dev/zero | tr '\\0' x")
        assert result.stdout == b"x" * KEPT
        assert (result.stdout_bytes, result.truncated) == (KEPT, False)


@promise
async def one_byte_more_is_cut_in_the_middle(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(sandbox, f"printf a; head -c {KEPT - 1} /dev/zero | tr '\\0' x; printf z")
        gap = b"\n[zubble: 1 bytes left out]\n"
        assert (
            result.stdout
            == b"a" + b"x" * (OUTPUT_HEAD_BYTES - 1) + gap + b"x" * (OUTPUT_TAIL_BYTES - 1) + b"z"
        )
        assert (result.stdout_bytes, result.truncated) == (KEPT + 1, True)


@promise
async def large_output_on_both_streams_is_counted_and_bounded(provider: SandboxProvider) -> None:
    size = int(os.environ.get("ZUBBLE_CONFORMANCE_OUTPUT_MIB", "200")) * MIB
    async with opened(provider) as sandbox:
        result = await run(sandbox, f"head -c {size} /dev/zero & head -c {size} /dev/zero >&2; wait; exit 7")
        assert (result.stdout_bytes, result.stderr_bytes, result.exit_code) == (size, size, 7)
        assert result.truncated
        assert len(result.stdout) < KEPT + 100
        assert len(result.stderr) < KEPT + 100


@promise
async def a_huge_line_keeps_both_its_ends(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(sandbox, f"printf begin; head -c {50 * MIB} /dev/zero | tr '\\0' x; printf end")
        assert result.stdout.startswith(b"beginxxx")
        assert result.stdout.endswith(b"xxxend")
        assert result.stdout_bytes == 50 * MIB + len("beginend")


@promise
async def bytes_that_are_no_text_pass_unchanged(provider: SandboxProvider) -> None:
    every = bytes(range(256))
    async with opened(provider) as sandbox:
        await sandbox.write("bytes", every * 4)
        assert (await run(sandbox, "cat bytes")).stdout == every * 4


@promise
async def a_background_child_neither_delays_the_result_nor_lives_on(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(sandbox, "sleep 98765 & echo started")
        assert (result.exit_code, result.stdout) == (0, b"started\n")
        assert (await run(sandbox, _LEFT_BEHIND)).stdout == b"0\n"


@promise
async def a_daemon_with_a_session_of_its_own_is_gone_afterwards(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(
            sandbox,
            "trap '' HUP TERM; (setsid sh -c 'sleep 98765; :' >/dev/null 2>&1 &) ; sleep 0.2; echo on",
        )
        assert result.stdout == b"on\n", result
        assert (await run(sandbox, _LEFT_BEHIND)).stdout == b"0\n"


@promise
async def a_command_past_its_deadline_is_killed_with_all_it_started(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(
            sandbox, "trap '' TERM INT HUP; setsid sleep 98765 & echo begun; sleep 98765", timeout_seconds=0.5
        )
        assert (result.timed_out, result.exit_code, result.signal) == (True, None, None)
        assert result.stdout == b"begun\n"
        assert 0.5 <= result.seconds < PATIENCE_SECONDS
        assert (await run(sandbox, _LEFT_BEHIND)).stdout == b"0\n"


@promise
async def a_command_that_stops_itself_meets_its_deadline(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        assert (await run(sandbox, "kill -STOP $$; echo never", timeout_seconds=0.5)).timed_out
        assert await output(sandbox, "echo on") == "on\n"


@promise
async def commands_of_one_sandbox_run_one_after_the_other(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        texts = [f"echo begin {n} >>log; sleep 0.1; echo end {n} >>log" for n in range(4)]
        await asyncio.gather(*(run(sandbox, text) for text in texts))
        lines = (await sandbox.read("log")).decode().splitlines()
        pairs = list(zip(lines[::2], lines[1::2], strict=True))
        assert all(begin.replace("begin", "end") == end for begin, end in pairs), lines
        assert len(pairs) == 4


@promise
async def a_cancelled_command_is_killed_and_the_sandbox_goes_on(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        running = asyncio.create_task(run(sandbox, "echo >started; sleep 98765"))
        await until(lambda: exists(sandbox, "started"), "the command has started")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (await run(sandbox, _LEFT_BEHIND)).stdout == b"0\n"


@promise
async def the_number_of_processes_is_limited(provider: SandboxProvider) -> None:
    async with opened(provider, pids=16) as sandbox:
        many = "i=0; while [ $i -lt 64 ]; do sleep 98765 & i=$((i+1)); done; exit 0"
        assert b"fork" in (await run(sandbox, many)).stderr.lower()
        assert await output(sandbox, "true & true & wait; echo on") == "on\n"


@promise
async def the_number_of_open_files_is_limited(provider: SandboxProvider) -> None:
    async with opened(provider, open_files=300) as sandbox:
        assert await output(sandbox, "ulimit -Hn") == "300\n"


@promise
async def a_crash_leaves_no_core_file(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        result = await run(sandbox, "kill -SEGV $$")
        assert result.signal == signal.SIGSEGV
        assert await sandbox.list() == []
