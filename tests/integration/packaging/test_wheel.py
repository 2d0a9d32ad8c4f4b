"""The wheel holds the packages with all their data, and runs without the checkout."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    "zubble": ROOT / "worker/zubble",
    "zubble_queue": ROOT / "zubble_queue",
    "zubble_worker": ROOT / "worker/zubble_worker",
    "zubble_sandbox": ROOT / "sandbox/zubble_sandbox",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_exactly_the_packages(names: set[str]):
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_says_that_it_is_typed(names: set[str], package: str):
    assert f"{package}/py.typed" in names


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_a_package_is_in_the_wheel(names: set[str], package: str):
    folder = PACKAGES[package]
    files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {f"{package}/{path.relative_to(folder)}" for path in files} <= names


def test_the_scripts_that_run_inside_redis_are_in_the_wheel(names: set[str]):
    assert [name for name in names if name.startswith("zubble_queue/stores/lua/") and name.endswith(".lua")]


def test_the_wheel_is_for_this_machine_and_holds_the_program_that_runs_inside_sandboxes(wheel: Path):
    arch = platform.machine()
    assert wheel.name.endswith(f"-py3-none-linux_{arch}.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo(f"zubble_sandbox/bin/zubble-box-{arch}")
        assert info.external_attr >> 16 & 0o111, "it is executable"
        assert archive.read(info)[:4] == b"\x7fELF"


def test_the_source_distribution_holds_the_source_of_that_program_and_how_it_is_built(tmp_path: Path):
    _run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path), cwd=ROOT)
    [built] = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "sandbox/zubble_sandbox/box").glob("*.[ch]")}
    assert sources
    assert {*sources, "hatch_build.py", "pyproject.toml"} <= names
    assert not [name for name in names if "/bin/" in name]


def test_the_licence_is_in_the_wheel(names: set[str]):
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_command_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path):
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin/python"
    _run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        str(wheel),
    )
    # What it depends on is borrowed; the checkout is not: the .pth files of a borrowed folder do not count.
    [packages] = (home / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = _run(str(python), "-c", "import zubble_queue as z; print(z.__file__)", cwd=tmp_path)
    assert where.startswith(str(home))
    assert "batch" in _run(str(home / "bin/zubble"), "--help", cwd=tmp_path)


@pytest.mark.slow
def test_the_plain_install_is_enough_to_submit_and_watch(wheel: Path, tmp_path: Path):
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    locked = ROOT / "requirements-ci.txt"
    _run(str(home / "bin/pip"), "install", "-q", "-c", str(locked), str(wheel))
    for words in (["batch", "submit"], ["batch", "watch"], ["task", "ls"]):
        assert "Usage" in _run(str(home / "bin/zubble"), *words, "--help", cwd=tmp_path)
    listed = _run(str(home / "bin/pip"), "list", "--format", "freeze")
    assert f"zubble-queue=={version('zubble-queue')}" in listed
    assert not {"celery", "httpx", "kubernetes", "docker"} & {
        line.split("==")[0] for line in listed.splitlines()
    }


def _run(*command: str, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
