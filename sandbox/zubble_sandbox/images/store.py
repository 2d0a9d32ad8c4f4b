"""The images of this machine: each tree once, by its content, under any number of names.

    FOLDER/lock                      held while something is pulled or removed
    FOLDER/sha256/<hex>/image.json   what it is; held, shared, by every sandbox that runs in it
    FOLDER/sha256/<hex>/root/        the tree
    FOLDER/names/<quoted name>       the digest behind a name

A folder that is being written is `new-…` and gets its place by one rename; what a killed pull left is removed
by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from zubble_queue.errors import BadInput
from zubble_sandbox import locks
from zubble_sandbox.images import sources, trees
from zubble_sandbox.images.config import check_architecture
from zubble_sandbox.images.entries import MAX_BYTES, BadImage
from zubble_sandbox.images.image import PREFIX, Image, check_name, described, digits_of, sane_name
from zubble_sandbox.images.names import Names
from zubble_sandbox.images.unpacking import Unpacking
from zubble_sandbox.removal import remove_folder

SPARE_BYTES: Final = 2**30
"""Of the disk, that no image takes."""
_NEW: Final = "new-"
_ABOUT: Final = "image.json"
_ROOT: Final = "root"
_PASSABLE, _WRITABLE = 0o001, 0o022


@dataclass(frozen=True, slots=True)
class Held:
    """An image that is in use: nobody removes it until it is given back, or this process ends."""

    image: Image
    root_fd: int
    """A path descriptor of its root."""
    lock_fd: int

    def give_back(self) -> None:
        os.close(self.root_fd)
        os.close(self.lock_fd)


class Images:
    """A folder of images; several processes may use it at once.

    Args:
        folder: Made when something is pulled.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._names = folder, Names(folder / "names")

    def __iter__(self) -> Iterator[Image]:
        """All of them, sorted by name; those without one last."""
        images = [self._image(path.name) for path in self._trees.glob("[0-9a-f]*")]
        found = [replace(each, names=self._names.of(each.digest)) for each in images if each is not None]
        return iter(sorted(found, key=lambda image: (not image.names, image.names, image.digest)))

    def find(self, reference: str) -> Image | None:
        """By a name, by the digest of the content or of the source, or by twelve or more digits of one."""
        digest = self._names.digest(reference)
        if digest is not None:
            return self._image(digest.removeprefix(PREFIX))
        if (image := self._image(reference.removeprefix(PREFIX))) is not None:
            return image
        digits = digits_of(reference)
        fitting = [] if digits is None else [image for image in self if image.is_called(digits)]
        return fitting[0] if len(fitting) == 1 else None

    def hold(self, reference: str) -> Held:
        """For a sandbox. Raises BadImage: there is no such image, or it is for other machines."""
        for _ in range(2):  # somebody may remove it meanwhile, and pull it again
            image = self.find(reference)
            if image is None:
                break
            check_architecture(f"The image {reference!r}", image.architecture)
            with contextlib.suppress(FileNotFoundError):
                return self._held(image)
        raise BadImage(
            f"The image {reference!r} is not on this machine: `zubble sandbox pull` it; `zubble sandbox ls` "
            "lists those that are."
        )

    def closed_to_others(self) -> Path | None:
        """The first folder on the way to the images that other users may not pass; None when they may.

        What bubblewrap mounts as another user it has to reach by its path.
        """
        above = [self._trees, *self._trees.absolute().parents]
        return next((folder for folder in reversed(above) if not _passable(folder)), None)

    def pull(
        self, source: Path, *, name: str | None = None, on_read: Callable[[int], object] = lambda _: None
    ) -> Image:
        """Read an image into the store and give it a name.

        Args:
            source: A tar of `docker save` or `docker export`, an OCI layout, or the root itself in a folder.
            name: What to call it; what it calls itself, or the source's name without its ending, when None.
            on_read: Told how many bytes of the source have been read.

        Raises:
            BadInput: it is refused, in one sentence; nothing is left of it.
        """
        if name is not None:
            check_name(name)
        try:
            self._make_folder()
            with self._locked():
                self._sweep()
                new = self._folder / f"{_NEW}{secrets.token_hex(8)}"
                _make(new)
                try:
                    return self._pull(source, name, new, on_read)
                finally:
                    remove_folder(str(new))
        except OSError as error:
            where = error.filename or self._folder
            raise BadInput([f"{source} cannot be pulled: {os.fsdecode(where)}: {error.strerror}."]) from error

    def remove(self, reference: str) -> Image:
        """Take a name away, and the image with its last one; by a digest, the image with all its names.

        Raises:
            BadInput: there is none, or a sandbox runs in it.
        """
        image = self.find(reference)
        if image is None:
            raise BadInput([f"There is no image {reference!r}; `zubble sandbox ls` lists them."])
        with self._locked():
            named = self._names.of(image.digest)
            gone = (reference,) if reference in named else named
            if not set(named) - set(gone):
                self._discard(image, reference)
            for name in gone:
                self._names.remove(name)
        return replace(image, names=gone)

    def _pull(self, source: Path, name: str | None, new: Path, on_read: Callable[[int], object]) -> Image:
        root, trash = new / _ROOT, new / "trash"
        root.mkdir()
        trash.mkdir()
        room = min(MAX_BYTES, shutil.disk_usage(new).free - SPARE_BYTES)
        with sources.opened(source, new, name, on_read) as found:
            with Unpacking(root, trash, room) as unpacking:
                for layer in found.layers:
                    unpacking.apply(layer())
                unpacking.complete()
            chosen = name or sane_name(found.name) or sane_name(source.name.partition(".tar")[0])
            if chosen is None:
                raise BadImage(f"{source} has no name that could be used: give it one with --name.")
            image = described(source, found, unpacking.result, trees.digest(root))
        remove_folder(str(trash))
        self._keep(image, new)
        self._names.give(chosen, image.digest)
        return replace(image, names=self._names.of(image.digest))

    def _make_folder(self) -> None:
        """Raises BadInput when it is not ours to write to alone."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        if not self._folder.exists():
            _make(self._folder)
        info = self._folder.stat()
        if info.st_uid != os.geteuid() or info.st_mode & _WRITABLE:
            raise BadInput([f"{self._folder} must be a folder that this user alone may write to."])

    def _keep(self, image: Image, new: Path) -> None:
        """Give it its place, unless the same image has it already."""
        _make(self._trees)
        (new / _ABOUT).write_text(json.dumps(asdict(image)), "utf-8")
        try:
            new.rename(self._tree(image.digest))
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def _held(self, image: Image) -> Held:
        """Raises FileNotFoundError when it is being removed."""
        about = self._tree(image.digest) / _ABOUT
        with contextlib.ExitStack() as opened:
            lock_fd = os.open(about, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            opened.callback(os.close, lock_fd)
            try:
                fcntl.flock(lock_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileNotFoundError(errno.ENOENT, "it is being removed", str(about)) from None
            if not os.path.samestat(os.fstat(lock_fd), about.stat()):
                raise FileNotFoundError(errno.ENOENT, "it was removed", str(about))
            root_fd = os.open(about.parent / _ROOT, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.pop_all()
        return Held(image, root_fd, lock_fd)

    def _discard(self, image: Image, reference: str) -> None:
        tree = self._tree(image.digest)
        fd = os.open(tree / _ABOUT, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = self._folder / f"{_NEW}{secrets.token_hex(8)}"
            tree.rename(gone)
            remove_folder(str(gone))
        except BlockingIOError:
            raise BadInput(
                [f"A sandbox runs in the image {reference!r}: remove it when that has ended."]
            ) from None
        finally:
            os.close(fd)

    def _sweep(self) -> None:
        for left in self._folder.glob(f"{_NEW}*"):
            remove_folder(str(left))

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locks.locked(self._folder / "lock")

    @property
    def _trees(self) -> Path:
        return self._folder / "sha256"

    def _tree(self, digest: str) -> Path:
        return self._trees / digest.removeprefix(PREFIX)

    def _image(self, hexadecimal: str) -> Image | None:
        if not re.fullmatch("[0-9a-f]{64}", hexadecimal):
            return None
        try:
            about = json.loads((self._trees / hexadecimal / _ABOUT).read_bytes())
            return Image(**{**about, "names": ()})
        except (FileNotFoundError, ValueError, TypeError):  # none, or one of another version
            return None


def _passable(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & _PASSABLE)
    except FileNotFoundError:
        return True


def _make(folder: Path) -> None:
    """Root gives every sandbox another user, and each of them has to pass; nobody else may look around."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
