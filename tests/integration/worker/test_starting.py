"""A worker that cannot work says why in one sentence and ends; without a key it does without its model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from zubble_queue.testing import structured_reply as say

from .conftest import wait_until

TURNS = [
    say("plan", steps=["make the file", "submit"]),
    say("run", command="echo made > done.txt", plan_step_id=1),
    say("submit", report="it is there"),
]
REFUSED = 2
LOCKED = "The key of model {!r} is missing: the environment variable NO_SUCH_KEY is empty or not set."


async def refusal(zubble) -> str:
    """What a worker says that ends at once with exit code 2."""
    process = zubble.start_worker(ZUBBLE_WORKER__SANDBOXES="local")

    async def has_ended() -> bool:
        return process.poll() is not None

    await wait_until(has_ended, "the worker ends", evidence=zubble.log)
    said = zubble.log().removeprefix(f"worker-{len(zubble.processes) - 1}: ").strip()
    assert process.returncode == REFUSED, said
    assert "Traceback" not in said
    return said.splitlines()[-1]


async def test_a_wrong_password_is_one_sentence_without_it(install):
    zubble = await install({})
    admin = zubble.store._client
    await admin.execute_command("ACL", "SETUSER", "guarded", "on", ">right", "~*", "&*", "+@all")
    zubble.config["redis_url"] = zubble.url.replace("unix://", "unix://guarded:wr0ng@")

    said = await refusal(zubble)

    assert said == f"Redis at {zubble.url} refused the user or password."


async def test_a_replica_is_refused(install):
    zubble = await install({})
    await zubble.store._client.execute_command("REPLICAOF", "127.0.0.1", "1")

    assert await refusal(zubble) == f"Redis at {zubble.url} is a read-only replica; name its primary."


async def test_a_cluster_is_refused_by_its_url(install):
    zubble = await install({})
    zubble.config["redis_url"] = "redis+cluster://127.0.0.1:7000"

    said = await refusal(zubble)

    assert said.endswith("zubble.toml: redis_url: must name a standalone server, not a Redis Cluster.")


@asynccontextmanager
async def an_old_server() -> AsyncIterator[str]:
    """No Redis that old is to be had any more; this answers as one does, and is asked no more than INFO."""
    info = b"redis_version:6.0.16\r\nrole:master\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(4_096):
            for command in asked.split(b"*")[1:]:
                writer.write(b"$%d\r\n%s\r\n" % (len(info), info) if b"\nINFO\r" in command else b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


async def test_a_server_that_is_too_old_is_refused(install):
    zubble = await install({})
    async with an_old_server() as url:
        zubble.config["redis_url"] = url

        assert await refusal(zubble) == f"Redis at {url} is Redis 6.0.16; 7.0 or newer is needed."


async def test_a_model_without_its_key_is_left_to_other_workers(install):
    zubble = await install({"keyless": TURNS, "plain": TURNS})
    zubble.config["models"]["locked"] = {**zubble.config["models"]["mock"], "api_key_env": "NO_SUCH_KEY"}
    keyless, plain = zubble.task("keyless").model_copy(update={"model": "locked"}), zubble.task("plain")
    await zubble.submit(keyless, plain)

    zubble.start_worker()

    assert (await zubble.sealed("plain")).outcome == "verified"
    [worker] = await zubble.store.workers()
    assert list(worker.models) == ["mock"]
    assert (await zubble.store.task(keyless.task_id)).attempt == 0
    cause = LOCKED.format("locked")
    assert f'"action": "model_not_offered", "model": "locked", "cause": "{cause}"' in zubble.log()


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ({}, "No model is defined: add a [models.NAME] table to zubble.toml."),
        ({"mock": {"api_key_env": "NO_SUCH_KEY"}}, f"No model can be offered. {LOCKED.format('mock')}"),
    ],
)
async def test_a_worker_without_any_model_to_offer_does_not_start(install, models, sentence):
    zubble = await install({})
    table = zubble.config["models"]["mock"]
    zubble.config["models"] = {name: {**table, **fields} for name, fields in models.items()}

    said = await refusal(zubble)

    assert said == sentence
