"""Attacks 6 to 10, 13 to 16, 60, 61: what a command may ask of the kernel."""

# Looking at /proc of the host blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import secrets
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

SETTINGS = (
    "kernel/core_pattern",
    "kernel/hostname",
    "vm/overcommit_memory",
    "vm/drop_caches",
    "fs/file-max",
    "net/ipv4/ip_forward",
    "user/max_user_namespaces",
)


@pytest.mark.parametrize("setting", SETTINGS)
async def test_no_setting_of_the_kernel_can_be_written(box, setting):
    path = Path("/proc/sys", setting)
    before = path.read_bytes() if setting != "vm/drop_caches" else None
    result = await box.sh(f"cat {path} 2>/dev/null >value; cat value >{path}")
    assert result.exit_code != 0
    assert b"Read-only" in result.stderr or b"denied" in result.stderr
    if before is not None:
        assert path.read_bytes() == before
    assert await box.out("cat /proc/sys/kernel/ostype") == "Linux\n", "control: settings can be read"


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/proc/1/oom_score_adj",
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/timer_list",
        "/proc/self/../1/attr/current",
    ],
)
async def test_no_dangerous_file_of_proc_can_be_written(box, path):
    kept = await box.sh(f"test -c {path} && test {path} -ef /dev/null || ! echo 0 >>{path}")
    assert kept.ok, "it is covered by /dev/null, or cannot be written"
    assert (await box.sh("echo 900 >/proc/self/oom_score_adj")).ok, "control: its own file can be written"


async def test_no_process_of_a_sandbox_is_root_on_the_host(box, host):
    await box.sh("true")
    running = asyncio.create_task(box.sh("sleep 1000", timeout_seconds=30.0))
    await host.wait_until(lambda: len(box.processes) >= 2, "the command runs")
    for pid in [*host.marked(box.token), *box.processes]:
        status = Path(f"/proc/{pid}/status").read_text()
        uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
        assert "0" not in uids, (pid, uids)
        groups = next(line for line in status.splitlines() if line.startswith("Groups:")).split()[1:]
        assert set(groups) <= {uids[0]} or os.geteuid() != 0, "no group of the worker is left"
    await box.destroy()
    await asyncio.gather(running, return_exceptions=True)


async def test_namespaces_cannot_be_made(box, syscalls):
    found = await box.python("""
import json
NEW = {"NS": 0x20000, "CGROUP": 0x2000000, "UTS": 0x4000000, "IPC": 0x8000000, "USER": 0x10000000,
       "PID": 0x20000000, "NET": 0x40000000}
found = {}
for name, flag in NEW.items():
    found["unshare " + name] = call(SYSCALLS["unshare"], flag)
    found["clone " + name] = call(SYSCALLS["clone"], flag | signal.SIGCHLD, 0, 0, 0, 0)
found["clone3"] = call(SYSCALLS["clone3"], 0, 0)
found["setns"] = call(SYSCALLS["setns"], os.open("/proc/self/ns/user", os.O_RDONLY), 0)
child = os.fork()
if not child:
    os._exit(7)
print(json.dumps([found, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
""")
    assert found[1] == 7, "control: an ordinary child can be made"
    assert found[0].pop("clone3") == "ENOSYS"
    assert set(found[0].values()) <= {"EPERM", "ENOSPC"}, found[0]


async def test_the_program_unshare_fails_too(box):
    assert (await box.sh("unshare -Ur true")).exit_code != 0
    assert (await box.sh("env true")).ok, "control"


@pytest.mark.parametrize(
    "attack",
    [
        "mount -t tmpfs none /tmp",
        "mount -t proc proc /tmp",
        "mount --bind /usr /work",
        "mount -o remount,rw /",
        "umount /proc/sys",
        "umount -l /usr",
        "chroot / true",
    ],
)
async def test_mounts_cannot_be_changed(box, attack):
    before = await box.out("cat /proc/self/mountinfo")
    assert (await box.sh(attack)).exit_code != 0
    assert await box.out("cat /proc/self/mountinfo") == before


