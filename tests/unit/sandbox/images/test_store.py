"""The images of a machine: by content, under names, held by those that use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zubble_queue.errors import BadInput
from zubble_sandbox.images.store import Images


def test_the_same_content_is_kept_once_under_both_names(make, pull, images):
    first, _ = pull(make.files({"a": b"1"}), name="one")
    second, _ = pull(make.files({"a": b"1"}), name="two")
    assert first.digest == second.digest
    assert second.names == ("one", "two")
    assert [image.names for image in images] == [("one", "two")]


def test_a_name_moves_to_what_was_pulled_last(make, pull, images):
    old, _ = pull(make.files({"a": b"1"}), name="it")
    new, _ = pull(make.files({"a": b"2"}), name="it")
    assert images.find("it").digest == new.digest != old.digest
    assert [(image.digest, image.names) for image in images] == [(new.digest, ("it",)), (old.digest, ())]


def test_an_image_is_found_by_every_way_to_name_it(make, pull, images):
    image, _ = pull(make.saved(make.files({"a": b"1"})))
    digits, other = image.digest.removeprefix("sha256:"), image.source_digest.removeprefix("sha256:")
    for reference in ("thing:1", image.digest, digits, digits[:12], image.source_digest, other[:20]):
        assert images.find(reference).digest == image.digest, reference
    for reference in ("thing", digits[:11], "sha256:", "", "0" * 64, "../../etc", "x" * 5_000, "a\0b"):
        assert images.find(reference) is None, reference


def test_the_last_name_takes_the_image_along(make, pull, images, nothing_left):
    pull(make.files({"a": b"1"}), name="one")
    pull(make.files({"a": b"1"}), name="two")
    assert images.remove("one").names == ("one",)
    assert images.find("two") is not None
    images.remove("two")
    assert list(images) == []
    with pytest.raises(BadInput, match="There is no image 'two'"):
        images.remove("two")


def test_a_digest_takes_all_its_names_along(make, pull, images):
    image, _ = pull(make.files({"a": b"1"}), name="one")
    pull(make.files({"a": b"1"}), name="two")
    assert images.remove(image.digest).names == ("one", "two")
    assert list(images) == []


def test_an_image_in_use_is_not_removed(make, pull, images):
    pull(make.files({"a": b"1"}), name="it")
    held = images.hold("it")
    with pytest.raises(BadInput, match="A sandbox runs in the image 'it'"):
        images.remove("it")
    assert [path.name for path in Path(f"/proc/self/fd/{held.root_fd}").iterdir()] == ["a"]
    held.give_back()
    images.remove("it")
    with pytest.raises(BadInput, match="is not on this machine"):
        images.hold("it")


def test_an_image_of_a_process_that_died_can_be_removed(make, pull, images, tmp_path):
    pull(make.files({"a": b"1"}), name="it")
    code = (
        "import sys; from pathlib import Path; from zubble_sandbox.images.store import Images\n"
        "held = Images(Path(sys.argv[1])).hold('it'); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, tmp_path / "images"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BadInput, match="A sandbox runs"):
            images.remove("it")
        holder.kill()
    images.remove("it")


def test_what_a_killed_pull_left_is_removed_by_the_next(make, pull, images, tmp_path):
    (tmp_path / "images" / "new-0").mkdir(parents=True)
    (tmp_path / "images").chmod(0o700)
    (tmp_path / "images" / "new-0" / "left").touch()
    pull(make.files({"a": b"1"}))
    assert list((tmp_path / "images").glob("new-*")) == []


@pytest.mark.parametrize("name", ["", "-x", "a b", "sha256:abc", "0123456789ab", "x" * 201, "a\n", "../x"])
def test_a_name_that_could_be_mistaken_is_refused(make, pull, name):
    with pytest.raises(BadInput, match="cannot be called"):
        pull(make.files({"a": b"1"}), name=name)


def test_a_source_without_a_usable_name_asks_for_one(make, pull, nothing_left):
    with pytest.raises(BadInput, match="give it one with --name"):
        pull(make.files({"a": b"1"}), file="-.tar")
    nothing_left()


def test_a_source_that_is_not_there_is_named(images):
    with pytest.raises(BadInput, match="/nonesuch is not there"):
        images.pull(Path("/nonesuch"))


def test_a_folder_that_others_may_write_to_takes_no_images(make, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "a.tar").write_bytes(make.files({"a": b"1"}))
    with pytest.raises(BadInput, match="this user alone may write to"):
        Images(tmp_path / "open").pull(tmp_path / "a.tar")
