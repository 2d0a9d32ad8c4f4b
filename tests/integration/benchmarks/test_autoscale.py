"""The simulated autoscaler does what Kubernetes and KEDA say they do, and a simulated day adds up."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from benchmarks.autoscale.__main__ import main
from benchmarks.autoscale.autoscaler import Autoscaler, Settings
from benchmarks.autoscale.day import Batch, batches
from benchmarks.autoscale.simulation import RULES, Simulation, World

WORLD = World(slots=2, start_seconds=60, handover_seconds=30, drain_seconds=20, seed=1)
OURS, BLIND, LIST = RULES


def day(rule, *given, most=5, **settings):
    simulation = Simulation(WORLD, rule, Settings(most, **settings))
    simulation.run(given)
    return simulation


@pytest.mark.parametrize(
    ("value", "pods", "wanted"),
    [(10.9, 10, 10), (11.2, 10, 12), (9.1, 10, 10), (300, 10, 20), (3, 1, 3), (300, 1, 5), (0, 10, 10)],
)
def test_pods_grow_beyond_the_tolerance_and_by_no_more_than_the_policy(value, pods, wanted):
    scaler = Autoscaler(Settings(most=100))
    scaler.sync(0, 10, 10)  # keeps it from going down for five minutes

    assert scaler.sync(15, value, pods) == wanted


def test_pods_go_when_the_highest_recommendation_of_the_window_is_past():
    scaler = Autoscaler(Settings(most=100, window_seconds=60))

    assert [scaler.sync(at, value, 10) for at, value in ((0, 10), (15, 2), (30, 2), (59, 2), (61, 2))] == [
        10,
        10,
        10,
        10,
        2,
    ]


def test_no_more_pods_go_in_a_minute_than_their_share():
    scaler, pods = Autoscaler(Settings(most=100, window_seconds=1, down_share=0.2)), 100
    seen = []
    for at in range(0, 121, 15):
        pods = scaler.sync(at, 1, pods)
        seen.append(pods)

    assert seen == [80, 80, 80, 80, 64, 64, 64, 64, 51]


def test_the_first_pod_comes_with_work_and_the_last_goes_after_the_cooldown():
    scaler = Autoscaler(Settings(most=10, cooldown_seconds=300))

    assert [scaler.poll(at, value, pods) for at, value, pods in ((0, 0, 0), (30, 0.5, 0))] == [0, 1]
    assert [scaler.poll(at, 0, 2) for at in (60, 329, 330)] == [2, 2, 0]


def test_the_demand_of_a_day_is_what_was_asked_for_and_the_same_each_time():
    given = batches(slots=40, load=0.3, seed=7)

    asked = sum(sum(batch.lengths) for batch in given) / (40 * 86_400)
    assert 0.3 <= asked < 0.4
    assert given == batches(slots=40, load=0.3, seed=7)


def test_under_our_rule_work_is_not_taken_from_under_the_agents_of_an_empty_queue():
    work = Batch("b", at=1_000.0, lengths=[1_800.0] * 4)

    ours, by_list = day(OURS, work).result(), day(LIST, work).result()

    assert (ours["tasks"], ours["tasks_left"], ours["handed_over"]) == (4, 0, 0)
    assert by_list["handed_over"] > 0
    assert ours["most_pods"] == 2


def test_what_its_owner_holds_back_starts_no_pod():
    capped = Batch("b", at=0.0, lengths=[600.0] * 40, cap=2)
    paused = Batch("c", at=0.0, lengths=[60.0] * 40, paused=(0.0, 3_000.0))

    assert day(OURS, capped).result()["most_pods"] == 1
    assert day(LIST, capped).result()["most_pods"] == 5
    assert max(sample.pods for sample in day(OURS, paused).samples if sample.time < 3_000) == 0


def test_every_second_of_a_slot_is_accounted_for():
    given = batches(slots=10, load=0.2, seed=3)
    simulation = day(BLIND, *given, window_seconds=30)
    result, totals = simulation.result(), simulation._pool.totals

    assert (result["tasks"], result["tasks_left"]) == (sum(len(batch.lengths) for batch in given), 0)
    assert result["handed_over"] > 0
    assert result == day(BLIND, *given, window_seconds=30).result()
    worked = sum(sum(batch.lengths) for batch in given) + totals.repeated_seconds
    assert totals.busy_seconds == pytest.approx(worked)


def test_a_run_prints_its_rules_and_draws_them(tmp_path, capsys):
    assert main(["--workers", "2", "--load", "0.05", "--plot", str(tmp_path)]) == 0

    printed = capsys.readouterr().out
    assert all(rule.name in printed for rule in RULES)
    drawn = ET.parse(tmp_path / "autoscale-2.svg")
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}polyline")) == 12
