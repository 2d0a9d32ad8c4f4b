"""A Harbor task in an image that has something at its working directory: docker's, and bubblewrap's own."""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from zubble_queue.contracts.envelope import SandboxRequest
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Submission, TaskDefaults
from zubble_queue.formats import harbor
from zubble_queue.testing import structured_reply as say
from zubble_sandbox.images.store import Images

from .conftest import BATCH, wait_until

pytestmark = pytest.mark.slow

IMAGE = "zubble-words:1"
TOML = f"""
[agent]
timeout_sec = 300
[environment]
docker_image = "{IMAGE}"
network_mode = "no-network"
memory_mb = 256
storage_mb = 64
"""
TEST = """#!/bin/sh
cd /srv/words || exit 1
test "$(cat list.txt)" = "two words" && test "$(cat count.txt)" = 2 && reward=1
echo ${reward:-0} >/logs/verifier/reward.txt
"""
COUNT = say("run", command="pwd; wc -w <list.txt | tr -d ' ' >count.txt", reasoning="as asked")


def root() -> bytes:
    """A static busybox, and a work tree that somebody prepared."""
    from benchmarks.docker_engine import small_root

    layers = io.BytesIO(small_root())
    with tarfile.open(fileobj=layers, mode="a") as tar:
        data = b"two words\n"
        entry = tarfile.TarInfo("srv/words/list.txt")
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    return layers.getvalue()


@pytest.fixture(scope="module")
def engine(docker_engine):
    docker_engine.make_image(IMAGE, root(), ["ENV PATH=/bin", "WORKDIR /srv/words"])
    return docker_engine


@pytest.fixture
def images(engine) -> Iterator[Path]:
    """The image as `docker save` writes it, pulled to where sandboxes of other users find it."""
    folder = Path(tempfile.mkdtemp(prefix="zubble-images-"))
    folder.chmod(0o755)
    archive = folder / "saved.tar"
    with contextlib.closing(engine.client()) as api:
        archive.write_bytes(b"".join(api.get_image(IMAGE)))
    Images(folder / "images").pull(archive)
    yield folder / "images"
    shutil.rmtree(folder)


@pytest.fixture(params=["docker", "bubblewrap"])
def environment(request, engine) -> dict[str, str]:
    """The worker's settings for a backend."""
    if request.param == "docker":
        return {
            "ZUBBLE_WORKER__SANDBOXES": "docker",
            "ZUBBLE_SANDBOXES__DOCKER__HOST": engine.host,
            "ZUBBLE_SANDBOXES__DOCKER__MIN_FREE_MB": "100",
        }
    folder = request.getfixturevalue("images")
    return {"ZUBBLE_WORKER__SANDBOXES": "bubblewrap", "ZUBBLE_IMAGES_FOLDER": str(folder)}


async def test_what_the_image_has_is_worked_on_judged_and_no_edit(install, environment, tmp_path):
    task = tmp_path / "tasks" / "words"
    (task / "tests").mkdir(parents=True)
    (task / "task.toml").write_text(TOML)
    (task / "instruction.md").write_text("This is task words.\n")
    (task / "tests/test.sh").write_text(TEST)
    zubble = await install({"words": [COUNT, say("submit", report="done")]})
    backend = SandboxRequest(backend=environment["ZUBBLE_WORKER__SANDBOXES"])
    parcels = harbor.read(task, TaskDefaults(batch=BATCH, model="mock", sandbox=backend))
    await zubble.dispatcher.submit(Submission(BatchInfo(name=BATCH, model="mock"), parcels))
    zubble.start_worker(**environment)

    async def is_sealed():
        view = await zubble.store.find("words", BATCH)
        return view.ending

    ending = await wait_until(is_sealed, "the task is sealed", 90, evidence=zubble.log)

    assert (ending.outcome, ending.reward) == ("verified", 1.0), zubble.log()
    assert ending.files_touched == ("count.txt",), "what the image has was there before"
    assert b"/srv/words" in zubble.artifacts.get(ending.artifacts["trajectory"])
