"""The demo, as script/demo runs it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
RUN = ROOT / "examples" / "demo" / "run.py"


class Demo:
    """A demo that may still be running."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        self.home = home
        self._out, self._err = home.with_suffix(".out"), home.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(RUN), "--json", "--home", str(home), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **environment},
            )

    def result(self) -> dict[str, Any]:
        code = self.process.wait(timeout=300)
        assert code in {0, 1}, self._err.read_text(errors="replace")
        summary: dict[str, Any] = json.loads(self._out.read_text())
        return {**summary, "exit_code": code}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str, **environment: str) -> Demo:
        started.append(Demo(tmp_path / f"demo{len(started)}", *arguments, **environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(timeout=60)
