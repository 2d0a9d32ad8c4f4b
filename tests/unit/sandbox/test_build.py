"""The build of the one program that is not Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INTERPRETER, DYNAMIC = 3, 2
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}


def elf_machine(program: Path) -> int:
    head = program.read_bytes()[:20]
    assert head[:6] == b"\x7fELF\x02\x01", "a 64-bit little-endian program"
    return int.from_bytes(head[18:20], "little")


def segments(program: Path) -> set[int]:
    """Their types."""
    data = program.read_bytes()
    start, size, count = (
        int.from_bytes(data[at : at + width], "little") for at, width in ((32, 8), (54, 2), (56, 2))
    )
    return {int.from_bytes(data[start + size * n :][:4], "little") for n in range(count)}


@pytest.fixture(scope="module")
def command(hatch_build):
    command = hatch_build.compiler(hatch_build.native())
    if command is None:
        pytest.skip("there is no C compiler here")
    return command


@pytest.fixture(scope="module")
def builds(hatch_build, command, tmp_path_factory):
    """Two of them, in folders of different names."""
    top = tmp_path_factory.mktemp("builds")
    for folder in ("one", "another-longer-name"):
        hatch_build.build(command, top / folder / "box")
    return top / "one/box", top / "another-longer-name/box"


def test_two_builds_are_the_same_byte_for_byte(builds):
    one, other = (program.read_bytes() for program in builds)
    assert one == other
    assert str(ROOT).encode() not in one


def test_the_program_needs_no_library_and_no_loader(hatch_build, builds):
    assert not {INTERPRETER, DYNAMIC} & segments(builds[0])
    assert elf_machine(builds[0]) == ELF_MACHINE[hatch_build.native()]


def test_a_warning_is_an_error(hatch_build, command, tmp_path, monkeypatch):
    (tmp_path / "main.c").write_text("int main(int argc, char **argv) { return argc; }\n")
    monkeypatch.setattr(hatch_build, "SOURCES", tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        hatch_build.build(command, tmp_path / "bin/box")
    assert list((tmp_path / "bin").iterdir()) == [], "nothing half-made is left"


def test_where_no_compiler_is_the_build_asks_for_one(hatch_build, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(hatch_build.importlib.util, "find_spec", lambda _: None)
    hook = hatch_build.BoxHook(str(ROOT), {}, None, None, "", "wheel")
    assert hook.dependencies() == ["ziglang"]
    assert hatch_build.BoxHook(str(ROOT), {}, None, None, "", "sdist").dependencies() == []


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # the first time it also builds its C library
@pytest.mark.parametrize("arch", sorted(ELF_MACHINE))
def test_the_wheel_ziglang_builds_it_for_both_architectures(hatch_build, arch, tmp_path, monkeypatch):
    pytest.importorskip("ziglang", reason="the wheel ziglang is not installed")
    monkeypatch.setenv("CC", "no-such-compiler")
    hatch_build.build(hatch_build.compiler(arch), tmp_path / "box")
    assert elf_machine(tmp_path / "box") == ELF_MACHINE[arch]
    assert not {INTERPRETER, DYNAMIC} & segments(tmp_path / "box")
