"""Plain Celery, set as its users set it for long tasks on Redis: late acknowledgement, nothing prefetched.

Tuned in its favour: a lost message is looked for every second and comes back after one lease, where the
defaults are a hundred seconds and an hour.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from typing import Any, Final

import httpx
from celery import Celery
from redis import Redis, RedisError
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from benchmarks.chaos.work import MODEL, replies_of, task_lines

DONE_KEY: Final = "baseline:done"
URL: Final = os.environ.get("BASELINE_REDIS_URL", "")

app = Celery("baseline", broker=URL.replace("unix://", "redis+socket://", 1))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": float(os.environ.get("BASELINE_LEASE_SECONDS", "60")),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
)


@app.task(name="baseline.agent")  # type: ignore[untyped-decorator]
def agent(number: int) -> None:
    """One agent: as many calls as the queue's own would make, then a note that it has come to its end."""
    line = task_lines(number + 1)[number]
    run, messages = secrets.token_hex(4), [{"role": "user", "content": line["description"]}]
    with httpx.Client(trust_env=False, timeout=60) as client:
        for step in range(1, replies_of(line) + 1):
            reply = _reply(client, f"{line['id']}.{run}.{step}.1", messages)
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "exit code 0"}]
    _note(line["id"])


def _reply(client: httpx.Client, call_id: str, messages: list[dict[str, str]]) -> str:
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "stream": True}
    url = os.environ["BASELINE_ENDPOINT"] + "/chat/completions"
    with client.stream("POST", url, json=body, headers={"x-client-request-id": call_id}) as response:
        events = [line[6:] for line in response.raise_for_status().iter_lines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def _note(task_id: str) -> None:
    """For pacing only; the endpoint's log is what is judged."""
    again = Retry(ConstantBackoff(1), retries=60)
    with (
        contextlib.suppress(RedisError),
        Redis.from_url(URL, socket_timeout=5, retry=again, retry_on_timeout=True) as client,
    ):
        client.sadd(DONE_KEY, task_id)
