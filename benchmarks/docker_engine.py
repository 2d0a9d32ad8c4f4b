"""A Docker engine of one's own, for tests and measurements: started without a service manager.

It has its own data, its own socket, no bridge and no firewall rules, and ends with everything it ran. It
needs root, Debian's `docker.io`, and for the small image `busybox-static`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import docker

SMALL_IMAGE: Final = "zubble-small:1"
"""A static busybox and nothing else, not even a folder for anything."""
TOOLS_IMAGE: Final = "zubble-tools:1"
"""The programs of this machine that checks are written with, Python among them."""
_PROGRAMS: Final = (
    *(
        "sh",
        "env",
        "cat",
        "ls",
        "head",
        "tail",
        "tr",
        "wc",
        "sort",
        "cut",
        "du",
        "df",
        "dd",
        "touch",
        "truncate",
        "readlink",
    ),
    *(
        "mkdir",
        "mkfifo",
        "mknod",
        "ln",
        "mv",
        "cp",
        "rm",
        "rmdir",
        "chmod",
        "chown",
        "stat",
        "id",
        "uname",
        "date",
    ),
    *(
        "printf",
        "echo",
        "true",
        "false",
        "sleep",
        "pwd",
        "test",
        "seq",
        "yes",
        "tee",
        "timeout",
        "kill",
        "nohup",
    ),
    *("grep", "sed", "find", "xargs", "setsid", "mount", "umount", "su", "unshare", "nsenter", "python3"),
)
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 30.0


class NoEngine(Exception):
    """What is missing here, as a sentence."""


class DockerEngine:
    """One running `dockerd`; made by `running`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/sock"
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Raises NoEngine with the end of its log when it does not come up."""
        configuration = self.folder / "daemon.json"
        configuration.write_text(json.dumps({"runtimes": _runtimes()}))
        argv = [
            *("dockerd", "--config-file", str(configuration)),
            *("--data-root", str(self.data), "--exec-root", str(self.folder / "exec")),
            *("--pidfile", str(self.folder / "pid"), "--host", self.host),
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        ]
        (self.folder / "pid").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise NoEngine(f"dockerd does not start here: {self._last_line()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """As a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it, and with it its containers; what a killed one left is ended by pid."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        for pid in self._left_over():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def client(self) -> docker.APIClient:
        """To be closed by whoever asks."""
        return docker.APIClient(self.host, version="auto", timeout=60)

    def make_image(self, name: str, archive: bytes, changes: Iterable[str] = ()) -> None:
        """From a tar of its root file system."""
        with contextlib.closing(self.client()) as api:
            repository, _, tag = name.partition(":")
            api.import_image_from_data(archive, repository=repository, tag=tag, changes=list(changes))

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
                knocking.connect(str(self.folder / "sock"))
            with contextlib.closing(self.client()) as api:
                return bool(api.ping())
        except (OSError, docker.errors.DockerException):
            return False

    def _left_over(self) -> list[int]:
        """Processes, such as containerd and its shims, that name our folder."""
        mark = os.fsencode(self.folder)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    def _last_line(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


def _runtimes() -> dict[str, Any]:
    """gVisor, where it is installed; without a network of its own there is no bridge to look for."""
    runsc = shutil.which("runsc")
    arguments = ["--network=none", "--platform=ptrace", "--oci-seccomp"]
    return {} if runsc is None else {"runsc": {"path": runsc, "runtimeArgs": arguments}}


@contextlib.contextmanager
def running(*, images: bool = True) -> Iterator[DockerEngine]:
    """An engine with SMALL_IMAGE and TOOLS_IMAGE, for as long as the block. Raises NoEngine."""
    if os.geteuid() != 0:
        raise NoEngine("dockerd needs root.")
    if shutil.which("dockerd") is None:
        raise NoEngine("dockerd is not installed (Debian: apt-get install docker.io).")
    folder = Path(tempfile.mkdtemp(prefix="zubble-engine-"))
    engine = DockerEngine(folder)
    try:
        engine.start()
        if images:
            engine.make_image(SMALL_IMAGE, small_root(), ["ENV PATH=/bin"])
            engine.make_image(TOOLS_IMAGE, tools_root())
        yield engine
    finally:
        engine.stop()
        _remove(folder)


def small_root() -> bytes:
    """A static busybox under the names of what it can do. Raises NoEngine without one."""
    busybox = shutil.which("busybox")
    if busybox is None or _libraries(busybox):
        raise NoEngine("A static busybox is missing (Debian: apt-get install busybox-static).")
    names = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in names:
            if name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    return file.getvalue()


def tools_root() -> bytes:
    """Programs of this machine with the libraries they load, and Python with its own."""
    programs = {
        name: path for name in _PROGRAMS if (path := shutil.which(name, path="/usr/bin:/bin:/usr/sbin"))
    }
    files = {path for program in programs.values() for path in (program, *_libraries(program))}
    python = Path(programs["python3"]).resolve()
    library = Path("/usr/lib") / python.name
    for module in (library / "lib-dynload").glob("*.so"):
        files.update(_libraries(str(module)))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for path in sorted(files):
            tar.add(Path(path).resolve(), f"usr{path}" if path.startswith(("/bin", "/lib")) else path[1:])
        tar.add(library, str(library)[1:], filter=_without_caches)
        if Path(_CERTIFICATES).exists():
            tar.add(_CERTIFICATES, _CERTIFICATES[1:])
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    return file.getvalue()


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(Path(entry.name).parts)
    return None if parts & {"__pycache__", "test", "ensurepip", "idlelib", "dist-packages"} else entry


def _libraries(program: str) -> list[str]:
    """What the loader would load; none for a static program or a script."""
    said = subprocess.run(["ldd", program], check=False, capture_output=True, text=True).stdout
    return re.findall(r"(/\S+\.so\S*)", said)


def _remove(folder: Path) -> None:
    """Mounts of containers may take a moment to be gone."""
    deadline = time.monotonic() + _END_SECONDS
    while folder.exists():
        for mount in _mounts_below(folder):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > deadline:
            raise OSError(f"{folder} cannot be removed")


def _mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4] for line in lines]
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)
