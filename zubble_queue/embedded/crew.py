"""Local workers: child processes that are restarted when they die, and that never outlive us."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, Self

from pydantic import ValidationError

from zubble_queue import whole_files
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.embedded.folder import Folder, try_lock
from zubble_queue.errors import BadInput, CannotStart, InfraError
from zubble_queue.settings import Settings

MODELS_FILE: Final = "models.json"
_RESTARTS: Final = 10
_RESTART_WINDOW_SECONDS: Final = 60.0
"""More than this many deaths in this time is a fault that another restart does not mend."""
_KILL_AFTER_SECONDS: Final = 45.0
"""Longer than a worker needs to drain and to hand over; it has left by then, or it hangs."""
_LOG_BYTES: Final = 10 * 1_048_576
_CANNOT_START: Final = 2
_POLL_SECONDS: Final = 0.05


class Crew:
    """The workers of one machine's embedded server; only one crew at a time works for it.

    Args:
        folder: The embedded server's.
        environment: What the workers are started with, from `worker_environment`.
        size: Worker processes.
    """

    def __init__(self, folder: Folder, environment: Mapping[str, str], size: int) -> None:
        self._folder, self._environment = folder, dict(environment)
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * size
        self._deaths: deque[float] = deque(maxlen=_RESTARTS)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        """Start the workers.

        Raises:
            CannotStart: Another crew works for this folder.
        """
        self._lock = _claimed(self._folder)
        for number in range(len(self._workers)):
            self._workers[number] = self._started(number)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def check(self) -> None:
        """Restart workers that died.

        Raises:
            CannotStart: One could not start; with its own words.
            InfraError: They die again and again.
        """
        for number, worker in enumerate(self._workers):
            if worker is None or worker.poll() is None:
                continue
            self._bury(number, worker.returncode)
            self._workers[number] = self._started(number)

    def stop(self) -> None:
        """Ask the workers to hand over and leave; kill those that do not. May be called again."""
        living = [worker for worker in self._workers if worker is not None and worker.poll() is None]
        for worker in living:
            worker.terminate()
        deadline = time.monotonic() + _KILL_AFTER_SECONDS
        while any(worker.poll() is None for worker in living) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self.kill()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def hurry(self) -> None:
        """A second signal: workers leave at once, and the leases of their attempts run out."""
        for worker in self._workers:
            if worker is not None and worker.poll() is None:
                worker.terminate()

    def kill(self) -> None:
        """End what is left of every worker's process group."""
        for number, worker in enumerate(self._workers):
            if worker is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                self._workers[number] = None

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        with self._log(number) as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "zubble_queue.cli", "worker", "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder.path,  # never the user's folder, nor a job's
                env=self._environment,
                start_new_session=True,  # Ctrl-C in a terminal is for us; we tell the workers
            )

    def _bury(self, number: int, code: int) -> None:
        words = self._last_words(number)
        if code == _CANNOT_START:
            raise CannotStart(f"A local worker cannot start. {words}")
        now = time.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == _RESTARTS and now - self._deaths[0] < _RESTART_WINDOW_SECONDS:
            raise InfraError(f"Local workers die again and again; see {self._log_path(number)}. {words}")

    def _last_words(self, number: int) -> str:
        lines = self._log_path(number).read_text(errors="replace").strip().splitlines()
        return lines[-1][-500:] if lines else "It wrote no log."

    def _log(self, number: int) -> IO[bytes]:
        path = self._log_path(number)
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        return path.open("ab")

    def _log_path(self, number: int) -> Path:
        return self._folder.logs / f"worker-{number + 1}.log"


def crew_is_at_work(folder: Folder) -> bool:
    """Whether somebody's workers serve this folder."""
    if not folder.path.is_dir():
        return False
    handle = folder.open_lock("crew.lock")
    try:
        return not try_lock(handle, exclusive=True)
    finally:
        os.close(handle)


def worker_environment(
    settings: Settings, url: str, models: Mapping[str, ModelConfig], slots: int | None
) -> dict[str, str]:
    """Our environment with what the workers must not find out for themselves, because they run elsewhere."""
    tables = {name: config.model_dump(mode="json", exclude_defaults=True) for name, config in models.items()}
    environment = {
        **os.environ,
        "ZUBBLE_HOME": str(settings.home),
        "ZUBBLE_REDIS_URL": url,
        "ZUBBLE_ARTIFACTS_URL": settings.artifacts_url,
        "ZUBBLE_MODELS": json.dumps(tables),
    }
    if settings.file is not None:
        environment["ZUBBLE_CONFIG"] = str(settings.file)
    if slots is not None:
        environment["ZUBBLE_WORKER__SLOTS"] = str(slots)
    return environment


def kept_models(folder: Folder) -> dict[str, ModelConfig]:
    """Models that an earlier `--endpoint` defined here, so that its batch can be resumed without it.

    Raises:
        BadInput: The file is damaged.
    """
    path = folder.path / MODELS_FILE
    try:
        tables = json.loads(path.read_bytes())
        return {name: ModelConfig.model_validate(table) for name, table in tables.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, ValidationError) as damaged:
        raise BadInput([f"{path} cannot be read; remove it and give --endpoint again."]) from damaged


def keep_model(folder: Folder, name: str, config: ModelConfig) -> None:
    """Remember a model that `--endpoint` defined. It names where the key is, and cannot hold it."""
    models = {**kept_models(folder), name: config}
    tables = {name: model.model_dump(mode="json", exclude_defaults=True) for name, model in models.items()}
    whole_files.write(folder.path / MODELS_FILE, json.dumps(tables, indent=2).encode())


def _claimed(folder: Folder) -> int:
    handle = folder.open_lock("crew.lock")
    if try_lock(handle, exclusive=True):
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle
    owner = os.pread(handle, 20, 0).decode(errors="replace") or "unknown"
    os.close(handle)
    raise CannotStart(
        f"Workers already run for {folder.path}, started by process {owner}; one crew is enough."
    )
