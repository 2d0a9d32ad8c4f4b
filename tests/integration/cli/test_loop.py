"""`zubble loop` as its users type it."""

from __future__ import annotations

import json
import signal

import pytest

LINE = ("loop", "--task", "spec.md", "--fresh-context", "--env", "local", "--protocol", "text", "--json")


def turns(*commands: str, end: str = "One item is done.\n<give_up>") -> list[str]:
    return [*(f"```sh\n{command}\n```" for command in commands), end]


def iteration(number: int, *replies: object) -> dict[str, object]:
    return {"when": {"contains": f"iteration {number} of"}, "turns": list(replies)}


@pytest.fixture
def looping(user):
    """Makes a user whose only model plays the given rules; commands run here."""

    def make(*rules):
        user.write("script.json", json.dumps({"rules": list(rules)}))
        process = user.start("mock-endpoint", "--script", "script.json", "--json")
        url = json.loads(process.stdout.readline())["url"]
        user.write("spec.md", "Build the house.")
        user.write(
            "zubble.toml",
            f'[worker]\nsandboxes = ["local"]\n[lease]\nlease_seconds = 8\n'
            f'[models.qwen]\nbase_url = "{url}"\nprice = {{input = 3, output = 15}}\n',
        )
        return user

    return make


def test_a_loop_goes_on_from_what_the_iteration_before_left_until_a_claim_passes(looping):
    user = looping(
        iteration(1, *turns("echo '- [ ] floor' > PLAN.md", "mkdir -p a; echo floor > a/floor; ls missing")),
        iteration(2, *turns("cat a/floor; echo '- [x] floor' > PLAN.md")),
        iteration(3, *turns("echo 'all of it' > report.md", end="It is done.\n<done>")),
    )

    said = user.zubble(*LINE, "--max-iterations", "20", "--completion-signal")

    assert said.code == 0, said.err
    assert "<done> is accepted once report.md is there" in said.err
    assert "command_finished step=1" in said.err, "also where a checkpoint has moved it"
    one, two, three = said.json["iterations"]
    assert [each["kind"] for each in (one, two, three)] == ["fix_attempt", "fix_attempt", "fix_attempt"]
    assert (one["outcome"], one["progress"]) == ("failed", ["tree", "result"])
    assert two["progress"] == ["plan"], "its output only repeats its own words"
    assert (said.json["outcome"], said.json["resume"]) == ("verified", None)
    assert said.json["spend_usd"] == pytest.approx(sum(each["spend_usd"] for each in said.json["iterations"]))
    assert {path.name for path in (user.folder / "work").iterdir()} == {
        ".zubble",
        "PLAN.md",
        "a",
        "report.md",
    }
    tried = json.loads((user.folder / "work/.zubble/journal.json").read_text())
    assert len(tried) == 4
    envelope = user.zubble("task", "show", two["task_id"], "--json").json["envelope"]
    assert "✗ mkdir -p a; echo floor > a/floor; ls missing → " in envelope["instructions"]


@pytest.mark.slow
def test_a_loop_without_progress_is_stuck_and_one_at_a_limit_goes_on_when_that_is_raised(looping):
    user = looping({"turns": turns("ls -a", "pytest missing"), "then": "cycle"})
    line = [*LINE, "--verify", "test -f done.txt", "--max-attempts", "2"]

    limited = user.zubble(*line, "--max-iterations", "1")
    stuck = user.zubble(*line, "--max-iterations", "9")

    assert (limited.code, limited.json["outcome"]) == (4, "limit:iterations")
    assert limited.json["resume"].startswith("zubble loop --task spec.md --fresh-context")
    assert (stuck.code, stuck.json["outcome"]) == (1, "stuck")
    assert [each["kind"] for each in stuck.json["iterations"]] == ["verification"] * 3
    assert [each["progress"] for each in stuck.json["iterations"]] == [["result"], [], []]


@pytest.mark.slow
def test_an_interrupted_loop_keeps_its_work_and_the_same_command_goes_on(looping):
    first = [*turns("touch half", "true")[:2], {"text": "```sh\ntrue\n```", "delay_seconds": 60}]
    again = {"when": {"contains": "The iteration before ended so"}, "turns": ["It is done.\n<done>"]}
    user = looping(again, iteration(1, *first))
    line = [*LINE, "--verify", "test -f half -a -f whole"]

    process = user.start(*line)
    _until_a_command_ended(process)
    process.send_signal(signal.SIGINT)
    cut = user.finish(process)

    assert (cut.code, cut.json["outcome"]) == (130, "cancelled")
    assert cut.json["iterations"][0]["interrupted"]
    assert cut.json["resume"].startswith("zubble loop --task spec.md")
    assert (user.folder / "work/half").exists()

    (user.folder / "work/whole").touch()
    going_on = user.zubble(*line)
    assert going_on.code == 0, "half by the first iteration, and the rest by hand"
    assert [each["outcome"] for each in going_on.json["iterations"]] == ["cancelled", "verified"]
    assert user.zubble("batch", "show", going_on.json["loop"], "--json").json["total"] == 2

    again = user.zubble(*line)
    assert (again.code, again.json) == (0, going_on.json), "nothing is left to be done"


@pytest.mark.slow
def test_a_loop_that_was_killed_counts_what_the_iteration_spent_and_goes_on(looping):
    first = [*turns("touch half", "true")[:2], {"text": "```sh\ntrue\n```", "delay_seconds": 60}]
    user = looping(iteration(1, *first, {"text": "never"}))
    line = [*LINE, "--verify", "test -f half -a -f whole"]

    process = user.start(*line)
    _until_a_command_ended(process)
    process.kill()
    process.communicate()
    going_on = user.zubble(*line, "--max-tokens", "256")

    assert (going_on.code, going_on.json["outcome"]) == (4, "limit:tokens")
    (lost,) = going_on.json["iterations"]
    assert lost["interrupted"]
    assert lost["tokens"] > 256
    assert (user.folder / "work/half").exists(), "as of its last checkpoint"


def _until_a_command_ended(process):
    for said in process.stderr:
        if "command_finished" in said:
            return
    pytest.fail("no command was run")
