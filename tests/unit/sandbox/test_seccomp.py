"""The filter is there, or nothing is."""

from __future__ import annotations

import sys

import pytest

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import seccomp

INSTRUCTION_BYTES = 8


def test_the_filter_is_a_program_of_this_machine():
    program = seccomp.filter_program()
    assert len(program) % INSTRUCTION_BYTES == 0
    assert 50 < len(program) // INSTRUCTION_BYTES < 4_096


def test_every_call_that_is_denied_has_a_number_or_is_absent_here():
    import pyseccomp

    for name in seccomp._DENIED:
        assert seccomp._number(pyseccomp, name) is not None, name


def test_a_call_that_the_library_does_not_know_goes_by_its_number():
    class Old:
        Arch = type("Arch", (), {"NATIVE": 0})

        @staticmethod
        def resolve_syscall(_arch, _name):
            return -1

    assert seccomp._number(Old, "mount_setattr") == 442
    assert seccomp._number(Old, "ptrace") is None


def test_without_pyseccomp_there_is_no_sandbox(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(SandboxUnavailable, match="zubble-queue"):
        seccomp.filter_program()


def test_without_libseccomp_there_is_no_sandbox(monkeypatch):
    def fail(_name):
        raise RuntimeError("Unable to find libseccomp")

    monkeypatch.setattr(seccomp.importlib, "import_module", fail)
    with pytest.raises(SandboxUnavailable, match="libseccomp2"):
        seccomp.filter_program()
