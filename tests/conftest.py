"""What every test gets: an environment of its own, and one rule about parts that are missing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.record import TaskState, TaskView

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # the benchmarks lie beside the product, and not in it

_FOLDERS = {
    "HOME": "home",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
}
_FULL_SIZES = bool(os.environ.get("ZUBBLE_TEST_FULL"))

# A loaded machine is slow; that is no property of the code.
hypothesis.settings.register_profile(
    "patient",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")


def ci() -> bool:
    """Whether a missing part is a failure (in CI) or a reason to skip (on a laptop)."""
    return bool(os.environ.get("CI"))


@pytest.fixture(scope="session")
def missing_part() -> Callable[[str], NoReturn]:
    """Call it with one sentence when a part is not to be had: skips on a laptop, fails in CI."""

    def give_up(reason: str) -> NoReturn:
        if ci():
            pytest.fail(f"{reason} CI must have it.", pytrace=False)
        pytest.skip(reason)

    return give_up


@pytest.fixture(scope="session")
def task_view() -> Callable[..., TaskView]:
    """A sealed task as the store shows it; keyword arguments are its fields."""
    usual = {
        "task_id": "1-a-00000000",
        "batch": "b",
        "source_id": "a",
        "repeat": 1,
        "round": 1,
        "attempt": 1,
        "state": TaskState.SEALED,
        "abnormal_ends": 0,
        "task_type": "task",
        "model": "m",
        "worker": "w",
        "content_hash": "0" * 64,
        "cancel_requested": False,
        "usage": Usage(),
        "ending": None,
        "created_at": 1.0,
        "claimed_at": 2.0,
        "sealed_at": 3.0,
        "lease_until": None,
    }

    def make(**fields: Any) -> TaskView:
        return TaskView(**{**usual, **fields})

    return make


@pytest.fixture(scope="session")
def full_sizes() -> bool:
    """Whether slow tests run at their full sizes (script/test-all)."""
    return _FULL_SIZES


@pytest.fixture(scope="session")
def docker_engine(missing_part):
    """A Docker engine of our own, with two small images; what uses it is slow."""
    from benchmarks.docker_engine import NoEngine, running

    with contextlib.ExitStack() as ending:
        try:
            engine = ending.enter_context(running())
        except NoEngine as missing:
            missing_part(str(missing))
        yield engine


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No ZUBBLE_ variable and no folder of the user's reaches a test; returns the test's own home."""
    for name in [name for name in os.environ if name.startswith("ZUBBLE_")]:
        monkeypatch.delenv(name)
    root = tmp_path_factory.mktemp("user")
    for name, folder in _FOLDERS.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(root / folder))
    return root / "home"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, with a count for each reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons = Counter(_reason(report) for report in skipped)
    terminalreporter.section(f"not tested here: {len(skipped)}")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:5}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
