"""Pods are told apart by their running agents, over HTTP, to a server that may refuse."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import certifi
import httpx
import pytest
import structlog

from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import CannotStart, StoreUnavailable
from zubble_worker.deletion_cost import ANNOTATION, MOST_A_ROUND, Cluster, DeletionCosts


def worker(host, busy):
    return WorkerInfo(worker_id=f"{host}-1", version="1", host=host, pid=1, slots=8, busy=busy)


class ApiServer(ThreadingHTTPServer):
    """Takes merge patches of pods in `work` from whoever has the token `good`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.patched: list[tuple[str, str]] = []
        self.foreign: set[str] = set()
        self.asked = 0


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_PATCH(self):
        self.server.asked += 1
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        folder, _, pod = self.path.rpartition("/")
        if self.headers["Authorization"] != "Bearer good":
            status = 403
        elif folder != "/api/v1/namespaces/work/pods" or pod in self.server.foreign:
            status = 404
        else:
            status = 200
            assert self.headers["Content-Type"] == "application/merge-patch+json"
            self.server.patched.append((pod, patch["metadata"]["annotations"][ANNOTATION]))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Silence."""


@pytest.fixture
def api():
    with ApiServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def rounds(api, tmp_path):
    """Let a leader go round once for each given list of workers; returns what it patched."""
    (tmp_path / "token").write_text("good\n")
    cluster = Cluster(f"http://127.0.0.1:{api.server_port}", "work", tmp_path / "token")

    async def go(*crews):
        left = list(crews)

        async def workers():
            crew = left.pop(0)
            if crew is None:
                raise StoreUnavailable("gone")
            return crew

        costs = DeletionCosts(cluster, workers, lambda: True)
        async with httpx.AsyncClient(base_url=cluster.url, trust_env=False) as client:
            for _ in crews:
                await costs.round(client)
        return api.patched

    return go


async def test_every_pod_is_told_its_running_agents_and_again_only_when_they_changed(rounds):
    crew = [worker("a", 3), worker("b", 0)]

    assert await rounds(crew, crew, [worker("a", 2), worker("b", 0)]) == [("b", "0"), ("a", "3"), ("a", "2")]


async def test_the_workers_of_one_pod_count_together(rounds):
    assert await rounds([worker("a", 3), worker("a", 2)]) == [("a", "5")]


async def test_a_worker_that_is_no_pod_is_asked_for_once(api, rounds):
    api.foreign = {"laptop"}
    crew = [worker("laptop", 1), worker("a", 2)]

    assert await rounds(crew, crew) == [("a", "2")]
    assert api.asked == 2


async def test_a_right_that_is_missing_is_one_warning_and_one_request_a_round(api, rounds, tmp_path):
    (tmp_path / "token").write_text("bad")
    crew = [worker("a", 1), worker("b", 2)]

    with structlog.testing.capture_logs() as logs:
        assert await rounds(crew, crew) == []

    assert [line["cause"] for line in logs] == ["HTTP 403"]
    assert api.asked == 2


async def test_many_pods_are_told_in_several_rounds_those_that_may_go_first(rounds):
    crew = [worker(f"p{number}", number) for number in range(MOST_A_ROUND + 5)]

    first = list(await rounds(crew))

    assert [int(cost) for _, cost in first] == list(range(MOST_A_ROUND))
    assert len(await rounds(crew, crew)) == len(first) + len(crew)


async def test_a_silence_of_redis_changes_nothing(rounds):
    assert await rounds(None, [worker("a", 1)]) == [("a", "1")]


async def test_who_does_not_lead_tells_nothing(tmp_path):
    stop, asked = asyncio.Event(), []

    def leads():
        asked.append(1)
        stop.set()
        return False

    costs = DeletionCosts(Cluster("http://127.0.0.1:1", "work", tmp_path), None, leads)
    async with asyncio.timeout(10):
        await costs.run(stop)

    assert asked == [1]


def test_outside_of_a_cluster_it_cannot_start(tmp_path):
    with pytest.raises(CannotStart, match="in a pod of a cluster only"):
        Cluster.around({}, tmp_path)
    with pytest.raises(CannotStart, match="automountServiceAccountToken"):
        Cluster.around({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)


def test_in_a_cluster_it_finds_its_namespace(tmp_path):
    (tmp_path / "namespace").write_text("work\n")
    (tmp_path / "token").write_text("good")
    shutil.copy(certifi.where(), tmp_path / "ca.crt")

    around = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = Cluster.around(around, tmp_path)

    assert (found.url, found.namespace) == ("https://[fd00::1]:6443", "work")
