"""Root file systems at the prompt: pulled, listed, removed, or refused in one sentence."""

from __future__ import annotations

import io
import json
import tarfile


def tar(path, **files: bytes) -> None:
    with tarfile.open(path, "w") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))


def test_an_image_is_pulled_listed_and_removed(ready):
    tar(ready.folder / "base-1.tar", file=b"content")
    pulled = ready.zubble("sandbox", "pull", "base-1.tar", "--json").json
    assert pulled["schema"] == "zubble.sandbox-pull/1"
    assert pulled["names"] == ["base-1"]
    again = ready.zubble("sandbox", "pull", "base-1.tar", "--name", "mine:2")
    assert again.out.startswith(f"base-1, mine:2: {pulled['digest']}, ")

    listed = ready.zubble("sandbox", "ls", "--json").json
    assert [image["names"] for image in listed["images"]] == [["base-1", "mine:2"]]
    assert "mine:2" in ready.zubble("sandbox", "ls").out

    assert ready.zubble("sandbox", "rm", "base-1").out == "Removed base-1.\n"
    assert ready.zubble("sandbox", "rm", pulled["digest"], "--json").json["removed"] == [
        {"names": ["mine:2"], "digest": pulled["digest"]}
    ]
    assert ready.zubble("sandbox", "ls").out == f"None are in {ready.home / 'images'}.\n"


def test_what_cannot_be_an_image_is_refused_and_leaves_nothing(ready):
    tar(ready.folder / "escape.tar", **{"../../planted": b"!"})
    ready.write("text.tar", "no tar at all")
    for source, sentence in {
        "none.tar": "none.tar is not there: name a tar file or a folder.",
        "text.tar": "text.tar is not a whole tar archive: truncated header.",
        "escape.tar": "The image holds the path '../../planted', which leads out of its root.",
    }.items():
        said = ready.zubble("sandbox", "pull", source)
        assert (said.code, said.out, said.problems) == (2, "", [sentence])
        as_json = ready.zubble("sandbox", "pull", source, "--json")
        assert json.loads(as_json.out)["problems"] == [sentence]
    assert not list((ready.home / "images").glob("sha256/*"))
    assert not list(ready.folder.rglob("planted"))


def test_removing_what_is_not_there_removes_nothing(ready):
    tar(ready.folder / "base.tar", file=b"content")
    ready.zubble("sandbox", "pull", "base.tar")
    said = ready.zubble("sandbox", "rm", "base", "nope")
    assert (said.code, said.out) == (2, "")
    assert said.problems == ["There is no image 'nope'; `zubble sandbox ls` lists them."]
    assert "base" in ready.zubble("sandbox", "ls").out


def test_commands_run_in_an_image_and_a_missing_one_is_refused_before_anything_is_created(ready):
    missing = "The image 'nope:1' is not on this machine: `zubble sandbox pull` it; `zubble sandbox ls` lists"
    ready.environment["ZUBBLE_WORKER__SANDBOXES"] = "local,bubblewrap"
    said = ready.zubble("sandbox", "exec", "--image", "nope:1", "--", "true")
    assert (said.code, said.out) == (2, "")
    assert said.problems[0].startswith(missing)
    ready.write("tasks.jsonl", [ready.task("a", sandbox={"backend": "bubblewrap", "image": "nope:1"})])
    said = ready.zubble("batch", "submit", "tasks.jsonl", "--model", "mock", "--wait")
    assert (said.code, said.out) == (2, "")
    assert said.problems[0].startswith(missing)
