"""Images made by hand, as tools of others would write them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile

import pytest

from zubble_sandbox.images.config import machine
from zubble_sandbox.images.store import Images


class Maker:
    """Tars, `docker save` archives and OCI layouts."""

    @staticmethod
    def member(path: str, content: bytes | None = None, **changes) -> tuple[tarfile.TarInfo, bytes]:
        """A file, or whatever `type` says."""
        info = tarfile.TarInfo(path)
        info.size, info.mode, info.mtime = len(content or b""), 0o644, 1_700_000_000
        for name, value in changes.items():
            setattr(info, name, value)
        return info, content or b""

    @classmethod
    def folder(cls, path: str, **changes):
        return cls.member(path, **{"type": tarfile.DIRTYPE, "mode": 0o755, **changes})

    @classmethod
    def link(cls, path: str, target: str):
        return cls.member(path, type=tarfile.SYMTYPE, linkname=target)

    @classmethod
    def hard_link(cls, path: str, target: str):
        return cls.member(path, type=tarfile.LNKTYPE, linkname=target)

    @classmethod
    def tar(cls, *members) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for info, content in members:
                tar.addfile(info, io.BytesIO(content))
        return made.getvalue()

    @classmethod
    def files(cls, contents: dict[str, bytes]) -> bytes:
        return cls.tar(*(cls.member(path, content) for path, content in contents.items()))

    @staticmethod
    def config(*layers: bytes, **changes) -> dict:
        return {
            "architecture": machine(),
            "os": "linux",
            "config": {"Env": ["PATH=/opt/bin:/bin", "LANG=C"], "WorkingDir": "/app"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in layers]},
            **changes,
        }

    @classmethod
    def saved(cls, *layers: bytes, tags=("thing:1",), config: dict | None = None, **others: bytes) -> bytes:
        """What `docker save` writes."""
        described = json.dumps(config or cls.config(*layers)).encode()
        names = [f"{index}/layer.tar" for index in range(len(layers))]
        manifest = [{"Config": "about.json", "RepoTags": list(tags), "Layers": names}]
        contents = dict(zip(names, layers, strict=True))
        return cls.files(
            {"manifest.json": json.dumps(manifest).encode(), "about.json": described, **contents, **others}
        )

    @classmethod
    def layout(cls, folder, *images: dict) -> None:
        """An OCI layout; an image is {"layers": …, "name": …, "architecture": …}."""
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

        def keep(data: bytes) -> dict:
            (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
            return {"digest": _digest(data), "size": len(data)}

        manifests = []
        for image in images:
            config = cls.config(*image["layers"], architecture=image.get("architecture", machine()))
            manifest = {
                "config": keep(json.dumps(config).encode()),
                "layers": [keep(gzip.compress(layer)) for layer in image["layers"]],
            }
            described = keep(json.dumps(manifest).encode())
            if name := image.get("name"):
                described["annotations"] = {"org.opencontainers.image.ref.name": name}
            if architecture := image.get("architecture"):
                described["platform"] = {"architecture": architecture, "os": "linux"}
            manifests.append(described)
        (folder / "index.json").write_text(json.dumps({"manifests": manifests}))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def make():
    return Maker


@pytest.fixture
def images(tmp_path):
    return Images(tmp_path / "images")


@pytest.fixture
def pull(images, tmp_path):
    """Pulls bytes as a file; the image and its root."""

    def pull(data: bytes, name: str | None = None, file: str = "source.tar"):
        (tmp_path / file).write_bytes(data)
        image = images.pull(tmp_path / file, name=name)
        return image, tmp_path / "images" / "sha256" / image.digest.removeprefix("sha256:") / "root"

    return pull


@pytest.fixture
def nothing_left(tmp_path):
    """Asserts that the store is as if nothing had been pulled."""

    def nothing_left():
        left = [path for path in (tmp_path / "images").rglob("*") if path.name != "lock"]
        assert left == []

    return nothing_left
