"""Harbor tasks from their folder to the seal: a real worker, real sandboxes, their own tests and rewards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from zubble_queue.contracts.ending import Stop, Verdict
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.record import BatchInfo, TaskView
from zubble_queue.contracts.submission import Submission, TaskDefaults
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.formats import harbor
from zubble_queue.testing import structured_reply as say

from .conftest import BATCH, Installation, wait_until

EXAMPLE = Path(__file__).parents[3] / "examples/harbor/add-numbers"
RIGHT = "printf 'echo $(($1 + $2))\\n' >add.sh"
FORGED = "for file in /logs/verifier/reward.txt /logs/verifier/reward.json reward.txt; do echo 1 >$file; done"
PLANTED = "printf 'echo 1 >/logs/verifier/reward.json; echo 1 >/logs/verifier/reward.txt; echo 7\\n' >add.sh"
SUBMIT = say("submit", report="done")
GIVE_UP = say("report", report="that is all")


def run(command: str) -> str:
    return say("run", command=command, reasoning="as asked")


def add_task(folder: Path, name: str, test: str | None = None) -> None:
    """The example under another name, with another test where one is given."""
    shutil.copytree(EXAMPLE, folder / name)
    toml = (EXAMPLE / "task.toml").read_text().replace("zubble-examples/add-numbers", name)
    (folder / name / "task.toml").write_text(toml)
    (folder / name / "instruction.md").write_text(f"This is task {name}.\n")
    if test is not None:
        (folder / name / "tests/test.sh").write_text(f"#!/bin/sh\n{test}\n")


async def submit(zubble: Installation, folder: Path) -> None:
    defaults = TaskDefaults(batch=BATCH, model="mock", budget=LoopBudget(max_iterations=8))
    parcels = harbor.read(folder, defaults)
    await zubble.dispatcher.submit(Submission(BatchInfo(name=BATCH, model="mock"), parcels))


async def sealed(zubble: Installation, name: str) -> TaskView:
    async def is_sealed() -> TaskView | None:
        view = await zubble.store.find(name, BATCH)
        return view if view.ending else None

    return await wait_until(is_sealed, f"{name} is sealed", evidence=zubble.log)


async def test_the_example_is_run_judged_by_its_tests_and_rewarded(install):
    zubble = await install(
        {"add.sh": [run(f"{RIGHT}; pwd; ls /tests /logs/verifier"), SUBMIT]}, contains="{}"
    )
    await submit(zubble, EXAMPLE)
    zubble.start_worker()

    view = await sealed(zubble, "zubble-examples/add-numbers")

    assert (view.outcome, view.ending.stop, view.ending.reward) == ("verified", Stop.SUBMITTED, 1.0)
    assert view.ending.files_touched == ("add.sh",)
    lines = zubble.artifacts.get(view.ending.artifacts["trajectory"]).splitlines()
    events = [Event.model_validate_json(line) for line in lines]
    [ended] = [event.data for event in events if event.type == "command_finished"]
    assert ended["stdout"] == "/app\n/logs/verifier:\n", "nothing is there but the empty folder of the logs"
    assert "'/tests'" in ended["stderr"]


async def test_a_reward_that_the_agent_wrote_itself_does_not_pass(install, tmp_path):
    """Neither where it belongs, nor in the work tree, nor by what the tests run before they judge."""
    folder = tmp_path / "tasks"
    for name in ("forger", "planter"):
        add_task(folder, name)
    zubble = await install(
        {"forger": [run(FORGED), GIVE_UP], "planter": [run(PLANTED), GIVE_UP]},
    )
    await submit(zubble, folder)
    zubble.start_worker()

    for name in ("forger", "planter"):
        ending = (await sealed(zubble, name)).ending
        assert (ending.outcome, ending.verdict, ending.reward) == ("failed", Verdict.FAILED, 0.0), name


UNTOUCHED = "test -f add.sh || { echo 0 >/logs/verifier/reward.txt; exit; };"
CHECKS: dict[str, tuple[str, Verdict, Any, str]] = {
    "missing": (f"{UNTOUCHED} exit 0", Verdict.ERROR, None, "wrote no reward file"),
    "empty": (f"{UNTOUCHED} : >/logs/verifier/reward.txt", Verdict.ERROR, None, "reward.txt is empty"),
    "words": (f"{UNTOUCHED} echo yes >/logs/verifier/reward.txt", Verdict.ERROR, None, "holds no reward"),
    "link": (
        f"{UNTOUCHED} ln -s /etc/passwd /logs/verifier/reward.txt",
        Verdict.ERROR,
        None,
        "cannot be read",
    ),
    "map": (
        f'{UNTOUCHED} echo \'{{"reward": 1, "style": 0.5}}\' >/logs/verifier/reward.json; exit 3',
        Verdict.PASSED,
        {"reward": 1.0, "style": 0.5},
        "",
    ),
    "part": (f"{UNTOUCHED} echo 0.5 >/logs/verifier/reward.txt", Verdict.FAILED, 0.5, ""),
    "killed": (f"{UNTOUCHED} echo 1 >/logs/verifier/reward.txt; kill -9 $$", Verdict.FAILED, None, ""),
}


async def test_what_the_tests_write_is_the_reward_and_no_reward_has_three_reasons(install, tmp_path):
    folder = tmp_path / "tasks"
    for name, (test, _, _, _) in CHECKS.items():
        add_task(folder, name, test)
    zubble = await install({name: [run(RIGHT), GIVE_UP] for name in CHECKS})
    await submit(zubble, folder)
    zubble.start_worker(slots=len(CHECKS))

    for name, (_, verdict, reward, error) in CHECKS.items():
        ending = (await sealed(zubble, name)).ending
        assert (ending.verdict, ending.reward) == (verdict, reward), name
        assert error in ending.evidence.get("check", ""), name


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ("exit 0", "wrote no reward file"),
        ("no-such-program; exit 127", "cannot be run"),
        ("#", "wrote no reward"),
    ],
)
async def test_tests_that_cannot_judge_the_untouched_tree_make_the_task_invalid(
    install, tmp_path, test, sentence
):
    add_task(tmp_path / "tasks", "broken", test)
    zubble = await install({"broken": ["never"]})
    await submit(zubble, tmp_path / "tasks")
    zubble.start_worker()

    ending = (await sealed(zubble, "broken")).ending

    assert ending.outcome == "invalid"
    assert sentence in ending.reason
    assert not zubble.endpoint.calls