FORBIDDEN = (
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsmount",
    "fspick",
    "mount_setattr",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "open_by_handle_at",
    "name_to_handle_at",
    "ptrace",
    "process_vm_readv",
    "pidfd_getfd",
    "process_madvise",
    "settimeofday",
    "clock_settime",
    "personality",
    "kexec_load",
    "reboot",
    "init_module",
    "swapon",
    "sethostname",
    "quotactl",
    "acct",
    "syslog",
    "memfd_secret",
)


async def test_forbidden_system_calls_are_refused(box):
    found = await box.python(
        "import json; names = json.loads(sys.argv[1]);"
        "print(json.dumps({name: call(SYSCALLS[name], 0, 0, 0, 0, 0) for name in names}))",
        json.dumps([*FORBIDDEN, "getpid"]),
    )
    assert found.pop("getpid") == "ok", "control"
    assert {name for name, result in found.items() if result != "EPERM"} == set()


async def test_threads_and_pipes_of_an_ordinary_program_work(box):
    found = await box.python("""
import json, subprocess, threading
threads = [threading.Thread(target=lambda: None) for _ in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(json.dumps(subprocess.run(["sh", "-c", "echo a | tr a b"], stdout=subprocess.PIPE).stdout.decode()))
""")
    assert found == "b\n"


@pytest.mark.parametrize(
    "device",
    [
        "/dev/vda",
        "/dev/sda",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/loop0",
        "/dev/vsock",
        "/dev/net/tun",
    ],
)
async def test_devices_of_the_host_are_not_there(box, device):
    assert (await box.sh(f"test -e {device}")).exit_code == 1
    assert (await box.sh(f"test -c /dev/null && ! mknod /tmp/device b 254 0 && ! mknod {device} c 1 1")).ok


async def test_a_device_node_cannot_be_made_anywhere(box):
    found = await box.python("""
import json, stat
places = ("/work/d", "/tmp/d", "/dev/shm/d", "/dev/d", "/d")
print(json.dumps([tried(os.mknod, p, stat.S_IFBLK | 0o666, os.makedev(254, 0))[0] for p in places]
                 + [tried(os.mknod, "/work/fifo", stat.S_IFIFO | 0o666)[0]]))
""")
    assert found.pop() == "ok", "control: a FIFO can be made"
    assert set(found) <= {"EPERM", "EROFS", "EACCES"}


async def test_setuid_programs_give_no_privilege(box):
    status = await box.out("cp /usr/bin/cat own; chmod 6755 own; ./own /proc/self/status")
    for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"):
        assert line in status
    uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
    assert set(uids) == {(await box.out("id -u")).strip()}
    for program in ("su -c true", "passwd -d root", "sudo -n true"):
        assert (await box.sh(program)).exit_code != 0
    assert not (await box.sh("setpriv --reuid=0 true")).ok
    assert (await box.out("id -u")).strip() == uids[0] != "0", "control"


@pytest.mark.bubblewrap
async def test_nothing_is_typed_into_the_workers_terminal(host, provider):
    leader, follower = os.openpty()
    try:
        worker = await host.start_worker(
            "type_into_a_terminal.py", stdin=follower, stdout=PIPE, start_new_session=True
        )
        stdout, _ = await worker.communicate()
        found = json.loads(stdout)
        os.set_blocking(leader, False)
        typed = os.read(leader, 4096)
    finally:
        os.close(leader)
        os.close(follower)
    assert b"END" in typed, "control: the terminal shows what the worker writes"
    assert b"PWNED" not in typed
    assert found["typed"] == "", "nothing waits to be read by the worker"
    assert set(found["attack"].values()) <= {"EPERM", "ENOTTY", "ENXIO", "EIO", "EACCES"}, found


