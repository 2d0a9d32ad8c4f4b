"""The parts of a campaign: what it draws, what it reads, and what it can do to a wire and to a clock."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from benchmarks.chaos import aof, campaign, clocks
from benchmarks.chaos.faults import FAULTS
from benchmarks.chaos.ground import on_ground
from benchmarks.chaos.options import Options
from benchmarks.chaos.plan import MATRIX, SUBMITTING, draw
from benchmarks.chaos.tap import Tap, Trap
from benchmarks.chaos.work import task_lines

from .conftest import ROOT

SHA = b"0123456789abcdef0123456789abcdef01234567"


def test_a_plan_is_the_same_for_the_same_seed_and_another_for_another():
    assert draw(20, 1) == draw(20, 1)
    assert draw(20, 1) != draw(20, 2)


def test_a_plan_that_is_long_enough_holds_every_kind():
    assert set(draw(len(MATRIX), 3)) == set(MATRIX) == set(FAULTS)
    assert len(draw(200, 3)) == 200
    assert len(set(draw(5, 3))) == 5


def test_what_submits_more_work_comes_in_the_first_half():
    for seed in range(50):
        plan = draw(40, seed)
        assert SUBMITTING not in plan[20:]
        assert SUBMITTING in plan


def test_the_same_tasks_come_out_every_time_and_each_has_a_name_of_its_own():
    lines = task_lines(50)

    assert lines == task_lines(50)
    assert len({line["id"] for line in lines}) == 50


def test_an_append_only_file_is_read_to_the_last_whole_command():
    whole = b"#TS:1\r\n*2\r\n$3\r\nDEL\r\n$4\r\na\r\nb\r\n*1\r\n$5\r\nMULTI\r\n"

    assert list(aof.parsed(whole)) == [[b"DEL", b"a\r\nb"], [b"MULTI"]]
    for length in range(len(whole)):
        found = list(aof.parsed(whole[:length]))
        assert found == [[b"DEL", b"a\r\nb"], [b"MULTI"]][: len(found)]


def test_numbers_that_make_no_campaign_are_refused(capsys):
    with pytest.raises(SystemExit):
        Options.read(["--tasks", "0"], program="chaos", description="")
    assert "at least 1" in capsys.readouterr().err


def test_a_folder_that_holds_something_of_an_earlier_campaign_is_refused(tmp_path, capsys):
    (tmp_path / "redis.sock").touch()
    options = Options.read(["--keep", str(tmp_path)], program="chaos", description="")

    with pytest.raises(SystemExit) as left:
        on_ground(options, campaign.run)

    assert left.value.code == 2
    assert "is not empty" in capsys.readouterr().err
    assert [left.name for left in tmp_path.iterdir()] == ["redis.sock"]


def test_a_campaign_that_is_told_to_end_takes_everything_down_first():
    program = """
import asyncio
from benchmarks.chaos.ground import on_ground
from benchmarks.chaos.ground import on_ground
from benchmarks.chaos.options import Options

async def run(options, folder):
    try:
        print("up", flush=True)
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0.01)
        print("taken down", folder.is_dir(), flush=True)

on_ground(Options.read([], program="chaos", description=""), run)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"up\n"
        running.terminate()
        assert running.stdout.read() == b"taken down True\n"
    assert running.returncode == 130


def test_a_wrong_clock_is_wrong_by_ten_minutes_and_sleeps_as_long_as_others(tmp_path, missing_part):
    try:
        library = clocks.build(tmp_path)
    except clocks.Unskewable as reason:
        missing_part(str(reason))
    program = "import time; a = time.monotonic(); time.sleep(0.2); print(time.time(), time.monotonic() - a)"
    for seconds in (600, -600):
        environment = {**os.environ, **clocks.environment(library, seconds)}
        said = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
        now, slept = map(float, said.split())
        assert abs(now - time.time() - seconds) < 60
        assert 0.2 <= slept < 60


class Echo:
    """A server that answers every line with itself in capitals, behind a tap."""

    def __init__(self, folder):
        self.heard: list[bytes] = []
        self.path = folder / "server.sock"
        self.tap = Tap(folder / "tap.sock", self.path)

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        await self.tap.start()
        self.reader, self.writer = await asyncio.open_unix_connection(self.tap.url.removeprefix("unix://"))
        return self

    async def __aexit__(self, *exc_info):
        self.writer.close()
        await self.tap.stop()
        self._server.close()

    async def _serve(self, reader, writer):
        while line := await reader.readline():
            self.heard.append(line)
            writer.write(line.upper())
        writer.close()

    async def asked(self, line: bytes, seconds: float = 10.0) -> bytes:
        self.writer.write(line)
        return await asyncio.wait_for(self.reader.readline(), seconds)


@pytest.fixture
async def echo(tmp_path):
    async with Echo(tmp_path) as echo:
        yield echo


async def test_what_no_trap_waits_for_passes(echo):
    assert await echo.asked(b"evalsha " + SHA + b"\n") == b"EVALSHA " + SHA.upper() + b"\n"


@pytest.mark.parametrize(("side", "heard"), [("request", 0), ("reply", 1)])
async def test_a_trap_holds_one_command_on_its_side_and_names_the_process(echo, side, heard):
    caught = []
    trap = Trap(SHA, side, caught.append)
    catching = asyncio.create_task(echo.tap.catch(trap, 30))
    await asyncio.sleep(0)

    asking = asyncio.create_task(echo.asked(b"evalsha " + SHA + b"\n", 60))
    assert await catching
    assert caught == [os.getpid()]
    assert not asking.done()
    assert len(echo.heard) == heard

    trap.released.set()
    assert (await asking).startswith(b"EVALSHA")
    assert (await echo.asked(b"evalsha " + SHA + b"\n")).startswith(b"EVALSHA")


async def test_a_command_that_comes_in_pieces_is_caught_all_the_same(echo):
    trap = Trap(SHA, "request", lambda _: None)
    catching = asyncio.create_task(echo.tap.catch(trap, 30))
    for piece in (b"evalsha " + SHA[:13], SHA[13:] + b"\n"):
        echo.writer.write(piece)
        await echo.writer.drain()
        await asyncio.sleep(0.05)

    assert await catching
    assert echo.heard == []


async def test_a_trap_whose_time_is_over_holds_nothing(echo):
    trap = Trap(SHA, "reply", pytest.fail)
    assert not await echo.tap.catch(trap, 0.01)

    assert (await echo.asked(b"evalsha " + SHA + b"\n")).startswith(b"EVALSHA")


async def test_a_trap_for_another_process_lets_everything_pass_and_runs_out(echo):
    trap = Trap(SHA, "request", lambda _: None, wants=lambda pid: pid == 1)
    catching = asyncio.create_task(echo.tap.catch(trap, 1.0))
    await asyncio.sleep(0)

    assert (await echo.asked(b"evalsha " + SHA + b"\n")).startswith(b"EVALSHA")
    assert not await catching
