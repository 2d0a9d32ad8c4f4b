"""The supervisor as a program of its own."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess

import pytest

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import box, wire


def test_it_ends_with_its_line_and_ends_what_it_started(served):
    served.run(2, b"sleep 1000 & echo $! >child; sleep 1000")
    file = served.work / "child"
    while not file.exists() or not file.read_text().strip():
        assert served.process.poll() is None
    child = int(file.read_text())
    os.kill(child, 0)
    served.sock.close()
    assert served.process.wait(timeout=60) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_it_ends_when_its_life_is_over(supervisor):
    supervisor.setup(life=0.3)
    assert supervisor.answer()[:2] == (wire.OK, 1)
    supervisor.run(2, b"sleep 1000")
    assert supervisor.process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff" * 9, b"\0\0\0", wire.frame(wire.EXEC, 1), wire.frame(wire.OK, 1)]
)
def test_garbage_in_place_of_a_greeting_ends_it(supervisor, garbage):
    supervisor.sock.sendall(garbage)
    supervisor.sock.shutdown(1)
    assert supervisor.process.wait(timeout=60) == 0


def test_it_ends_rather_than_signal_all_when_it_is_not_the_first_process(supervisor):
    supervisor.setup(mode=b"namespace")
    assert supervisor.process.wait(timeout=60) == 71


def test_a_request_it_does_not_know_is_answered(served):
    served.send(77, 2)
    served.send(wire.PING, 3)
    assert [served.answer()[:2] for _ in range(2)] == [(wire.FAILED, 2), (wire.OK, 3)]


def test_a_second_command_is_refused_while_one_runs(served):
    served.run(2, b"sleep 1000")
    served.run(3, b"true")
    served.send(wire.KILL, 4, b"command-2")
    answers = {call: kind for kind, call, *_ in (served.answer() for _ in range(3))}
    assert answers == {2: wire.OK, 3: wire.FAILED, 4: wire.OK}


def test_a_command_is_started_once_however_often_it_is_asked_for(served):
    served.run(2, b"echo x >>started; sleep 0.2; wc -l <started; exit 3", name=b"one")
    served.run(3, b"echo x >>started; exit 4", name=b"one")
    kind, call, fields, _ = served.answer()
    assert (kind, call, fields[:2], fields[5]) == (wire.OK, 3, [b"exit", b"3"], b"1\n")
    served.run(4, b"echo x >>started", name=b"one")
    assert served.answer()[2] == fields
    assert (served.work / "started").read_text() == "x\n"


def test_a_result_can_be_asked_for_again_without_what_is_known_of_it(served):
    served.run(2, b"echo 12345; echo 678 >&2", name=b"one")
    assert served.answer()[2][5:] == [b"12345\n", b"", b"4", b"678\n", b""]
    assert served.ask(wire.WAIT, b"one", b"2", b"100")[0][4:] == [b"6", b"345\n", b"", b"4", b"", b""]
    with pytest.raises(ValueError, match="no such command"):
        served.ask(wire.WAIT, b"two", b"0", b"0")


def test_an_order_to_kill_another_command_does_nothing(served):
    served.run(2, b"sleep 0.2; exit 5", name=b"one")
    served.send(wire.KILL, 3, b"other")
    assert served.answer()[1] == 3
    assert served.answer()[2][:2] == [b"exit", b"5"]


def test_files_are_served_while_a_command_runs(served):
    (served.work / "file").write_text("content")
    served.run(2, b"sleep 1000")
    assert served.ask(wire.READ, b"file", b"100") == ([], b"content")


def test_a_body_is_skipped_when_its_request_is_refused(served):
    with pytest.raises(PermissionError):
        served.ask(wire.WRITE, b"../out", b"0", body=b"x" * 1_000_000)
    served.ask(wire.PING)


def test_a_frame_of_another_call_within_a_body_ends_it(served):
    served.send(wire.WRITE, 2, b"file", b"0")
    served.send(wire.PING, 3)
    assert served.process.wait(timeout=60) == 0
    assert list(served.work.iterdir()) == []


def test_a_worker_that_goes_in_the_middle_of_a_file_leaves_no_part_of_it(served):
    served.send(wire.WRITE, 2, b"file", b"0")
    served.sock.sendall(wire.frame(wire.CHUNK, 2, b"half"))
    served.sock.close()
    assert served.process.wait(timeout=60) == 0
    assert list(served.work.iterdir()) == []


def test_what_a_command_inherits_is_its_three_streams(new_supervisor):
    leaked = os.open("/usr", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        one = new_supervisor()
    finally:
        os.close(leaked)
    one.setup()
    one.answer()
    one.run(2, b"ls /proc/self/fd | wc -l")
    assert one.answer()[2][5] == b"4\n", "0 to 2, and the one that ls reads the folder by"


def test_an_architecture_that_was_not_built_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(box, "_PROGRAMS", tmp_path)
    with pytest.raises(SandboxUnavailable, match=r"zubble-box-aarch64 was not built: install a C compiler"):
        box.binary("arm64")
    with pytest.raises(SandboxUnavailable, match="not on riscv64"):
        box.binary("riscv64")


def test_the_locks_it_is_given_are_held_until_it_ends(program, tmp_path):
    ours, theirs = socket.socketpair()
    locks = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("one", "two")]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    options = [word for lock in locks for word in ("--keep", str(lock))]
    process = subprocess.Popen(
        (program, "supervise", "--fd", str(theirs.fileno()), *options, "mark"),
        pass_fds=(theirs.fileno(), *locks),
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )
    for fd in (theirs.detach(), *locks):
        os.close(fd)
    limits = (b"60", b"64", b"1024", b"0", b"0", b"0", b"0", b"", b"0", b"")
    setup = wire.pack(b"tree", *limits, b"work", os.fsencode(tmp_path))
    ours.sendall(wire.frame(wire.SETUP, 1, setup))
    assert ours.recv(wire.HEADER_BYTES)[4] == wire.OK
    for name in ("one", "two"):
        with (tmp_path / name).open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ours.close()
    process.wait(timeout=60)
    for name in ("one", "two"):
        with (tmp_path / name).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
