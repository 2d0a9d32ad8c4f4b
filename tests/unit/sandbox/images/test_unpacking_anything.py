"""Whatever a layer holds, nothing outside of the root it is written to is touched."""

from __future__ import annotations

import contextlib
import io
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.errors import BadInput
from zubble_sandbox.images.streams import Forward, tar_entries
from zubble_sandbox.images.unpacking import Unpacking

PARTS = st.sampled_from(["a", "b", "outside", "..", ".", "", ".wh.a", ".wh..wh..opq", ".wh...", "etc"])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
TARGETS = st.one_of(
    PATHS, PATHS.map(lambda path: "/" + path), st.just("{outside}"), st.just("../../../../..")
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
LAYERS = st.lists(st.lists(st.tuples(KINDS, PATHS, TARGETS), max_size=8), min_size=1, max_size=3)


def tar(members, outside: Path) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for kind, path, target in members:
            info = tarfile.TarInfo(path)
            info.type, info.linkname = kind, target.replace("{outside}", str(outside))
            info.size = 1 if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"!"))
    made.seek(0)
    return made


def state(folder: Path) -> list[tuple[str, int, int, bytes]]:
    """All that could be changed there."""
    found = []
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found.append((str(path), info.st_mode, info.st_nlink, content))
    return found


@given(LAYERS)
def test_nothing_outside_of_the_root_is_touched(layers):
    with TemporaryDirectory() as top:
        outside, root, trash = (Path(top) / name for name in ("outside", "root", "trash"))
        for folder in (outside / "a", root, trash):
            folder.mkdir(parents=True)
        (outside / "b").write_text("mine")
        before = state(outside)
        with contextlib.suppress(BadInput), Unpacking(root, trash) as unpacking:
            for members in layers:
                stream = Forward(tar(members, outside), limit=10**6)
                unpacking.apply(tar_entries(stream, "the layer"))
        assert state(outside) == before
        assert sorted(path.name for path in Path(top).iterdir()) == ["outside", "root", "trash"]
