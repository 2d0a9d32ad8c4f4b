"""Two small images for a node without a registry, made of this machine's own programs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

_PROGRAMS = (
    "sh bash [ test cat chmod cp cut date dd df du echo env expr false find grep head hostname id kill ln"
    " ls mkdir mkfifo mktemp mv nproc od printf ps pwd python3 readlink rm rmdir sed seq setsid sha256sum"
    " sleep sort stat tail tee timeout touch tr true truncate uname wc whoami xargs yes"
)
"""What conformance and the canary run."""
_PAUSE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


def sandbox_image(tag: str) -> bytes:
    """A docker archive: a shell, the usual tools and Python, from /usr of this machine."""
    files: dict[str, Path] = {}
    _add_python(files)
    return _system(tag, _PROGRAMS, files)


def redis_image(tag: str) -> bytes:
    """The queue's server and its client, where this machine has them, with the shell that starts them."""
    return _system(tag, "sh cat grep mkdir ls redis-server redis-cli", {})


def _system(tag: str, programs: str, files: dict[str, Path]) -> bytes:
    for name in programs.split():
        if found := shutil.which(name, path="/usr/bin:/bin"):
            _add(files, Path(f"/usr/bin/{name}"), Path(found).resolve())
    links = {"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
    passwd = {"etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n", "etc/group": b"root:x:0:\n"}
    return _archive(
        tag, _layer(files, links, passwd, ("tmp", "work", "proc", "dev", "sys", "run")), ["/bin/sh"]
    )


def pause_image(tag: str) -> bytes:
    """What holds the namespaces of a pod."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "pause.c"), Path(folder, "pause")
        source.write_text(_PAUSE)
        subprocess.run(["cc", "-static", "-Os", "-s", "-o", program, source], check=True)
        return _archive(tag, _layer({"pause": program}, {}, {}, ()), ["/pause"])


def _add(files: dict[str, Path], at: Path, source: Path) -> None:
    """A program and the libraries it says it needs, below /usr."""
    files[str(at).lstrip("/")] = source
    told = subprocess.run(["ldd", source], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+) \(0x", told):
        path = Path(library)
        wanted = "usr" + str(path) if not str(path).startswith("/usr") else str(path).lstrip("/")
        files.setdefault(wanted, path.resolve())


def _add_python(files: dict[str, Path]) -> None:
    source = Path("/usr/bin/python3").resolve()
    library = Path(f"/usr/lib/{source.name}")
    _add(files, Path("/usr/bin", source.name), source)
    for path in library.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and "test" not in path.parts:
            if path.suffix == ".so":
                _add(files, path, path.resolve())
            else:
                files[str(path).lstrip("/")] = path.resolve()


def _layer(
    files: dict[str, Path], links: dict[str, str], texts: dict[str, bytes], folders: Iterable[str]
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(entry)
        for name, source in sorted(files.items()):
            data = source.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if os.access(source, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(data))
        for name, data in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _archive(tag: str, layer: bytes, command: list[str]) -> bytes:
    """What `docker save` writes and `ctr images import` reads."""
    digest = hashlib.sha256(layer).hexdigest()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    index = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file, data in ((name, config), ("layer.tar", layer), ("manifest.json", index)):
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
