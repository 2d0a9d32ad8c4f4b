"""Whatever stops an agent, what it changed is in the record: as a tree, as a patch and as files."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import tarfile
from pathlib import Path

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.envelope import FileEntry
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Parcel, Submission
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.settings import LeaseSettings
from zubble_queue.testing import Script, ScriptedModel
from zubble_queue.testing import structured_reply as say
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_worker.attempt import Attempt
from zubble_worker.tools import Tools

from .conftest import BATCH, wait_until

EDIT = "printf 'edited\\n' > kept.txt; printf '\\0' > bin; ln -s /etc/passwd link; mkfifo pipe"
EDITED = say("run", command=EDIT, reasoning="edit")
PATCH = b"""\
# binary or large file: bin (1 bytes)
# symbolic link: link -> /etc/passwd (11 bytes)
diff --git a/kept.txt b/kept.txt
new file mode 100644
--- /dev/null
+++ b/kept.txt
@@ -0,0 +1,1 @@
+edited
"""
REFUSED = {"text": "never", "fault": {"kind": "status", "status": 401}}
TOOL = {"text": "", "tool_calls": [{"name": "browser", "arguments": "{}"}]}
LOOPING = {"text": ["{", {"repeat": "truncated ", "times": 7_000}]}
STOPS = {
    "submitted": ([say("submit", report="done")], {"verify_command": "test -f kept.txt"}, Stop.SUBMITTED),
    "gave-up": ([say("report", report="no idea")], {}, Stop.GAVE_UP),
    "iterations": (
        [say("run", command="true")],
        {"budget": LoopBudget(max_iterations=2)},
        Stop.LIMIT_ITERATIONS,
    ),
    "tokens": ([say("run", command="true")], {"budget": LoopBudget(max_tokens=2_500)}, Stop.LIMIT_TOKENS),
    "spend": (
        [say("run", command=f"true {number}") for number in range(5)],
        {"budget": LoopBudget(max_spend_usd=0.008)},
        Stop.LIMIT_SPEND,
    ),
    "deadline": (
        [say("run", command="echo more > late.txt; sleep 60")],
        {"budget": LoopBudget(max_wallclock_seconds=12)},
        Stop.LIMIT_WALLCLOCK,
    ),
    "tools": ([TOOL], {}, Stop.LIMIT_ALLOWED_TOOLS),
    "text": ([LOOPING], {"max_context_resets": 0}, Stop.LOOP_TEXT),
    "action": (
        [say("run", command="cat kept.txt", reasoning="look")] * 9,
        {"max_context_resets": 0},
        Stop.LOOP_ACTION,
    ),
    "stall": (
        [say("run", command=f"echo thinking {number}", reasoning="look") for number in range(14)],
        {"max_context_resets": 0},
        Stop.LOOP_STALL,
    ),
    "max-steps": ([say("run", command="true")], {"max_steps": 2}, Stop.LIMIT_MAX_STEPS),
    "max-turn-secs": ([say("run", command="sleep 3")], {"max_turn_secs": 2}, Stop.LIMIT_MAX_TURN_SECS),
    "blocked": ([say("run", command="true")], {"guards": ["tool-cycle"]}, Stop.BLOCKED),
    "unparsed": (["no JSON"], {}, Stop.PARSE_ERROR),
    "infra": ([REFUSED], {}, Stop.INFRA),
}


def members(tar: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive if one.isreg()}


def assert_edits_are_kept(artifacts: ArtifactStore, ending: Ending | None, **more: bytes) -> None:
    assert ending is not None
    kept = {name: artifacts.get(ref) for name, ref in ending.artifacts.items()}
    assert set(PATCH.splitlines()) <= set(kept["patch"].splitlines())
    assert members(kept["changed_files"]) == {"kept.txt": b"edited\n", "bin": b"\0", **more}
    assert members(kept["work_tree"]).items() >= {"kept.txt": b"edited\n"}.items()


async def test_every_stop_keeps_what_the_agent_changed(install):
    zubble = await install({name: [EDITED, *turns] for name, (turns, _, _) in STOPS.items()})
    await zubble.submit(*(zubble.task(name, **fields) for name, (_, fields, _) in STOPS.items()))
    zubble.start_worker(slots=len(STOPS))

    for name, (_, _, stop) in STOPS.items():
        ending = (await zubble.sealed(name)).ending
        more = {"late.txt": b"more\n"} if name == "deadline" else {}
        assert ending.stop is stop, f"{name}: {ending.reason}"
        assert_edits_are_kept(zubble.artifacts, ending, **more)
        assert set(ending.files_touched) == {"kept.txt", "bin", "link", *more}


async def test_of_a_tree_that_is_too_large_to_be_copied_the_files_that_fit_are_kept(install):
    many = "rm given.txt; for n in $(seq 3000); do : > empty-$n; done"
    zubble = await install(
        {"large": [EDITED, say("run", command=many, reasoning="fill"), say("report", report="full")]}
    )
    given = FileEntry(path="given.txt", blob=zubble.artifacts.put(b"given\n"))
    await zubble.submit(zubble.task("large", sandbox={"work_mb": 1}, files=(given,)))
    zubble.start_worker()

    ending = (await zubble.sealed("large")).ending

    assert (ending.stop, ending.verdict) == (Stop.GAVE_UP, Verdict.ERROR)
    assert "only files up to" in ending.evidence["salvage"]
    assert "work_tree" not in ending.artifacts
    assert members(zubble.artifacts.get(ending.artifacts["changed_files"]))["kept.txt"] == b"edited\n"
    patch = zubble.artifacts.get(ending.artifacts["patch"])
    assert b"diff --git a/given.txt b/given.txt\ndeleted file mode" in patch, "what is gone is known, too"


async def test_a_cancelled_task_keeps_what_was_done_up_to_the_middle_of_a_command(install):
    zubble = await install({"sleeper": [say("run", command=f"{EDIT}; sleep 6171", reasoning="edit")]})
    await zubble.submit(zubble.task("sleeper"))
    zubble.start_worker()
    task_id = zubble.task("sleeper").task_id

    async def sleeps() -> bool:
        return bool(_processes())

    await wait_until(sleeps, "the command has edited and sleeps")
    await zubble.store.cancel_task(task_id)
    view = await zubble.sealed("sleeper")

    assert view.outcome == "cancelled"
    assert_edits_are_kept(zubble.artifacts, view.ending)


async def test_what_a_drained_worker_gave_back_is_kept_when_nobody_takes_it_up(install):
    silent = {"text": EDITED, "fault": {"kind": "stall", "after_tokens": 2}}
    zubble = await install({"left": [EDITED, silent]})
    await zubble.submit(zubble.task("left"))
    worker = zubble.start_worker()
    task_id = zubble.task("left").task_id

    async def second_call() -> bool:
        return len(zubble.endpoint.calls) >= 2

    await wait_until(second_call, "the agent has edited and waits for the model")
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 40) == 0
    await zubble.store.cancel_task(task_id)

    assert_edits_are_kept(zubble.artifacts, (await zubble.sealed("left")).ending)


async def test_an_attempt_that_is_followed_by_a_retry_leaves_its_edits_in_the_evidence(install):
    zubble = await install({"hard": [EDITED, say("report", report="no")]}, [say("report", report="no")])
    info = BatchInfo(name=BATCH, model="mock", tuning=Tuning(max_retries=1))
    await zubble.dispatcher.submit(Submission(info, [Parcel(zubble.task("hard"), {})]))
    zubble.start_worker()

    view = await zubble.sealed("hard")

    [past] = view.ending.evidence["past"]
    assert zubble.artifacts.get(past["artifacts"]["patch"]) == PATCH


async def test_a_sandbox_that_was_killed_costs_what_came_after_its_last_checkpoint(install):
    dying = say("run", command="echo lost > lost.txt; sleep 6171", reasoning="go on")
    finish = say("run", command="cp kept.txt done.txt", reasoning="go on")
    zubble = await install({"shot": [EDITED, dying]}, [finish, finish, finish, say("submit", report="done")])
    await zubble.submit(zubble.task("shot"))
    worker = zubble.start_worker()

    async def sleepers() -> list[int]:
        return _processes()

    await wait_until(sleepers, "the second command runs")
    for pid in _sandboxes(worker.pid):
        os.kill(pid, signal.SIGKILL)
    view = await zubble.sealed("shot")

    assert (view.outcome, view.attempt) == ("verified", 2)
    assert_edits_are_kept(zubble.artifacts, view.ending, **{"done.txt": b"edited\n"})


class Crashing(ScriptedModel):
    """Fails at its second call as nobody foresaw."""

    async def query(self, messages, options, watch):
        if len(self.calls) == 1:
            raise ZeroDivisionError("in the middle")
        return await super().query(messages, options, watch)


async def test_a_loop_that_raises_in_the_middle_leaves_its_edits_to_the_next_attempt_and_to_the_record(
    install,
):
    zubble = await install({"broken": ["unused"]})
    await zubble.submit(task := zubble.task("broken"))
    tools = Tools(
        worker_id="test",
        store=zubble.store,
        artifacts=zubble.artifacts,
        models={"mock": Crashing(Script.always(EDITED))},
        providers={"bubblewrap": BubblewrapProvider()},
        lease=LeaseSettings(lease_seconds=60),
    )
    claim = await zubble.store.claim(task.header(epoch=1), worker_id="test")

    done = await Attempt(claim, tools).run()
    lost = (await zubble.store.task(task.task_id)).abnormal_ends
    await zubble.store.cancel_task(task.task_id)

    assert (done.how, done.cause) == ("released", "a fault of our own: ZeroDivisionError")
    assert lost == 1
    assert_edits_are_kept(zubble.artifacts, (await zubble.sealed("broken")).ending)


def _processes() -> list[int]:
    """Those of the one command that sleeps so long."""
    return [pid for pid, line in _command_lines() if line == b"sleep\x006171\x00"]


def _sandboxes(worker: int) -> list[int]:
    """The outermost processes of a worker's sandboxes."""
    return [pid for pid, line in _command_lines() if b"\0--args\0" in line and _parent(pid) == worker]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _command_lines() -> list[tuple[int, bytes]]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                found.append((int(entry.name), (entry / "cmdline").read_bytes()))
        except OSError:
            continue
    return found
