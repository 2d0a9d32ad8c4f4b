"""A batch that real workers ran, Flower beside it, and a real browser to look with."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.cli.conftest import User, configured, endpoint, somebody  # noqa: F401  # a fixture

SCREENSHOTS = os.environ.get("ZUBBLE_SCREENSHOTS")
"""Where pictures of the pages are kept; nowhere without."""
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
VIEWER = ("viewer", "a-password")
TASKS = (*(f"good-{number}" for number in range(1, 6)), "bad-1", "bad-2", "odd-<img src=x onerror=alert(1)>")
LABELS = {"note": "<script>alert(2)</script>"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class Site:
    """Flower's address, and the user whose batch `b` it shows."""

    user: User
    address: str

    def batch(self) -> dict[str, Any]:
        return self.user.zubble("batch", "show", "b", "--json").json

    def tasks(self) -> dict[str, dict[str, Any]]:
        """By the id of the message that announced the only attempt."""
        listed = self.user.zubble("task", "ls", "b", "--json").json["tasks"]
        return {f"{task['task_id']}.1.1": task for task in listed}

    def api(self, path: str) -> dict[str, Any]:
        """What Flower's API answers."""
        answer = httpx.get(f"{self.address}/api/{path}", auth=VIEWER, timeout=30)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture(scope="session")
def site(tmp_path_factory, missing_part, endpoint) -> Iterator[Site]:  # noqa: F811
    pytest.importorskip("flower")
    with contextlib.contextmanager(somebody)(tmp_path_factory, missing_part) as user:
        yield _started(configured(user, endpoint))


def _started(user: User) -> Site:
    user.write("users", ":".join(VIEWER) + "\n")
    solved = user.task("good-before", verify={"command": "true"})  # which is invalid
    *tasks, hostile = TASKS
    user.tasks(*tasks, user.task(hostile, labels=LABELS), solved)
    user.start("up", "--workers", "2", "--slots", "2")
    user.wait_until(lambda: len(user.workers()) == 2, "two workers are there")
    port = _free_port()
    user.start("flower", "--port", str(port), "--users", "users", "--url-prefix", "flower")
    site = Site(user, f"http://127.0.0.1:{port}/flower")
    user.wait_until(lambda: _answers(f"{site.address}/healthcheck"), "Flower answers")
    said = user.submit("--json")
    assert said.code == 1, said.err
    return site


@pytest.fixture(scope="module")
def browser(missing_part) -> Iterator[Any]:
    """Closed after each module: while playwright is there, no asynchronous test can run in its thread."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        missing_part("Chromium is not installed (Debian: apt-get install chromium).")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture
def page(browser, site) -> Iterator[Any]:
    """A page of somebody who may look; an error of its programs, or a program of a task's, fails the test."""
    name, password = VIEWER
    context = browser.new_context(
        http_credentials={"username": name, "password": password},
        viewport={"width": 1_360, "height": 600},
        locale="en-GB",
        timezone_id="UTC",
    )
    opened, wrong = context.new_page(), []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    yield opened
    context.close()
    assert wrong == []


@pytest.fixture
def picture(page):
    """Keep a picture of the page under a name, where pictures are kept."""

    def picture(name: str) -> None:
        if SCREENSHOTS:
            page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")

    return picture


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status == 200
    return False