async def test_a_key_of_the_workers_keyring_cannot_be_read(open_box, syscalls):
    libc = ctypes.CDLL(None, use_errno=True)
    session, read = -3, 11
    key = libc.syscall(syscalls["add_key"], b"user", b"zubble-planted", b"secret", 6, session)
    if key < 0:
        key = -1  # no keyring here: reading number 1 must fail all the same
    box = await open_box()
    found = await box.python(
        """
import json
key = int(sys.argv[1])
buffer = ctypes.create_string_buffer(64)
print(json.dumps([call(SYSCALLS["keyctl"], 11, key, ctypes.addressof(buffer), 64), buffer.value.decode(),
                  call(SYSCALLS["request_key"], 0, 0, 0, 0), call(SYSCALLS["keyctl"], 0, -3, 0)]))
""",
        str(key),
    )
    assert found == ["EPERM", "", "EPERM", "EPERM"]
    if key > 0:
        buffer = ctypes.create_string_buffer(64)
        assert libc.syscall(syscalls["keyctl"], read, key, buffer, 64) == 6, "control: the worker can read it"


async def test_only_ordinary_sockets_can_be_made(box):
    found = await box.python("""
import json
families = {"UNIX": 1, "INET": 2, "INET6": 10, "ROUTE": 16}
refused = {"AX25": 3, "APPLETALK": 5, "X25": 9, "PACKET": 17, "RDS": 21, "CAN": 29, "TIPC": 30,
           "BLUETOOTH": 31, "ALG": 38, "NFC": 39, "VSOCK": 40, "KCM": 41, "QIPCRTR": 42, "SMC": 43, "XDP": 44}
def made(family, kind=socket.SOCK_DGRAM, protocol=0):
    return tried(lambda: socket.socket(family, kind, protocol).close())[0]
result = {"allowed": {name: made(number) for name, number in families.items()},
          "refused": {name: made(number) for name, number in refused.items()},
          "netlink": {number: made(16, socket.SOCK_RAW, number) for number in (2, 4, 9, 10, 12, 15, 16)},
          "raw": [made(2, socket.SOCK_RAW, 1), made(10, socket.SOCK_RAW, 58), made(2, 10, 0)]}
print(json.dumps(result))
""")
    assert set(found["allowed"].values()) == {"ok"}, "control"
    assert set(found["refused"].values()) == {"EAFNOSUPPORT"}, found["refused"]
    assert set(found["netlink"].values()) == {"EAFNOSUPPORT"}, found["netlink"]
    assert set(found["raw"]) <= {"EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}, found["raw"]


async def test_high_bits_do_not_smuggle_a_family_or_a_request_past_the_filter(box):
    found = await box.python("""
import json
SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
IOCTL = {"x86_64": 16, "aarch64": 29}[os.uname().machine]
leader, follower = os.openpty()
print(json.dumps([call(SOCKET, (1 << 32) | 40, 1, 0), call(SOCKET, (1 << 32) | 16, 3, (1 << 32) | 12),
                  call(IOCTL, follower, (1 << 32) | 0x5412, 0), call(IOCTL, follower, 0x541C, 0)]))
""")
    assert found == ["EAFNOSUPPORT", "EAFNOSUPPORT", "EPERM", "EPERM"]


async def test_the_clock_of_the_host_cannot_be_set(box):
    assert (await box.sh("date -s 2001-01-01")).exit_code != 0
    assert (await box.sh("date")).ok, "control"


async def test_a_crash_writes_no_core_and_starts_no_handler(box, host):
    canary = f"core-{secrets.token_hex(4)}"
    result = await box.sh(
        f"mkdir {canary}; cd {canary}; for i in 1 2 3; do sh -c 'kill -SEGV $$'; done; "
        "find / -xdev -name 'core*' -type f -newer . 2>/dev/null; ls -A"
    )
    assert result.stdout == b""
    assert (await box.sh("kill -SEGV $$")).signal == signal.SIGSEGV, "control: it did crash"
    attack = (
        "ulimit -c 0; ulimit -c unlimited; prlimit --core=0 --pid $$; prlimit --core=unlimited; sleep 1000"
    )
    running = asyncio.create_task(box.sh(attack, timeout_seconds=60.0))
    await host.wait_until(lambda: any(b"sleep" in host.arguments(pid) for pid in box.processes), "it sleeps")
    for pid in box.processes:
        limit = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core" in line)
        assert limit.split()[4] == "1", "one byte: the only value with which the kernel starts no handler"
    await box.destroy()
    await asyncio.gather(running, return_exceptions=True)
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] != 1, "control: the worker keeps its own"
