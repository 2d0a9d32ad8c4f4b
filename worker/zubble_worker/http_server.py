"""A small HTTP server beside the event loop: metrics, health, and what a dispatcher is asked.

Requests are answered in threads of their own, so that a slow reader holds up nobody. Nobody is asked who he
is, and nothing can be changed; where it listens is its owner's to say.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import TimeoutError as LoopTimeoutError
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, disable_created_metrics, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from zubble_queue.errors import CannotStart

T = TypeVar("T")

LOOP_SECONDS: Final = 5.0
"""An event loop that does not come to a question within this hangs."""
_READ_SECONDS: Final = 10.0
"""A client that says nothing for so long is left."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and text or JSON."""

    status: HTTPStatus
    body: str | Mapping[str, Any]


Route = Callable[[Mapping[str, str]], Answer]
"""Answers a query: each name with its last value."""


class Bridge:
    """Asks the event loop from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def ask(self, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What it returns or raises. Raises TimeoutError where the loop hangs."""
        asked = asyncio.run_coroutine_threadsafe(question(), self._loop)
        try:
            return asked.result(2 * LOOP_SECONDS)
        except LoopTimeoutError as late:
            asked.cancel()
            raise TimeoutError("the event loop did not answer") from late

    def health(self, _query: Mapping[str, str]) -> Answer:
        """Whether the loop turns."""
        turned = threading.Event()
        try:
            self._loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, "stopped\n")
        if turned.wait(LOOP_SECONDS):
            return Answer(HTTPStatus.OK, "ok\n")
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"the event loop is {LOOP_SECONDS:g} s late\n")


class HttpServer:
    """Listens from the moment it is made.

    Args:
        address: Where.
        port: 0 takes a free one.
        registry: What /metrics shows.
        routes: What else there is, by path.

    Raises:
        CannotStart: The address is not to be had.
    """

    def __init__(
        self, address: str, port: int, registry: CollectorRegistry, routes: Mapping[str, Route]
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter
        application = _application(make_wsgi_app(registry), routes)
        try:
            self._server = make_server(address, port, application, ThreadingWSGIServer, _Handler)
        except (OSError, OverflowError) as refused:
            reason = getattr(refused, "strerror", None) or refused
            raise CannotStart(f"{address}:{port} is not to be had: {reason}.") from refused
        self.address, self.port = address, self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(WSGIRequestHandler):
    timeout = _READ_SECONDS

    def log_message(self, *_arguments: object) -> None:
        """A probe every few seconds is nothing to write down."""


def _application(metrics: WSGIApplication, routes: Mapping[str, Route]) -> WSGIApplication:
    def application(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "/")
        if environment["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return _send(Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET\n"), start)
        if path == "/metrics":
            return metrics(environment, start)
        route = routes.get(path)
        query = parse_qs(environment.get("QUERY_STRING", ""), keep_blank_values=True)
        return _send(route(_last(query)) if route else _unknown(routes), start)

    return application


def _last(query: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: values[-1] for name, values in query.items()}


def _unknown(routes: Iterable[str]) -> Answer:
    paths = ", ".join(sorted(["/metrics", *routes]))
    return Answer(HTTPStatus.NOT_FOUND, f"there are {paths}\n")


def _send(answer: Answer, start: StartResponse) -> list[bytes]:
    is_text = isinstance(answer.body, str)
    body = str(answer.body) if is_text else json.dumps(answer.body, ensure_ascii=False) + "\n"
    kind = "text/plain; charset=utf-8" if is_text else "application/json"
    data = body.encode()
    status = f"{answer.status.value} {answer.status.phrase}"
    start(status, [("Content-Type", kind), ("Content-Length", str(len(data)))])
    return [data]
