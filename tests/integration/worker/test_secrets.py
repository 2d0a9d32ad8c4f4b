"""Canaries: keys and passwords are found in nothing that leaves the process that needs them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zubble_queue.testing import structured_reply as say

from .conftest import BATCH, SECRET, wait_until

REDIS_PASSWORD = "redis-canary-58d1e2"
CANARIES = (SECRET, REDIS_PASSWORD)
PLAN = say("plan", steps=["make the file", "submit"])
LOOK = say(
    "run",
    command="env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; "
    f"grep -rls -e {SECRET[:9]} -e {REDIS_PASSWORD[:12]} /etc /tmp /verify .; echo x > done.txt",
    plan_step_id=1,
)
SUBMIT = say("submit", report="it is there")


def echoing(kind: str, **fields: object) -> dict[str, object]:
    """A fault whose words repeat the request's key, as a careless proxy does."""
    words = f"upstream refused 'Authorization: Bearer {SECRET}' (key {SECRET})"
    return {"text": PLAN, "fault": {"kind": kind, "message": words, **fields}}


RULES = {
    "nosy": [PLAN, LOOK, SUBMIT],
    "refused": [echoing("status", status=401)],
    "retried": [echoing("status", status=503, first_tries=1), LOOK, SUBMIT],
    "streamed": [echoing("error_event", after_tokens=3, first_tries=1), LOOK, SUBMIT],
}


@pytest.fixture
async def overheard(install):
    """An installation with a password, its tasks sealed; and every command its Redis was sent meanwhile."""
    zubble = await install(RULES, after_restart=[PLAN, LOOK, SUBMIT])
    admin = zubble.store._client
    await admin.execute_command("ACL", "SETUSER", "canary", "on", f">{REDIS_PASSWORD}", "~*", "&*", "+@all")
    zubble.config["redis_url"] = zubble.url.replace("unix://", f"unix://canary:{REDIS_PASSWORD}@")
    heard: list[str] = []

    async def listen() -> None:
        async with admin.monitor() as monitor:
            while True:
                heard.append(str((await monitor.next_command())["command"]))

    listening = asyncio.create_task(listen())
    await zubble.submit(*(zubble.task(name) for name in RULES))
    zubble.start_worker(slots=4)
    for name in RULES:
        await zubble.sealed(name)
    yield zubble, heard
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening


def zubble_says(zubble, *arguments: str) -> str:
    """All that a command prints, run as the worker's operator."""
    done = subprocess.run(
        [sys.executable, "-m", "zubble_queue.cli", *arguments],
        cwd=zubble.folder / "worker-0",
        env={
            **os.environ,
            "ZUBBLE_CONFIG": str(zubble.folder / "worker-0" / "zubble.toml"),
            "MOCK_KEY": SECRET,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout, done.stderr
    return done.stdout + done.stderr


def found_in(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


async def test_no_canary_leaves_the_worker(overheard):
    zubble, heard = overheard
    views = {name: await zubble.sealed(name) for name in RULES}

    # What had to happen, or the rest proves nothing.
    assert all(call.authorization for call in zubble.endpoint.calls)
    assert "[key]" in views["refused"].ending.reason, "the endpoint's words are there, without the key"
    outcomes = {name: view.outcome for name, view in views.items()}
    assert outcomes == {"refused": "infra", **dict.fromkeys(("nosy", "retried", "streamed"), "verified")}
    await wait_until(_has_sealed(heard), "the seals were overheard")

    assert found_in(await zubble.dump()) == []
    assert found_in("\n".join(heard)) == []
    assert found_in(zubble.log()) == []
    assert not [path for path in _files(zubble.folder / "artifacts") if found_in(path.read_text("latin-1"))]
    for arguments in (
        ("batch", "export", BATCH),
        ("batch", "show", BATCH, "--json"),
        ("task", "ls", BATCH, "--json"),
        ("task", "show", "refused", "--json"),
        ("task", "tail", "streamed", "--no-follow", "--json"),
        ("memory", "show", "task", "--json"),
        ("config", "show", "--json"),
    ):
        assert found_in(zubble_says(zubble, *arguments)) == [], arguments


def _has_sealed(heard: list[str]):
    async def sealed() -> bool:
        return sum("verified" in command and "EVALSHA" in command.upper() for command in heard) >= 3

    return sealed


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
