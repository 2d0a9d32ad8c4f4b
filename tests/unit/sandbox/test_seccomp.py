"""The filter is there, or nothing is."""

from __future__ import annotations

import json
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


def test_the_profile_for_docker_denies_what_the_filter_denies():
    denied = seccomp.docker_profile()["syscalls"]
    assert {name for entry in denied for name in entry["names"]} == {rule.call for rule in seccomp.rules()}
    families = [entry["args"] for entry in denied if entry["names"] == ["socket"]]
    assert [{"index": 0, "value": 16, "valueTwo": 0, "op": "SCMP_CMP_GT"}] in families, "AF_VSOCK is 40"
    new_user = {"index": 0, "value": 0x10000000, "valueTwo": 0x10000000, "op": "SCMP_CMP_MASKED_EQ"}
    assert [new_user] in [entry["args"] for entry in denied if entry["names"] == ["clone"]]
    assert json.loads(json.dumps(denied)) == denied
