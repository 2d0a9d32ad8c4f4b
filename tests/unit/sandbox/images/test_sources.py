"""What others write, read as the work of strangers."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile

import pytest

from zubble_queue.errors import BadInput
from zubble_sandbox.images.config import machine

OTHER = "arm64" if machine() == "amd64" else "amd64"


def test_docker_save_is_read_with_its_name_and_what_it_expects(make, pull):
    image, root = pull(make.saved(make.files({"a": b"1"}), make.files({"b": b"2"})))
    assert sorted(path.name for path in root.iterdir()) == ["a", "b"]
    assert image.names == ("thing:1",)
    assert image.env == {"PATH": "/opt/bin:/bin", "LANG": "C"}
    assert image.working_dir == "/app"
    assert image.architecture == machine()
    assert image.source_digest.startswith("sha256:")


def test_one_of_several_saved_images_is_chosen_by_its_tag(make, pull, tmp_path):
    layer, other = make.files({"a": b"1"}), make.files({"b": b"2"})
    manifest = [
        {"Config": "1.json", "RepoTags": ["one:1"], "Layers": ["1.tar"]},
        {"Config": "2.json", "RepoTags": ["two:1", "two:2"], "Layers": ["2.tar"]},
    ]
    data = make.files(
        {
            "manifest.json": json.dumps(manifest).encode(),
            "1.json": json.dumps(make.config(layer)).encode(),
            "2.json": json.dumps(make.config(other)).encode(),
            "1.tar": layer,
            "2.tar": other,
        }
    )
    with pytest.raises(BadInput, match=r"choose one with --name \(one:1, two:1, two:2\)"):
        pull(data)
    image, root = pull(data, name="two:2")
    assert [path.name for path in root.iterdir()] == ["b"]
    assert image.names == ("two:2",)


def test_an_equal_layer_that_older_dockers_save_as_a_link_is_followed(make, pull):
    layer = make.files({"a": b"1"})
    manifest = [{"Config": "c.json", "RepoTags": ["x"], "Layers": ["1/layer.tar", "2/layer.tar"]}]
    data = make.tar(
        make.member("manifest.json", json.dumps(manifest).encode()),
        make.member("c.json", json.dumps(make.config(layer, layer)).encode()),
        make.member("1/layer.tar", layer),
        make.link("2/layer.tar", "../1/layer.tar"),
    )
    pull(data)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
def test_a_compressed_tar_is_the_same_image(make, pull, compress):
    data = make.files({"a": b"1"})
    assert pull(compress(data), file="x.tar.packed")[0].digest == pull(data)[0].digest


def test_an_exported_tar_is_called_like_its_file(make, pull):
    image, _ = pull(make.files({"a": b"1"}), file="debian-12.tar.gz")
    assert image.names == ("debian-12",)
    assert (image.env, image.working_dir, image.source_digest) == ({}, None, None)


def test_a_root_that_holds_a_manifest_of_its_own_is_a_root(make, pull):
    _, root = pull(make.files({"manifest.json": b"[1]", "index.json": b"{}", "a": b"1"}))
    assert sorted(path.name for path in root.iterdir()) == ["a", "index.json", "manifest.json"]


def test_a_folder_is_the_same_image_as_a_tar_of_it(make, pull, images, tmp_path):
    folder = tmp_path / "root"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc" / "x").write_text("1")
    (folder / "link").symlink_to("etc")
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(folder, arcname=".")
    assert images.pull(folder).digest == images.pull(tmp_path / "root.tar").digest


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "tar"])
def test_an_oci_layout_is_read_for_this_machine(make, images, tmp_path, packed):
    folder = tmp_path / "layout"
    mine, other = make.files({"mine": b"1"}), make.files({"other": b"1"})
    make.layout(
        folder,
        {"layers": [other], "architecture": OTHER},
        {"layers": [mine], "architecture": machine(), "name": "v1"},
        {"layers": [other], "architecture": "unknown"},
    )
    source = folder
    if packed:
        source = tmp_path / "layout.tar"
        with tarfile.open(source, "w") as tar:
            tar.add(folder, arcname=".")
    image = images.pull(source)
    assert image.names == ("v1",)
    assert (image.entries, image.architecture) == (1, machine())


def test_a_layout_of_several_images_asks_for_one(make, images, tmp_path):
    make.layout(
        tmp_path / "layout",
        {"layers": [make.files({"a": b"1"})], "name": "v1"},
        {"layers": [make.files({"b": b"1"})], "name": "v2"},
    )
    with pytest.raises(BadInput, match=r"choose one with --name \(v1, v2\)"):
        images.pull(tmp_path / "layout")
    assert images.pull(tmp_path / "layout", name="v2").names == ("v2",)


def test_an_image_for_other_machines_is_refused(make, pull, images, tmp_path, nothing_left):
    layer = make.files({"a": b"1"})
    expected = f"is for {OTHER} machines; this one is {machine()}"
    with pytest.raises(BadInput, match=expected):
        pull(make.saved(layer, config=make.config(layer, architecture=OTHER)))
    make.layout(tmp_path / "layout", {"layers": [layer], "architecture": OTHER})
    with pytest.raises(BadInput, match=expected):
        images.pull(tmp_path / "layout")
    elf = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HH", 2, {"arm64": 183, "amd64": 62}[OTHER])
    with pytest.raises(BadInput, match=expected):
        pull(make.files({"bin/sh": elf}))
    nothing_left()


def test_an_image_of_another_system_is_refused(make, pull):
    layer = make.files({"a": b"1"})
    with pytest.raises(BadInput, match="is for windows; only Linux"):
        pull(make.saved(layer, config=make.config(layer, os="windows")))


def test_odd_variables_and_folders_are_left_out(make, pull):
    layer = make.files({"a": b"1"})
    inner = {"Env": ["A=1=2", "B", "9=x", "C D=1", 7, "E=\0"], "WorkingDir": "relative"}
    image, _ = pull(make.saved(layer, config=make.config(layer, config=inner)))
    assert image.env == {"A": "1=2", "B": ""}
    assert image.working_dir is None


def broken_layouts():
    yield "index.json", b"[]", "not one of an OCI layout"
    yield "index.json", b"{", "is not JSON"
    yield "index.json", b'{"manifests": [7]}', "only sha256 digests"
    yield "index.json", b'{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}', "only sha256 digests"
    yield "index.json", b'{"manifests": [{"digest": "sha512:00"}]}', "only sha256 digests"
    yield "index.json", b'{"manifests": []}', "does not hold exactly one"
    yield (
        "index.json",
        json.dumps({"manifests": [{"digest": f"sha256:{'0' * 64}"}]}).encode(),
        "cannot be read",
    )


@pytest.mark.parametrize(("file", "content", "reason"), list(broken_layouts()))
def test_a_broken_layout_is_refused_in_one_sentence(make, images, tmp_path, file, content, reason):
    make.layout(tmp_path / "layout", {"layers": [make.files({"a": b"1"})]})
    (tmp_path / "layout" / file).write_bytes(content)
    with pytest.raises(BadInput, match=reason) as refused:
        images.pull(tmp_path / "layout")
    assert len(refused.value.problems) == 1


def test_every_blob_must_be_what_its_digest_says(make, images, tmp_path, nothing_left):
    make.layout(tmp_path / "layout", {"layers": [make.files({"a": b"1"})]})
    for blob in (tmp_path / "layout" / "blobs" / "sha256").iterdir():
        kept = blob.read_bytes()
        changed = kept.replace(b"linux", b"linu ")
        if kept[:2] == b"\x1f\x8b":
            changed = gzip.compress(make.files({"a": b"2"}))
        elif changed == kept:
            changed = kept + b" "
        blob.write_bytes(changed)
        with pytest.raises(BadInput, match="is not what"):
            images.pull(tmp_path / "layout")
        blob.write_bytes(kept)
    nothing_left()
    images.pull(tmp_path / "layout")


def test_a_layout_does_not_lead_to_files_of_the_host(make, images, tmp_path):
    make.layout(tmp_path / "layout", {"layers": [make.files({"a": b"1"})]})
    (tmp_path / "index.json").write_bytes((tmp_path / "layout" / "index.json").read_bytes())
    (tmp_path / "layout" / "index.json").unlink()
    (tmp_path / "layout" / "index.json").symlink_to(tmp_path / "index.json")
    with pytest.raises(BadInput, match="cannot be read"):
        images.pull(tmp_path / "layout")


def hostile_tars():
    """Headers that made `tarfile` read gigabytes, go round for ever or fail in ways of its own."""
    header = tarfile.TarInfo("x")
    for size in (-512, -1_024, 2**62):
        block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
        block[124:136] = (
            b"\xff" * 4 + struct.pack(">q", size) if size < 0 else b"\x80\0\0\0" + struct.pack(">q", size)
        )
        block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
        yield bytes(block) + bytes(1_024)
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 2**33
    yield long.tobuf(tarfile.GNU_FORMAT) + bytes(10_240)
    long.size = 10
    yield (long.tobuf(tarfile.GNU_FORMAT) + b"name".ljust(512, b"\0")) * 3_000
    extended = tarfile.TarInfo("pax")
    extended.type, extended.size = tarfile.XHDTYPE, 2**33
    yield extended.tobuf(tarfile.GNU_FORMAT) + bytes(10_240)
    for record in (b"0 size=1\n", b"99999999999999999999 a=b\n", b"12 size=-900\n", b"x"):
        extended.size = len(record)
        yield extended.tobuf(tarfile.GNU_FORMAT) + record.ljust(512, b"\0") + header.tobuf() + bytes(1_024)
    yield b"\0" * 511
    yield b"garbage" * 1_000
    yield tarfile.TarInfo("cut").tobuf()[:100]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("data", list(hostile_tars()))
def test_a_tar_that_is_none_ends_in_one_sentence_or_an_image(pull, data):
    problems = []
    try:
        pull(data)
    except BadInput as refused:
        problems += refused.problems
    assert len(problems) <= 1
    assert "\n" not in "".join(problems)


def test_a_tar_that_was_cut_off_is_refused(make, pull, nothing_left):
    data = make.files({"a": b"x" * 5_000})
    with pytest.raises(BadInput, match="not a whole tar"):
        pull(data[:3_000])
    with pytest.raises(BadInput, match="not a whole"):
        pull(gzip.compress(data)[:-20], file="x.tar.gz")
    nothing_left()


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(make, pull, monkeypatch, nothing_left):
    monkeypatch.setattr("zubble_sandbox.images.sources.MAX_LAYER_BYTES", 10**6)
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb") as packed:
        for _ in range(50):
            packed.write(bytes(10**6))
    with pytest.raises(BadInput, match="larger than 1000000 bytes"):
        pull(bomb.getvalue(), file="bomb.tar.gz")
    nothing_left()


def test_an_unknown_compression_says_what_to_do(make, pull):
    with pytest.raises(BadInput, match="compressed with zstd: save the image with gzip"):
        pull(b"\x28\xb5\x2f\xfd" + bytes(100))
