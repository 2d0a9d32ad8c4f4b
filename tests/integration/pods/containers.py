"""Containers as namespaces of bubblewrap's, with the volumes, users and commands of a pod's manifest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
from pathlib import Path

from zubble_sandbox import seccomp
from zubble_sandbox.opening import memory_file


class Container:
    """One container as namespaces of bubblewrap's."""

    def __init__(self, spec, pod, folder: Path, ground: int) -> None:
        self._spec, self._pod, self._folder, self._ground = spec, pod, folder, ground
        self._process = None
        self._init = 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Of its process 1, as this machine counts."""
        return self._init

    async def start(self) -> None:
        reading, writing = os.pipe()
        rules = memory_file(seccomp.filter_program(), "filter")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv(writing, rules),
                pass_fds=(writing, rules),
                env={"PATH": "/usr/bin"},
                start_new_session=True,
            )
        finally:
            os.close(writing)
            os.close(rules)
        self._status = os.fdopen(reading, "rb")  # it writes there again at its end
        self._init = json.loads(await asyncio.to_thread(self._status.readline))["child-pid"]
        while self.alive and _program_of(self._init) == "bwrap":  # noqa: ASYNC110 - it is not ready yet
            await asyncio.sleep(0.005)

    async def wait(self) -> int:
        code = await self._process.wait()
        self._status.close()
        return code

    async def exec(self, command):
        user = self._pod["securityContext"]["runAsUser"]
        return await asyncio.create_subprocess_exec(
            *(*inside(self._init, "mount", "pid", "net"), *as_user(user), *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/bin"},
            start_new_session=True,
        )

    async def kill(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init or self._process.pid, signal.SIGKILL)
            await self.wait()

    def _argv(self, status_fd: int, seccomp_fd: int) -> list[str]:
        options = ["--json-status-fd", str(status_fd), "--unshare-pid", "--unshare-ipc", "--as-pid-1"]
        options += ["--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        for folder in ("/bin", "/sbin", "/lib", "/lib64"):
            options += ["--symlink", f"usr{folder}", folder]
        options += ["--ro-bind", str(self._folder.parent / "image"), "/held"]
        for mount in self._spec["volumeMounts"]:
            volume = str(self._folder / mount["name"])
            if (parent := Path(mount["mountPath"]).parent) != Path("/"):
                options += ["--perms", "0755", "--dir", str(parent)]
            options += ["--ro-bind" if mount.get("readOnly") else "--bind", volume, mount["mountPath"]]
        options += ["--seccomp", str(seccomp_fd)]
        options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", self._spec["workingDir"], "--"]
        user = as_user(self._pod["securityContext"]["runAsUser"])
        return [*inside(self._ground, "net", "mount"), "bwrap", *options, *user, *self._spec["command"]]


async def new_ground(folder: Path, volumes) -> asyncio.subprocess.Process:
    """A process that holds what the containers of a pod share: volumes, mounted below a folder; a network.

    Both are gone with it, and it goes with us.
    """
    script = ["set -e", "ip link set lo up"]
    for volume in volumes:
        path = folder / volume["name"]
        path.mkdir(parents=True)
        size = volume["emptyDir"]["sizeLimit"]
        script.append(f"mount -t tmpfs -o size={size},mode=1777 zubble {shlex.quote(str(path))}")
    script += ["echo ready", "exec sleep infinity"]
    holder = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "sh", "-c", "\n".join(script)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert await holder.stdout.readline() == b"ready\n"
    return holder


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def as_user(uid: int) -> list[str]:
    return [
        *("/usr/bin/setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all"),
        *("--bounding-set=-all", "--no-new-privs", "--"),
    ]


def inside(pid: int, *namespaces: str) -> list[str]:
    return ["nsenter", "--target", str(pid), *(f"--{name}" for name in namespaces), "--"]


def kill_child(pid: int) -> None:
    """What nsenter started, which alone is in the namespaces."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
