"""Each thing a campaign promises to notice is put before its judges, who must notice it."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.chaos.audit import histories
from benchmarks.chaos.crew import Attack
from benchmarks.chaos.endpoint import Call
from benchmarks.chaos.judge import judge, money, overlapping, percentile
from zubble_queue.stores.keys import Keys

KEYS = Keys("zubble")
TASK = "1-a-0badcafe"
MICRO = 1_000_000


def command(*parts: object) -> list[bytes]:
    return [str(part).encode() for part in parts]


def record(*fields: object, task: str = TASK) -> list[bytes]:
    return command("HSET", KEYS.task(task), *fields)


def created(task: str = TASK) -> list[list[bytes]]:
    return [record("state", "queued", "round", 1, "epoch", 0, task=task), event("accepted", 0, task=task)]


def claimed(epoch: int, *, at: float = 10.0, pid: int = 100, task: str = TASK) -> list[list[bytes]]:
    token = f"{epoch}:{'f' * 32}"
    return [
        record("epoch", epoch, "token", token, "worker", f"host-{pid}-abc", "push", 0, task=task),
        record("state", "running", task=task),
        record("mark", int(at * MICRO), task=task),
    ]


def event(kind: str, attempt: int, *, at: float = 0.0, task: str = TASK, **data: Any) -> list[bytes]:
    text = json.dumps({"seq": 1, "time": at, "attempt": attempt, "type": kind, "data": data})
    return command("RPUSH", KEYS.task(task, "events"), text)


def called(call_id: str, value: str, task: str = TASK) -> list[list[bytes]]:
    spend = int(value.rpartition(":")[2]) if value.startswith("settled") else 0
    return [
        command("HSET", KEYS.task(task, "calls"), call_id, value),
        command("HINCRBY", KEYS.task(task), "usage:spend_micro_usd", spend),
    ]


def reaped(epoch: int, *, at: float = 20.0) -> list[list[bytes]]:
    return [event("lease_lost", epoch, at=at), record("previous_end", "lost"), record("state", "queued")]


def sealed(epoch: int, *, at: float = 30.0, task: str = TASK) -> list[list[bytes]]:
    return [
        record("sealed_by", f"{epoch}:{'f' * 32}", task=task),
        record("ending", "{}", "outcome", "verified", "sealed", int(at * MICRO), task=task),
        record("state", "sealed", task=task),
    ]


def call(began: float, ended: float, *, attempt: int = 1, number: int = 1, cost: float = 0.0) -> Call:
    return Call(TASK, str(attempt), f"{attempt}.1.{number}", began, ended, cost, turn=0, whole=True)


def verdict(
    commands: list[list[bytes]], calls: list[Call] | None = None, attacks: list[Attack] | None = None
):
    return judge([TASK], histories(commands, KEYS), calls or [], attacks or [])


def test_a_quiet_life_is_clean():
    quiet = verdict(
        [*created(), *claimed(1), *called("1.1.1", "open:9:9"), *called("1.1.1", "settled:3:7"), *sealed(1)],
        [call(11, 12, cost=6.2)],
    )

    assert quiet.clean
    assert quiet.outcomes == {"verified": 1}
    assert (quiet.attempts, quiet.started_over) == (1, {})


def test_a_task_that_was_never_sealed_is_lost_and_so_is_one_that_never_arrived():
    found = judge([TASK, "2-b-0badcafe"], histories([*created(), *claimed(1)], KEYS), [], [])

    assert found.lost == [TASK, "2-b-0badcafe"]
    assert not found.clean


def test_two_seals_of_one_round_are_noticed():
    found = verdict([*created(), *claimed(1), *sealed(1), *sealed(1)])

    assert found.sealed_twice == [TASK]


def test_a_seal_in_a_later_round_is_no_second_one():
    again = [record("round", 2), record("state", "queued")]

    found = verdict([*created(), *claimed(1), *sealed(1), *again, *claimed(2), *sealed(2)])

    assert found.sealed_twice == []


def test_a_claim_while_a_lease_is_held_is_an_overlap():
    found = verdict([*created(), *claimed(1), *claimed(2), *sealed(2)])

    assert found.overlapping == [TASK]


def test_two_attempts_at_the_endpoint_at_once_are_an_overlap():
    assert overlapping([call(10, 20), call(19, 25, attempt=2)]) == [TASK]


def test_an_old_attempt_that_calls_after_a_newer_one_is_an_overlap():
    calls = [call(10, 11), call(20, 21, attempt=2), call(30, 31, number=2)]

    assert overlapping(calls) == [TASK]


def test_attempts_one_after_the_other_are_none():
    assert overlapping([call(10, 20), call(12, 15, number=2), call(20, 25, attempt=2)]) == []


def test_writes_of_an_attempt_whose_lease_is_gone_are_stale_whatever_they_write():
    late: dict[str, list[list[bytes]]] = {
        "event": [event("action", 1)],
        "call": called("1.1.1", "settled:1:0"),
        "journal": [command("RPUSH", KEYS.task(TASK, "journal"), "{}")],
        "checkpoint": [record("checkpoint", "{}")],
    }
    for name, writes in late.items():
        found = verdict([*created(), *claimed(1), *reaped(1), *writes, *claimed(2), *sealed(2)])
        assert len(found.stale_writes) == 1, name


def test_writes_of_an_attempt_while_a_newer_one_holds_the_lease_are_stale():
    begin = [*created(), *claimed(1), *reaped(1), *claimed(2)]

    assert verdict([*begin, event("action", 1), *sealed(2)]).stale_writes
    assert verdict([*begin, *called("1.1.1", "settled:1:0"), *sealed(2)]).stale_writes
    assert verdict([*begin, *sealed(1)]).stale_writes
    assert not verdict([*begin, event("action", 2), *sealed(2)]).stale_writes


def test_what_the_endpoint_counted_and_nobody_booked_is_unpaid_even_where_the_sum_would_do():
    found = verdict(
        [*created(), *claimed(1), *called("1.1.1", "settled:9:500"), *sealed(1)],
        [call(11, 12, cost=100.0), call(13, 14, number=2, cost=40.0)],
    )

    assert found.unpaid == {f"{TASK} 1.1.2": 40.0}
    assert found.over_charged_micro_usd == 400.0
    assert not found.clean


def test_a_rounding_up_to_a_whole_micro_usd_is_no_overcharge():
    tasks = histories([*created(), *claimed(1), *called("1.1.1", "settled:9:7"), *sealed(1)], KEYS)

    assert money(tasks, [call(11, 12, cost=6.2)]) == ({}, 0.0)


def test_a_record_that_is_not_the_sum_of_its_calls_is_wrong():
    extra = command("HINCRBY", KEYS.task(TASK), "usage:spend_micro_usd", 1)

    assert verdict([*created(), *claimed(1), extra, *sealed(1)]).books_wrong == [TASK]


def test_a_call_that_is_still_open_after_the_seal_is_wrong():
    found = verdict([*created(), *claimed(1), *called("1.1.1", "open:9:9"), *sealed(1)])

    assert found.books_wrong == [TASK]


def test_recovery_is_from_the_kill_to_the_next_claim_and_apart_where_the_server_was_away():
    life = [*created(), *claimed(1, at=10, pid=7), *reaped(1), *claimed(2, at=24, pid=8), *sealed(2)]
    kill = Attack("worker_killed", 7, 15, 15, fatal=True)

    assert verdict(life, attacks=[kill]).recoveries == [9.0]
    assert verdict(life, attacks=[kill, Attack("server_restarted", 0, 16, 17)]).recoveries == [9.0]
    away = verdict(life, attacks=[kill, Attack("server_mute", 0, 16, 22)])
    assert (away.recoveries, away.slow_recoveries) == ([], [9.0])


def test_an_attempt_started_over_is_put_down_to_what_befell_its_worker_else_the_server_else_nothing():
    life = [*created(), *claimed(1, at=10, pid=7), *reaped(1, at=20), *claimed(2, at=24, pid=8), *sealed(2)]
    server, worker = Attack("server_mute", 0, 12, 14), Attack("worker_stopped", 7, 11, 19)
    others = [Attack("worker_killed", 9, 12, 12, fatal=True), Attack("server_killed", 0, 40, 41)]

    assert verdict(life, attacks=[worker, server]).started_over == {"worker_stopped": 1}
    assert verdict(life, attacks=[server]).started_over == {"server_mute": 1}
    assert verdict(life, attacks=others).started_over == {"nothing": 1}
    assert verdict(life, attacks=[server]).charged == {"server_mute": 1}


def test_a_hand_over_is_started_over_and_not_charged():
    handed = [event("released", 1, at=20, charged=False, cause="handover"), record("state", "queued")]

    found = verdict([*created(), *claimed(1), *handed, *claimed(2, at=21), *sealed(2)])

    assert (found.started_over, found.charged["nothing"]) == ({"nothing": 1}, 0)


def test_a_percentile_is_the_nearest_rank():
    assert percentile([5, 1, 2, 3, 4], 0.95) == 5
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile([], 0.95) is None
