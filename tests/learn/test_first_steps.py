"""The parts one by one, as one meets them: read from top to bottom."""

from __future__ import annotations

from zubble_queue.contracts import identity
from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.sandbox import SandboxSpec, shell
from zubble_queue.contracts.task import LoopBudget, TaskInput
from zubble_queue.testing import MemoryBooks, Script, ScriptedModel, structured_reply
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_worker.check import SandboxChecker
from zubble_worker.loop import AgentLoop
from zubble_worker.observers.repetition import StreamGuard
from zubble_worker.transcript import Job, Transcript


def an_envelope() -> TaskEnvelope:
    """A task is what the agent reads, a budget it cannot exceed, and a command that decides."""
    task = TaskInput(
        task_id=identity.task_id("first-batch", "hello", 1),
        description="Write the word hello into hello.txt.",
        allowed_tools=("shell",),
        success_criteria="hello.txt holds the word hello.",
        verify_command="grep -qx hello hello.txt",
    )
    budget = LoopBudget(max_iterations=5, max_tokens=20_000, max_wallclock_seconds=60, max_spend_usd=0.50)
    return TaskEnvelope(batch="first-batch", source_id="hello", task=task, model="demo", budget=budget)


def test_a_task_is_named_by_its_batch_its_id_and_its_repeat():
    """So a file read in another order, or read again, gives the same tasks."""
    assert an_envelope().task_id == identity.task_id("first-batch", "hello", 1)
    assert an_envelope().task_id != identity.task_id("first-batch", "hello", 2)


async def test_commands_run_in_a_sandbox_that_forgets_everything():
    """A command that fails is a result; only a sandbox that fails is an error."""
    sandbox = await BubblewrapProvider().open(SandboxSpec(name="learn", owner="me"))
    try:
        first = await sandbox.exec(shell("echo hello > hello.txt"))
        second = await sandbox.exec(shell("cat hello.txt; exit 3"))
    finally:
        await sandbox.destroy()

    assert first.exit_code == 0
    assert (second.exit_code, second.stdout) == (3, b"hello\n")


def test_a_stream_that_repeats_itself_is_cut_while_it_comes():
    """The guard hears every piece; at its last threshold it orders the cut."""
    guard = StreamGuard()
    heard = 0

    while guard.feed("text", "truncated ") is None:
        heard += 1

    assert 3_000 <= heard <= 3_300
    assert guard.fired[0].threshold == 50, "long before, the model would have been told in its next turn"


async def test_the_loop_lets_a_model_act_until_the_check_passes():
    """Here the model plays a script; a real one is configured in zubble.toml."""
    model = ScriptedModel(
        Script.always(
            structured_reply("plan", steps=["write the file", "submit"]),
            structured_reply("run", command="echo hello > hello.txt", plan_step_id=1),
            structured_reply("submit", report="hello.txt is written"),
        )
    )
    envelope, provider = an_envelope(), BubblewrapProvider()
    sandbox = await provider.open(SandboxSpec(name="learn", owner="me"))
    try:
        loop = AgentLoop(
            Transcript(Job(envelope, instructions="")),
            model=model,
            sandbox=sandbox,
            books=MemoryBooks(envelope.budget),
            checker=SandboxChecker(provider, sandbox, envelope, files={}),
            call_prefix="1",
        )
        stopped = await loop.run()
    finally:
        await sandbox.destroy()

    assert stopped.stop is Stop.SUBMITTED


def test_every_run_ends_in_one_record_and_a_limit_is_an_outcome():
    """A run that hit its limit with a tree that passes has passed."""
    lucky = Ending(stop=Stop.LIMIT_ITERATIONS, verdict=Verdict.PASSED)
    unlucky = Ending(stop=Stop.LIMIT_ITERATIONS, verdict=Verdict.FAILED)

    assert (lucky.outcome, unlucky.outcome) == ("verified", "limit:iterations")
    assert unlucky.output(an_envelope().task).aborted
