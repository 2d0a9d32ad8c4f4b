"""No sandbox at all: commands run as the worker's user, in a temporary folder.

Only for places that are isolated already, or for commands one trusts. It is the worker's settings that allow
it, never a task alone; the worker checks that at the claim. What it shares with the real backends are the
promises about commands: bounded output, deadlines, and nothing left running.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from zubble_queue.contracts.sandbox import VERIFY_DIR, WORK_DIR, Probe, Sandbox, SandboxSpec
from zubble_queue.contracts.sandbox_options import SandboxOptions
from zubble_queue.errors import JobError
from zubble_sandbox import box, commands, probing
from zubble_sandbox.opening import Plan, adopt_sandbox, open_sandbox, reap_orphans
from zubble_sandbox.records import Record, Records, runtime_dir
from zubble_sandbox.removal import remove_folder
from zubble_sandbox.supervised import Setup


class LocalProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider` without isolation; its probe says so.

    A command sees the folder under its real name: `/work` and `/verify` mean it in `cwd` and in file
    operations, but not inside an argument. Scripts that run everywhere use $ZUBBLE_WORK and $ZUBBLE_VERIFY.
    Sizes and process limits of the spec are not enforced, and a network mode of 'none' is not kept.

    Args:
        folder: For records; `records.runtime_dir()` when None.
    """

    name: Final = "local"
    Options: Final = SandboxOptions

    def __init__(self, *, folder: Path | None = None) -> None:
        self._folder = folder

    @classmethod
    def from_options(cls, _options: SandboxOptions) -> LocalProvider:
        return cls()

    async def probe(self) -> Probe:
        probe = await probing.probe(self, lambda: {"isolation": "none", "limits": "none"}, checks={})
        return replace(probe, networks=("none", "open"))

    async def open(self, spec: SandboxSpec) -> Sandbox:
        _check_folders(spec)
        commands.check_readonly_files(spec)
        if spec.network == "allowlist":
            raise JobError(
                "The local backend shares the network of its worker and cannot keep an allow-list: "
                "use bubblewrap or docker."
            )
        records = Records(self._folder or runtime_dir())
        program = str(box.binary())
        record = Record.new(backend=self.name, spec=spec)
        home = Path(tempfile.gettempdir(), record.token.replace("zubble-", "zubble-local-"))
        record = replace(record, folder=str(home))
        with records.opening(record), ExitStack() as made:
            made.callback(remove_folder, record.folder)
            _make_folders(home, spec)
            plan = Plan(
                record=record,
                setup=_setup(home),
                argv=lambda arguments: (program, *arguments),
                pass_fds=(),
                after=made.pop_all().close,
            )
            return await open_sandbox(spec, records, plan)

    async def attach(self, handle: str) -> Sandbox:
        records = Records(self._folder or runtime_dir())
        record = await asyncio.to_thread(records.adopt, handle, self.name)
        assert record.folder is not None
        home = Path(record.folder)
        return await adopt_sandbox(
            records, record, lambda _: _setup(home), partial(remove_folder, record.folder)
        )

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        records = Records(self._folder or runtime_dir())
        return await asyncio.to_thread(reap_orphans, records, self.name, keep_owners)


def _check_folders(spec: SandboxSpec) -> None:
    if commands.work_dir(spec) != WORK_DIR or spec.verify_dir != VERIFY_DIR or spec.scratch or spec.image:
        raise JobError(
            f"The local backend has no file system of its own: no image, and no folders but {WORK_DIR} and "
            f"{VERIFY_DIR}."
        )


def _folders(home: Path) -> dict[str, Path]:
    return {name: home / name for name in ("work", "tmp", "verify")}


def _make_folders(home: Path, spec: SandboxSpec) -> None:
    home.mkdir(mode=0o700)
    folders = _folders(home)
    for folder in folders.values():
        folder.mkdir()
    for path, data in spec.readonly_files.items():
        target = folders["verify"] / Path(path).relative_to(VERIFY_DIR)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o555)


def _setup(home: Path) -> Setup:
    folders = {name: str(folder) for name, folder in _folders(home).items()}
    own = {"HOME": folders["tmp"], "TMPDIR": folders["tmp"]}
    places = {"ZUBBLE_WORK": folders["work"], "ZUBBLE_VERIFY": folders["verify"]}
    return Setup(mode="tree", folders=folders, env={**commands.BASE_ENV, **own, **places})
