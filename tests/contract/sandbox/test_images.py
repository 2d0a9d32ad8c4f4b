"""bubblewrap with an image in place of the host's programs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import pytest

from benchmarks.docker_engine import SMALL_IMAGE, NoEngine, small_root
from zubble_queue.contracts.sandbox import MIB, Command, SandboxSpec, shell
from zubble_queue.errors import BadInput, JobError, SandboxUnavailable
from zubble_sandbox.bubblewrap import BubblewrapOptions, BubblewrapProvider
from zubble_sandbox.images.config import machine
from zubble_sandbox.images.store import Images

CONFIG = {"Env": ["PATH=/bin", "GREETING=hello", "HOME=/root"], "WorkingDir": "/app"}


def tar(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(content), 0o640, 1_700_000_000
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def saved(*layers: bytes) -> bytes:
    """As by `docker save`."""
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    about = {
        "architecture": machine(),
        "os": "linux",
        "config": CONFIG,
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    named = {f"{number}.tar": layer for number, layer in enumerate(layers)}
    manifest = [{"Config": "about.json", "RepoTags": ["small:1"], "Layers": list(named)}]
    return tar(
        **{"manifest.json": json.dumps(manifest).encode(), "about.json": json.dumps(about).encode(), **named}
    )


@pytest.fixture(scope="module")
def folder():
    """One that the users of sandboxes may pass, as pytest's own are not."""
    made = Path(tempfile.mkdtemp(prefix="zubble-images-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def image(folder, missing_part):
    """The digest of a small image with a file where its commands work."""
    try:
        root = small_root()
    except NoEngine as reason:
        missing_part(str(reason))
    more = tar(
        **{
            "etc/passwd": b"root:x:0:0::/root:/bin/sh",
            "etc/group": b"root:x:0:\n",
            "app/begin": b"here\n",
            "app/.hidden/deep": b"1",
            "opt/tests/theirs": b"1",
            "secret": b"of nobody",
        }
    )
    (folder / "small.tar").write_bytes(saved(root, more))
    return Images(folder / "images").pull(folder / "small.tar").digest


@pytest.fixture(scope="module")
def provider(folder, image, missing_part):
    provider = BubblewrapProvider(BubblewrapOptions(images_folder=folder / "images"))
    probe = asyncio.run(provider.probe())
    if not probe.available:
        missing_part(f"bubblewrap is not available: {'; '.join(probe.problems)}")
    return provider


@pytest.fixture
async def open_box(provider):
    boxes = []

    async def open_box(**changes):
        spec = SandboxSpec(name=f"image-{os.getpid()}", owner="test", **{"image": "small:1", **changes})
        boxes.append(await provider.open(spec))
        return boxes[-1]

    yield open_box
    for box in boxes:
        await box.destroy()


async def out(box, text: str) -> str:
    result = await box.exec(shell(text))
    assert result.ok, result
    return result.stdout.decode()


async def test_its_programs_are_there_and_the_hosts_are_not(open_box):
    box = await open_box()
    assert "etc" in await out(box, "ls /")
    assert (await box.exec(Command(("/usr/bin/env",)))).exit_code == 127
    assert (await box.exec(Command(("python3", "-c", "")))).exit_code == 127
    assert await out(box, "cat /secret; readlink /bin/ls") == "of nobodybusybox\n"


async def test_nothing_of_it_can_be_changed(open_box, image, folder):
    box = await open_box()
    for place in ("/", "/bin", "/etc", "/opt/tests"):
        result = await box.exec(shell(f"touch {place}/new"))
        assert b"Read-only file system" in result.stderr
    assert (await box.exec(shell("echo x >/etc/hosts"))).exit_code != 0
    assert (await box.exec(shell("echo x >/opt/tests/x || chmod 777 /secret || rm /bin/ls"))).exit_code != 0
    root = folder / "images" / "sha256" / image.removeprefix("sha256:") / "root"
    assert sorted(path.name for path in (root / "opt" / "tests").iterdir()) == ["theirs"]


async def test_its_variables_are_the_base_and_ours_stand_over_them(open_box):
    box = await open_box(env={"GREETING": "good day"})
    assert await out(box, "echo $PATH $HOME $GREETING") == "/bin /tmp good day\n"


async def test_its_users_are_known_and_so_is_ours(open_box):
    box = await open_box()
    assert await out(box, "whoami; id -gn; head -n1 /etc/passwd; wc -l </etc/passwd") == (
        "box\nbox\nroot:x:0:0::/root:/bin/sh\n2\n"
    )
    assert "localhost" in await out(box, "cat /etc/hosts")


async def test_the_work_tree_is_apart_unless_it_is_left_to_the_image(open_box):
    box = await open_box()
    assert await box.list() == []
    box = await open_box(work_dir=None)
    assert await out(box, "pwd; cat begin; echo changed >begin; echo $ZUBBLE_WORK; cat /work/begin") == (
        "/app\nhere\n/app\nchanged\n"
    )
    assert [entry.path for entry in await box.list()] == [".hidden", ".hidden/deep", "begin"]
    assert await box.read("begin") == b"changed\n"
    assert await box.read("/work/begin") == b"changed\n"
    again = await open_box(work_dir=None)
    assert await again.read("begin") == b"here\n", "the next begins anew"
    await again.restore(await box.snapshot())
    assert await again.read("begin") == b"changed\n"


async def test_what_it_holds_there_must_fit(open_box):
    with pytest.raises(JobError, match="holds more in /app"):
        await open_box(work_dir=None, work_bytes=3)


async def test_files_of_a_check_lie_in_new_folders_and_in_those_it_has(open_box):
    for place in ("/verify", "/tests/new", "/opt/tests"):
        box = await open_box(
            verify_dir=place, readonly_files={f"{place}/sub/check": b"#!/bin/sh\necho ran\n"}
        )
        assert await out(box, f"{place}/sub/check; ls {place}") == "ran\nsub\n"
        assert (await box.exec(shell(f"echo x >{place}/sub/check"))).exit_code != 0
        assert (await box.exec(shell(f"mkdir {place}/more"))).exit_code != 0


async def test_folders_it_has_no_place_for_are_refused(open_box):
    with pytest.raises(JobError, match="has no folder '/opt/nonesuch' and none can be made"):
        await open_box(verify_dir="/opt/nonesuch")
    with pytest.raises(JobError, match="has no folder '/bin/sh'"):
        await open_box(work_dir="/bin/sh")
    box = await open_box(scratch=("/logs/out", "/opt/tests"))
    assert (
        await out(box, "echo x >/logs/out/x; ls /opt/tests; echo y >/opt/tests/y; cat /logs/out/x") == "x\n"
    )


async def test_a_command_that_wants_all_memory_is_stopped_as_elsewhere(open_box):
    box = await open_box(memory_bytes=64 * MIB, work_bytes=4 * MIB, tmp_bytes=MIB)
    result = await box.exec(
        shell("head -c 300000000 /dev/zero | tail >/dev/null; exit $?", timeout_seconds=60)
    )
    assert not result.ok


@pytest.mark.parametrize("name", ["nope:1", "sha256:" + "0" * 64, "../../etc", "small:1/../.."])
async def test_an_image_that_is_not_here_is_one_sentence(open_box, name):
    with pytest.raises(JobError, match=r"is not on this machine: `zubble sandbox pull` it"):
        await open_box(image=name)


async def test_one_for_other_machines_is_one_sentence(open_box, image, folder):
    about = folder / "images" / "sha256" / image.removeprefix("sha256:") / "image.json"
    kept = about.read_text()
    other = "arm64" if machine() == "amd64" else "amd64"
    about.write_text(json.dumps({**json.loads(kept), "architecture": other}))
    try:
        with pytest.raises(JobError, match=f"is for {other} machines; this one is {machine()}"):
            await open_box()
    finally:
        about.write_text(kept)


async def test_it_stays_while_a_sandbox_runs_in_it(open_box, image, folder):
    images = Images(folder / "images")
    box = await open_box(image=image)
    with pytest.raises(BadInput, match="A sandbox runs in the image"):
        images.remove(image)
    await box.destroy()
    copy = images.pull(folder / "small.tar", name="copy:1")
    images.remove("copy:1")
    assert images.find(copy.digest) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives sandboxes users of their own")
async def test_images_where_no_user_can_get_to_are_refused_with_what_to_do(open_box, folder):
    folder.chmod(0o700)
    try:
        with pytest.raises(SandboxUnavailable, match=f"{folder} is closed to the users of sandboxes"):
            await open_box()
    finally:
        folder.chmod(0o711)


@pytest.mark.slow
def test_what_a_real_engine_saves_and_exports_can_be_pulled(docker_engine, tmp_path):
    with contextlib.closing(docker_engine.client()) as client:
        (tmp_path / "saved.tar").write_bytes(b"".join(client.get_image(SMALL_IMAGE)))
        container = client.create_container(SMALL_IMAGE, ["/bin/true"])["Id"]
        (tmp_path / "exported.tar").write_bytes(b"".join(client.export(container)))
        client.remove_container(container)
        known = client.inspect_image(SMALL_IMAGE)["Id"]
    images = Images(tmp_path / "images")
    from_save, from_export = (images.pull(tmp_path / f"{way}.tar", name=way) for way in ("saved", "exported"))
    assert from_save.source_digest == known, "what Docker calls it"
    assert images.find(known).digest == from_save.digest
    assert from_export.bytes == from_save.bytes > 0
    assert from_export.names == ("exported",)
