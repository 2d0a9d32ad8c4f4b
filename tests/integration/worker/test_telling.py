"""What a worker tells others: metrics, log lines, spans; and in none of them the text of what it works on."""

from __future__ import annotations

import asyncio
import gzip
import re
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from zubble_queue.testing import structured_reply as say

from .conftest import BATCH, SECRET, wait_until

TURNS = [
    say("plan", steps=["write", "submit"]),
    say("run", command="echo canary-command > done.txt", plan_step_id=1),
    say("submit", report="done"),
]


@pytest.mark.slow
async def test_a_worker_tells_what_it_did_and_no_text_of_a_task(install):
    zubble = await install({"canary-task": TURNS})
    zubble.worker_arguments = ("--metrics-port", "0")
    zubble.start_worker()
    await zubble.submit(zubble.task("canary-task"))
    await zubble.sealed("canary-task")

    async def port() -> str | None:
        found = re.search(r'"port": (\d+)', zubble.log())
        return found and found[1]

    url = f"http://127.0.0.1:{await wait_until(port, 'the port is in the log', 10, zubble.log)}/metrics"

    async def counted() -> str | None:
        async with httpx.AsyncClient() as client:
            text = (await client.get(url)).text
        return text if "zubble_tasks_sealed_total{" in text else None

    text = await wait_until(counted, "the seal is counted", 10, zubble.log)

    sealed = 'zubble_tasks_sealed_total{model="mock",outcome="verified",pool="default"} 1.0'
    for line in (
        sealed,
        'zubble_attempts_total{end="sealed"} 1.0',
        'zubble_model_calls_total{finish="stop",model="mock"} 3.0',
        'zubble_commands_total{result="succeeded"} 1.0',
        'zubble_queue_wait_seconds_count{pool="default"} 1.0',
        "zubble_worker_slots 2.0",
        "zubble_feeder_leads 1.0",
    ):
        assert line in text, f"{line} is not in\n{text}"
    assert 'zubble_sandbox_open_seconds_count{backend="' in text
    assert re.search(r'zubble_tokens_total\{kind="prompt",model="mock"\} [1-9]', text)
    assert not re.search(f"canary|{SECRET}", text)
    [line] = [line for line in zubble.log().splitlines() if '"action": "task_sealed"' in line]
    assert '"attempt": 1' in line
    assert f'"batch": "{BATCH}"' in line


@pytest.fixture
def collector():
    """An OpenTelemetry collector that keeps what it is sent."""
    received = []

    class Keeping(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(gzip_or_not(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Silence."""

    with HTTPServer(("127.0.0.1", 0), Keeping) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()


def gzip_or_not(body: bytes) -> bytes:
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


@pytest.mark.slow
async def test_a_worker_that_leaves_has_sent_its_spans_and_no_text_of_a_task(install, collector):
    endpoint, received = collector
    zubble = await install({"canary-task": TURNS})
    worker = zubble.start_worker(ZUBBLE_WORKER__TRACES="true", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    await zubble.submit(zubble.task("canary-task"))
    view = await zubble.sealed("canary-task")
    worker.send_signal(signal.SIGTERM)
    await asyncio.to_thread(worker.wait, 30)

    sent = b"".join(received)
    for word in (b"zubble-worker", b"attempt", b"chat", b"command", b"verified", view.task_id.encode()):
        assert word in sent
    assert not re.search(f"canary-command|{SECRET}|This is task".encode(), sent)
