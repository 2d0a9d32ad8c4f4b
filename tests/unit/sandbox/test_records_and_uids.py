"""Who has which sandbox, and as which user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from dataclasses import replace

import pytest

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import notes, opening, records
from zubble_sandbox.records import Record, Records
from zubble_sandbox.uids import UidPool


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    process.wait()
    return process.pid


def record(**changes) -> Record:
    return replace(Record.new(backend="bubblewrap", spec=SandboxSpec("name", "owner")), **changes)


def test_a_record_is_read_back_and_removed(tmp_path):
    kept = Records(tmp_path / "records")
    first = record()
    kept.add(first)
    assert list(kept) == [first]
    kept.remove(first.token)
    kept.remove(first.token)
    assert list(kept) == []


def test_only_records_of_workers_that_are_gone_are_orphans(tmp_path):
    kept = Records(tmp_path / "records")
    alive, dead, reused = record(), record(worker_pid=dead_pid()), record(worker_started="1")
    other, owned = record(worker_pid=dead_pid(), backend="local"), record(worker_pid=dead_pid(), owner="kept")
    for each in (alive, dead, reused, other, owned):
        kept.add(replace(each, token=records.new_token()))
    found = kept.orphans("bubblewrap", frozenset({"kept"}))
    assert sorted(orphan.worker_pid for orphan in found) == sorted([dead.worker_pid, reused.worker_pid])


def test_a_file_that_is_no_record_is_left_alone(tmp_path):
    kept = Records(tmp_path / "records")
    (tmp_path / "records" / "zubble-x.json").write_text("{")
    (tmp_path / "records" / "zubble-y.json").write_text('{"token": "y"}')
    (tmp_path / "records" / "zubble-z.json").write_text("[]")
    assert list(kept) == []


def test_a_folder_that_others_may_enter_is_refused(tmp_path):
    for mode in (0o755, 0o770, 0o701):
        (tmp_path / str(mode)).mkdir()
        (tmp_path / str(mode)).chmod(mode)
        with pytest.raises(SandboxUnavailable, match="0700"):
            Records(tmp_path / str(mode))


def test_a_link_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(SandboxUnavailable, match="must be a folder"):
        Records(tmp_path / "link")


def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(SandboxUnavailable, match="this user"):
        Records(tmp_path / "theirs")


def test_the_runtime_folder_is_found_by_user_and_session(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_ROOT_DIR", tmp_path / "root")
    monkeypatch.setattr(records.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(records, "private_dir", lambda folder: folder)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert records.runtime_dir({}) == tmp_path / "root"
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert records.runtime_dir({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "zubble"
    assert records.runtime_dir({"XDG_RUNTIME_DIR": str(tmp_path / "gone")}) == tmp_path / "zubble-1000"
    assert records.runtime_dir({}) == tmp_path / "zubble-1000"


def lingering(**changes) -> Record:
    spec = SandboxSpec("name", "owner", linger_seconds=60.0, allowed_hosts=("a.test",))
    new = Record.new(backend="bubblewrap", spec=spec)
    return replace(new, **{"worker_pid": dead_pid(), **changes})


@pytest.fixture
def alive():
    """Starts processes that carry a mark."""
    started = []

    def alive(token):
        started.append(
            subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)", token])
        )
        while not records.marked(token):
            assert started[-1].poll() is None

    yield alive
    for process in started:
        process.kill()
        process.wait()


def test_a_sandbox_is_adopted_once_and_by_its_own_backend(tmp_path, alive):
    kept, orphan = Records(tmp_path / "records"), lingering()
    kept.add(orphan)
    alive(orphan.token)
    with pytest.raises(SandboxUnavailable, match="cannot be adopted by local"):
        kept.adopt(orphan.token, "local")
    ours = kept.adopt(orphan.token, "bubblewrap")
    assert ours.worker_pid == os.getpid()
    assert list(kept) == [ours]
    assert notes.recalled(ours.note) == SandboxSpec(
        "name", "owner", linger_seconds=60.0, allowed_hosts=("a.test",)
    )
    with pytest.raises(SandboxUnavailable, match="has a worker that lives"):
        kept.adopt(orphan.token, "bubblewrap")


@pytest.mark.parametrize("handle", ["", "../x", "zubble-" + "0" * 32, "zubble-" + "0" * 31 + "/"])
def test_a_handle_of_nothing_is_refused(tmp_path, handle):
    with pytest.raises(SandboxUnavailable):
        Records(tmp_path / "records").adopt(handle, "bubblewrap")


def test_a_sandbox_that_ends_with_its_worker_is_not_adopted(tmp_path):
    kept, orphan = Records(tmp_path / "records"), record(worker_pid=dead_pid())
    kept.add(orphan)
    with pytest.raises(SandboxUnavailable, match="cannot be adopted"):
        kept.adopt(orphan.token, "bubblewrap")


def test_one_that_may_be_adopted_is_no_orphan_until_its_time_is_over(tmp_path, alive, monkeypatch):
    kept, waiting, ended = Records(tmp_path / "records"), lingering(), lingering()
    kept.add(waiting)
    kept.add(ended)
    alive(waiting.token)
    assert kept.orphans("bubblewrap", frozenset()) == [ended]
    assert kept.orphans("bubblewrap", frozenset()) == [ended]
    now = records.time.monotonic()
    monkeypatch.setattr(records.time, "monotonic", lambda: now + 61.0)
    assert {orphan.token for orphan in kept.orphans("bubblewrap", frozenset())} == {
        waiting.token,
        ended.token,
    }


def test_an_orphan_is_removed_by_one_program_only(tmp_path):
    kept, orphan = Records(tmp_path / "records"), record(worker_pid=dead_pid())
    kept.add(orphan)
    assert kept.claim(orphan)
    assert not kept.claim(orphan)
    assert opening.reap_orphans(kept, "bubblewrap", frozenset()) == 0
    assert len(list(kept)) == 1, "whoever claimed it lives"


def test_a_record_that_its_worker_died_writing_is_gone_after_the_next_reap(tmp_path):
    kept = Records(tmp_path / "records")
    (unfinished := tmp_path / "records" / f"{record().token}.new").write_text("{")
    assert opening.reap_orphans(kept, "bubblewrap", frozenset()) == 0
    assert not unfinished.exists()


def test_a_record_goes_again_when_nothing_could_be_made(tmp_path):
    kept, failing = Records(tmp_path / "records"), record()

    def fail():
        with kept.opening(failing):
            assert list(kept) == [failing]
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert list(kept) == []


def test_a_note_of_another_version_is_refused():
    for text in ("{", "[]", '{"name": "n"}', '{"name": "n", "owner": "o", "unheard_of": 1}'):
        with pytest.raises(SandboxUnavailable, match="another version"):
            notes.recalled(text)


def test_reaping_kills_what_carries_the_mark_and_removes_its_folder(tmp_path):
    kept = Records(tmp_path / "records")
    folder = tmp_path / "zubble-local-x"
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "file").touch()
    orphan = record(worker_pid=dead_pid(), folder=str(folder))
    nothing_left = record(worker_pid=dead_pid())
    kept.add(orphan)
    kept.add(nothing_left)
    sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)"]
    marked, other = (
        subprocess.Popen([*sleeper, orphan.token]),
        subprocess.Popen([*sleeper, orphan.token + "x"]),
    )
    try:
        assert opening.reap_orphans(kept, "bubblewrap", frozenset()) == 1
        assert marked.wait() == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert not folder.exists()
    assert list(kept) == []
    assert opening.reap_orphans(kept, "bubblewrap", frozenset()) == 0


def test_a_uid_is_held_by_one_and_can_be_given_back(tmp_path):
    first, second = UidPool(tmp_path / "uids", 61_000, 3), UidPool(tmp_path / "uids", 61_000, 3)
    held = [first.take(), second.take(), first.take()]
    assert sorted(each.uid for each in held) == [61_000, 61_001, 61_002]
    with pytest.raises(SandboxUnavailable, match="All 3 uids"):
        second.take()
    held[1].give_back()
    again = first.take()
    assert again.uid == held[1].uid
    for each in (held[0], held[2], again):
        each.give_back()


def test_a_uid_of_a_process_that_died_is_free_again(tmp_path):
    code = (
        "import pathlib, sys; from zubble_sandbox.uids import UidPool;"
        "UidPool(pathlib.Path(sys.argv[1]), 61_000, 1).take(); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "uids"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        pool = UidPool(tmp_path / "uids", 61_000, 1)
        with pytest.raises(SandboxUnavailable):
            pool.take()
        holder.kill()
    pool.take().give_back()


def test_a_uid_that_belongs_to_a_user_is_never_taken(tmp_path, monkeypatch):
    def somebody(uid):
        if uid != 61_002:
            return object()
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", somebody)
    held = UidPool(tmp_path / "uids", 61_000, 5).take()
    assert held.uid == 61_002
    held.give_back()


@pytest.mark.parametrize(("base", "count"), [(0, 10), (-1, 10), (60_000, 0)])
def test_a_range_with_root_or_without_anybody_is_refused(tmp_path, base, count):
    with pytest.raises(ValueError, match="positive"):
        UidPool(tmp_path / "uids", base, count)
