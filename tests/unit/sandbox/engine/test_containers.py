"""What an engine is asked for, field by field."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.sandbox import MIB, SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox import seccomp
from zubble_sandbox.engine import containers
from zubble_sandbox.engine.containers import Image, Plan
from zubble_sandbox.engine.images import tree_of
from zubble_sandbox.engine.options import AttachedOptions, DockerOptions

SPEC = SandboxSpec(
    name="task.1", owner="worker", memory_bytes=512 * MIB, work_bytes=100 * MIB, tmp_bytes=10 * MIB
)
IMAGE = Image("sha256:1", {"PATH": "/opt/bin"}, (), "", "amd64")


def config(spec=SPEC, image=IMAGE, options=None, **plan):
    plan = Plan(spec, image, ("/.zubble/box", "supervise"), {"label": "1"}, 20_007, **plan)
    return containers.container_config(plan, options or DockerOptions())


def test_nothing_is_granted_that_a_sandbox_does_not_need():
    host = config()["HostConfig"]
    granted = {
        name: host[name]
        for name in (
            "NetworkMode",
            "IpcMode",
            "Privileged",
            "ReadonlyRootfs",
            "CapDrop",
            "CgroupnsMode",
            "Init",
        )
    }
    assert granted == {
        "NetworkMode": "none", "IpcMode": "none", "Privileged": False, "ReadonlyRootfs": True,
        "CapDrop": ["ALL"], "CgroupnsMode": "private", "Init": False,
    }  # fmt: skip
    assert not {"Binds", "CapAdd", "Devices", "DeviceRequests", "PidMode", "UTSMode", "VolumesFrom"} & set(
        host
    )
    assert {mount["Type"] for mount in host["Mounts"]} == {"volume", "tmpfs"}, (
        "nothing of the host is mounted"
    )
    assert host["SecurityOpt"][0] == "no-new-privileges"
    name, _, profile = host["SecurityOpt"][1].partition("=")
    assert (name, json.loads(profile)) == ("seccomp", seccomp.docker_profile())


def test_an_image_decides_neither_user_nor_program_nor_health_check():
    created = config()
    assert (created["User"], created["Entrypoint"], created["Cmd"]) == (
        "20007:20007",
        ["/.zubble/box", "supervise"],
        [],
    )
    assert created["Healthcheck"] == {"Test": ["NONE"]}


def test_limits_are_those_of_the_spec_with_room_for_full_file_systems():
    host = config(replace(SPEC, pids=50, cpus=1.5))["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == (512 + 100 + 2 * 10 + 32) * MIB
    assert (host["PidsLimit"], host["NanoCpus"]) == (51, 1_500_000_000)
    assert "size=104857600," in host["Tmpfs"]["/work"]
    assert "NanoCpus" not in config()["HostConfig"]
    assert config(options=DockerOptions(cpus=2))["HostConfig"]["NanoCpus"] == 2_000_000_000


def test_what_an_image_declares_a_volume_is_memory_with_a_size():
    host = config(image=replace(IMAGE, volumes=("/data", "/work")))["HostConfig"]
    assert set(host["Tmpfs"]) == {"/work", "/tmp", "/dev/shm", "/data"}
    assert all("size=" in options and "nosuid,nodev" in options for options in host["Tmpfs"].values())
    assert "uid=20007" in host["Tmpfs"]["/work"], "the work tree wins"


def test_verify_files_are_in_a_volume_that_nobody_inside_owns():
    with_files = config(replace(SPEC, readonly_files={"/verify/check": b""}))["HostConfig"]["Mounts"]
    without = config()["HostConfig"]["Mounts"]
    assert next(mount["Type"] for mount in with_files if mount["Target"] == "/verify") == "volume"
    verify = next(mount for mount in without if mount["Target"] == "/verify")
    assert (verify["Type"], verify["ReadOnly"]) == ("tmpfs", True)


def test_only_a_way_out_is_mounted_of_the_host_and_read_only(tmp_path):
    mounts = config(way_out=tmp_path)["HostConfig"]["Mounts"]
    assert [mount for mount in mounts if mount["Type"] == "bind"] == [
        {"Type": "bind", "Source": str(tmp_path), "Target": "/run/egress", "ReadOnly": True}
    ]


def test_the_work_tree_is_where_the_task_says_or_else_the_image():
    image = replace(IMAGE, work_dir="/app/")
    assert containers.work_dir(SPEC, image) == "/work"
    assert containers.work_dir(replace(SPEC, work_dir=None), image) == "/app"
    assert containers.work_dir(replace(SPEC, work_dir=None), replace(IMAGE, work_dir="/")) == "/work"


@pytest.mark.parametrize(
    "path", ["/", "work", "/a/../b", "/a//b", "/proc", "/dev/shm/x", "/.zubble", "/a:b", "/a,b"]
)
def test_a_work_tree_in_an_impossible_place_is_the_jobs_fault(path):
    with pytest.raises(JobError, match="work tree cannot be at"):
        containers.work_dir(replace(SPEC, work_dir=path), IMAGE)


def test_an_inspected_image_is_read_without_its_secrets_or_with_nothing():
    inspected = {
        "Id": "sha256:2", "Architecture": "arm64",
        "Config": {"Env": ["A=b=c", "EMPTY="], "Volumes": {"/b": {}, "/a": {}}, "WorkingDir": "/app"},
    }  # fmt: skip
    assert Image.of(inspected) == Image("sha256:2", {"A": "b=c", "EMPTY": ""}, ("/a", "/b"), "/app", "arm64")
    assert Image.of({"Id": "x", "Architecture": "amd64", "Config": None}) == Image("x", {}, (), "", "amd64")


def test_an_archive_holds_files_of_root_and_the_folders_above_them():
    data = containers.archive({"a/b/file": b"1", "a/other": b"22"}, 0o555)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entries = {entry.name: (entry.isdir(), entry.mode, entry.uid, entry.size) for entry in tar}
    assert entries == {
        "a": (True, 0o755, 0, 0), "a/b": (True, 0o755, 0, 0),
        "a/b/file": (False, 0o555, 0, 1), "a/other": (False, 0o555, 0, 2),
    }  # fmt: skip


def copied_out():
    """As an engine sends a folder: under its own name, in the PAX format, with all kinds of entries."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, link, content in (
            ("app/", tarfile.DIRTYPE, "", b""),
            ("app/deep/" + "n" * 120, tarfile.REGTYPE, "", b"content"),
            ("app/same", tarfile.LNKTYPE, "app/deep/" + "n" * 120, b""),
            ("app/link", tarfile.SYMTYPE, "/etc/passwd", b""),
            ("app/pipe", tarfile.FIFOTYPE, "", b""),
            ("app/device", tarfile.CHRTYPE, "", b""),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size, entry.mode = kind, link, len(content), 0o4755
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def test_a_folder_of_an_image_becomes_a_tree_that_can_be_restored():
    from zubble_sandbox import archive

    tree = tree_of(copied_out())
    with tarfile.open(fileobj=io.BytesIO(tree)) as tar:
        assert {entry.name: entry.type for entry in tar} == {
            "deep/" + "n" * 120: tarfile.REGTYPE, "same": tarfile.REGTYPE, "link": tarfile.SYMTYPE,
        }  # fmt: skip
        assert tar.extractfile("same").read() == b"content"
    assert archive.checked(tree)


@pytest.mark.parametrize(
    "options",
    [
        {"privileged": True}, {"binds": ["/:/host"]}, {"pid": "host"}, {"volumes": ["/var/run/docker.sock"]},
        {"host": "ssh://me@there"}, {"host": "/var/run/docker.sock"}, {"image": "-v /:/host"}, {"cpus": 0},
        {"pull": "always"}, {"runtime": "../runc"},
    ],
)  # fmt: skip
def test_no_option_opens_a_container_to_the_host(options):
    with pytest.raises(ValidationError):
        DockerOptions.model_validate(options)


def test_attached_options_name_nothing_by_default():
    assert (AttachedOptions().allow, AttachedOptions().container) == ((), None)
    assert AttachedOptions.model_validate({"allow": "dev-*, team/*"}).allow == ("dev-*", "team/*")
