"""Names to parts: what is said where a part, or a package that it needs, is not installed."""

from __future__ import annotations

import sys

import pytest

from zubble_queue import registry
from zubble_queue.errors import MissingExtra, UnknownName


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a backend of sandboxes whose module needs a package that is not there."""

    def make(package):
        folder = tmp_path / package
        (folder / "caged-1.dist-info").mkdir(parents=True)
        (folder / "caged-1.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: caged\nVersion: 1\n"
        )
        points = f"[zubble.sandboxes]\ncaged = caged_by_{package}:Provider\n"
        (folder / "caged-1.dist-info" / "entry_points.txt").write_text(points)
        (folder / f"caged_by_{package}.py").write_text(f"import {package}.client\n")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setitem(sys.modules, package, None)

    return make


@pytest.mark.parametrize(
    ("package", "extra"), [("docker", "docker"), ("kubernetes", "kubernetes"), ("httpx", "worker")]
)
def test_a_backend_whose_package_is_missing_says_what_to_install(install, package, extra):
    install(package)

    with pytest.raises(
        MissingExtra, match=rf"'caged' .*needs {package}.*pip install 'zubble-queue\[{extra}\]'"
    ):
        registry.load("sandbox", "caged")


def test_an_unknown_backend_is_named_with_the_installed_ones(install):
    install("docker")

    with pytest.raises(UnknownName, match=r"Unknown sandbox 'cage'; known: .*bubblewrap, caged, "):
        registry.load("sandbox", "cage")
