import errno
import os
import stat

import pytest

from zubble_queue import artifacts as module
from zubble_queue.artifacts import ArtifactStore, reference
from zubble_queue.errors import CannotStart, InfraError

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture(params=["folder", "file-url", "memory"])
def store(request, tmp_path):
    urls = {
        "folder": str(tmp_path / "a" / "artifacts"),
        "file-url": f"file://{tmp_path}/artifacts",
        "memory": f"memory://{tmp_path.name}",
    }
    return ArtifactStore(urls[request.param])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "artifacts"


def test_what_is_put_comes_back(store):
    blob = store.put(b"\x00content\xff")

    assert store.get(blob) == store.get(blob.ref) == b"\x00content\xff"
    assert (blob.ref, blob.size, blob.executable) == (reference(b"\x00content\xff"), 9, False)


def test_an_executable_is_the_same_content_with_a_mark(store):
    assert store.put(b"x", executable=True).executable
    assert store.put(b"x").ref == store.put(b"x", executable=True).ref


def test_empty_content_is_content(store):
    assert store.put(b"").ref == EMPTY
    assert store.get(EMPTY) == b""


def test_what_was_never_put_is_not_there(store):
    assert not store.has(EMPTY)
    with pytest.raises(InfraError, match=f"^Artifact {EMPTY} is not in "):
        store.get(EMPTY)


def test_what_was_put_is_there(store):
    assert store.has(store.put(b"x"))


@pytest.mark.parametrize("ref", ["../../etc/passwd", "sha256:../x", "md5:00", "sha256:" + "A" * 64])
def test_a_string_that_is_no_reference_reaches_no_file(store, ref):
    for use in (store.get, store.has):
        with pytest.raises(ValueError, match="ref"):
            use(ref)


async def test_the_same_can_be_done_without_blocking_the_loop(store):
    blob = await store.aput(b"x", executable=True)

    assert await store.ahas(blob)
    assert await store.aget(blob) == b"x"
    assert blob.executable


def test_damaged_content_is_not_handed_out(folder):
    store = ArtifactStore(str(folder))
    blob = store.put(b"right")
    [path] = [path for path in folder.rglob("*") if path.is_file()]
    path.write_bytes(b"wrong")

    with pytest.raises(InfraError, match="is damaged"):
        store.get(blob)


def test_content_that_a_crash_left_empty_is_written_again(folder):
    store = ArtifactStore(str(folder))
    blob = store.put(b"right")
    [path] = [path for path in folder.rglob("*") if path.is_file()]
    path.write_bytes(b"")

    store.put(b"right")

    assert store.get(blob) == b"right"


def test_a_blob_lies_where_its_digest_says(folder):
    blob = ArtifactStore(str(folder)).put(b"x")
    digest = blob.ref.removeprefix("sha256:")

    assert (folder / "sha256" / digest[:2] / digest[2:]).read_bytes() == b"x"


def test_the_folder_is_its_owners_alone(folder):
    ArtifactStore(str(folder)).put(b"x")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_but_the_blob_is_left_behind(folder):
    store = ArtifactStore(str(folder))
    for _ in range(3):
        store.put(b"x")

    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1


def test_a_write_that_fails_leaves_no_half_a_file(folder, monkeypatch):
    store = ArtifactStore(str(folder))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(InfraError, match=rf"^No space left for artifacts in {folder}\.$"):
        store.put(b"x")

    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert not store.has(reference(b"x"))


def test_no_space_is_told_apart_from_other_failures(folder, monkeypatch):
    store = ArtifactStore(str(folder))

    def denied(_):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(module.os, "fsync", denied)
    with pytest.raises(InfraError, match=r"cannot be reached: Permission denied\.$"):
        store.put(b"x")


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(CannotStart, match=r"^The artifact folder .*file/artifacts cannot be made: .*\.$"):
        ArtifactStore(str(tmp_path / "file" / "artifacts"))


def test_a_file_system_that_is_not_known_is_one_sentence():
    with pytest.raises(CannotStart, match="Artifacts cannot be kept at 'gopher://x'"):
        ArtifactStore("gopher://x")
