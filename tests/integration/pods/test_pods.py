"""The pod backend against a cluster in one process: real HTTP, real websockets, real containers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from zubble_queue.contracts.sandbox import MIB, SandboxSpec, shell
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.pods import leases, names

pytestmark = pytest.mark.slow
SPEC = SandboxSpec(name="1-task-0123abcd.2.agent", owner="worker-1", work_bytes=32 * MIB, tmp_bytes=8 * MIB)


def a_lease(cluster, name="zubble-of-another-host", seconds_ago=0.0):
    """Of a worker on another machine, last renewed so long ago."""
    made = leases.manifest(name, "sandboxes", datetime.now(UTC) - timedelta(seconds=seconds_ago))
    made["spec"]["holderIdentity"] = "elsewhere/boot/1/4711/99"
    made["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "1"}
    cluster.objects["leases"][name] = made
    return made["metadata"]


def a_pod(cluster, lease, name="zubble-old", **notes):
    """Without processes."""
    labels = {names.MANAGED_BY: names.MANAGER, names.PART: "sandbox", names.LEASE: lease["name"]}
    labels[names.EXPIRES] = str(notes.pop("expires", int(time.time()) + 3_600))
    owner = {"kind": "Lease", "name": lease["name"], "uid": lease["uid"]}
    metadata = {"name": name, "uid": f"uid-of-{name}", "labels": labels, "ownerReferences": [owner]}
    metadata["annotations"] = {names.OWNER_NOTE: "worker-9", names.LINGER_NOTE: "0", **notes}
    cluster.objects["pods"][name] = {"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}}


def documented_rules():
    guide = Path(__file__).parents[3] / "docs/how-to/pods.md"
    manifests = yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)[0])
    return next(each["rules"] for each in manifests if each["kind"] == "Role")


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of the other side
            await asyncio.sleep(0.02)


async def test_a_command_runs_in_a_pod_and_the_pod_is_gone_afterwards(cluster, provider):
    sandbox = await provider.open(SPEC)
    result = await sandbox.exec(shell("echo hello; exit 7"))
    assert (result.exit_code, result.stdout) == (7, b"hello\n")
    await sandbox.destroy()
    assert not cluster.objects["pods"]


async def test_what_belongs_to_the_task_is_in_the_pod_and_what_belongs_to_us_is_not(cluster, provider):
    spec = replace(SPEC, readonly_files={"/verify/a dir/it's\n.py": b"\0\xff" * 3_000}, env={"ASKED": "for"})
    sandbox = await provider.open(spec)
    checked = await sandbox.exec(
        shell('sha256sum "/verify/a dir/"*; stat -c %a "/verify/a dir/"*; echo no >/verify/x')
    )
    assert b"\n555\n" in checked.stdout
    assert checked.exit_code != 0
    told = (await sandbox.exec(shell("env; cat /.zubble/box; ls -la /.zubble; id -u"))).stdout.decode()
    assert "ASKED=for" in told
    assert "ZUBBLE_WORK=/work" in told
    assert "KUBERNETES" not in told
    assert "--x--x--x" in told
    secret = cluster.objects["pods"][next(iter(cluster.objects["pods"]))]["metadata"]["annotations"][
        names.SECRET_NOTE
    ]
    look = "cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"
    assert secret not in (await sandbox.exec(shell(look))).stdout.decode()
    await sandbox.destroy()


async def test_a_work_tree_begins_with_what_the_image_holds_in_its_place(cluster, provider):
    (cluster.image / ".hidden").write_text("hidden\n")
    (cluster.image / "a folder").mkdir()
    (cluster.image / "a folder/run").write_text("#!/bin/sh\necho ran in $PWD\n")
    (cluster.image / "a folder/run").chmod(0o755)
    (cluster.image / "link").symlink_to("a folder/run")
    sandbox = await provider.open(replace(SPEC, work_dir="/held", scratch=("/logs/agent", "/logs/verifier")))
    assert (
        await sandbox.exec(shell("./link; cat .hidden; touch new /logs/agent/x"))
    ).stdout == b"ran in /held\nhidden\n"
    assert {"a folder/run", "link", "new"} <= {entry.path for entry in await sandbox.list()}
    assert await sandbox.read("/held/.hidden") == await sandbox.read("/work/.hidden") == b"hidden\n"
    assert await sandbox.read("/logs/agent/x") == b""
    await sandbox.destroy()


async def test_commands_see_neither_the_relay_nor_its_files(provider):
    sandbox = await provider.open(SPEC)
    told = (await sandbox.exec(shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))).stdout
    assert b"supervise" in told
    assert b"relay @" not in told
    for number in ("KILL", "STOP"):
        assert (
            await sandbox.exec(shell(f"kill -{number} -1; echo on", timeout_seconds=20))
        ).exit_code is not None
        assert (await sandbox.exec(shell("echo still here"))).stdout == b"still here\n"
    await sandbox.destroy()


async def test_an_old_socket_cannot_be_taken_over_by_a_command(provider):
    sandbox = await provider.open(SPEC)
    program = (
        "import socket\n"
        "box = socket.socket(socket.AF_UNIX)\n"
        "try: box.bind('\\0zubble')\n"
        "except OSError as error: print(error.errno)\n"
        "box.connect('\\0zubble'); box.send(b'\\0\\0\\0\\5\\r\\0\\0\\0\\0guess'); print(box.recv(9))"
    )
    assert (await sandbox.exec(shell(f'python3 -c "{program}"'))).stdout == b"98\nb''\n"
    assert (await sandbox.exec(shell("echo on"))).stdout == b"on\n"
    await sandbox.destroy()


async def test_a_worker_holds_one_lease_and_gives_it_up_when_nothing_is_open(cluster, provider):
    one, other = await asyncio.gather(provider.open(SPEC), provider.open(replace(SPEC, name="2-b-0.1")))
    [lease] = cluster.objects["leases"].values()
    owners = [pod["metadata"]["ownerReferences"][0]["uid"] for pod in cluster.objects["pods"].values()]
    assert owners == [lease["metadata"]["uid"]] * 2
    assert await provider.reap() == 0
    assert len(cluster.objects["pods"]) == 2
    await one.destroy()
    await other.destroy()
    assert cluster.objects == {"pods": {}, "leases": {}}
    assert await provider.reap() == 0


async def test_what_a_dead_worker_of_this_machine_left_is_swept_at_once(cluster, make_provider):
    dead = a_lease(cluster)
    identity = leases.manifest("x", "y", datetime.now(UTC))["spec"]["holderIdentity"]
    host, pid, _ = identity.rsplit("/", 2)
    cluster.objects["leases"][dead["name"]]["spec"]["holderIdentity"] = f"{host}/{pid}/1"
    a_pod(cluster, dead)
    assert await make_provider().reap() == 1
    assert cluster.objects == {"pods": {}, "leases": {}}


@pytest.mark.parametrize(("seconds", "swept"), [(0, 0), (60, 0), (99, 0), (101, 1), (10_000, 1)])
async def test_a_worker_elsewhere_is_given_time_before_it_counts_as_dead(cluster, provider, seconds, swept):
    a_pod(cluster, a_lease(cluster, seconds_ago=seconds))
    assert await provider.reap() == swept
    assert bool(cluster.objects["pods"]) is not bool(swept)
    assert bool(cluster.objects["leases"]) is not bool(swept)


async def test_pods_without_a_lease_and_expired_ones_are_swept_and_strangers_are_not(cluster, provider):
    living = a_lease(cluster)
    a_pod(cluster, {"name": "gone", "uid": "gone"}, name="zubble-1")
    a_pod(cluster, living, name="zubble-2", expires=int(time.time()) - 5)
    a_pod(cluster, living, name="zubble-3")
    a_pod(cluster, living, name="stranger")
    cluster.objects["pods"]["stranger"]["metadata"]["labels"] = {"app": "else"}
    assert await provider.reap() == 2
    assert set(cluster.objects["pods"]) == {"zubble-3", "stranger"}


async def test_pods_of_an_owner_to_be_kept_are_kept_with_their_lease(cluster, provider):
    a_pod(cluster, a_lease(cluster, seconds_ago=1_000))
    assert await provider.reap(keep_owners=frozenset({"worker-9"})) == 0
    assert cluster.objects["leases"]
    assert await provider.reap() == 1


async def test_a_pod_waits_for_its_adopter_as_long_as_it_was_told_to(cluster, provider):
    a_pod(cluster, a_lease(cluster, seconds_ago=200), **{names.LINGER_NOTE: "300"})
    assert await provider.reap() == 0
    cluster.objects["pods"]["zubble-old"]["metadata"]["annotations"][names.LINGER_NOTE] = "100"
    assert await provider.reap() == 1


async def test_a_lease_is_renewed_and_trouble_with_it_ends_no_sandbox(cluster, provider, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    sandbox = await provider.open(SPEC)
    [lease] = cluster.objects["leases"].values()
    cluster.failures += [("PUT", "leases", 500)] * 2 + [("PUT", "leases", 403)]
    before = lease["spec"]["renewTime"]

    def renewed():
        now = cluster.objects["leases"][lease["metadata"]["name"]]["spec"]["renewTime"]
        return not cluster.failures and now != before

    await until(renewed)
    assert (await sandbox.exec(shell("echo on"))).stdout == b"on\n"
    await sandbox.destroy()


async def test_whoever_was_taken_for_dead_gets_a_new_lease_and_says_that_its_sandboxes_are_gone(
    cluster, provider, monkeypatch
):
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    sandbox = await provider.open(SPEC)
    [name] = cluster.objects["leases"]
    cluster.delete("leases", name)
    with pytest.raises(SandboxUnavailable, match="its pod was deleted"):
        await sandbox.exec(shell("sleep 30"))
    await asyncio.sleep(0.3)
    another = await provider.open(SPEC)
    assert set(cluster.objects["leases"]).isdisjoint({name})
    await another.destroy()


async def test_requests_that_fail_in_passing_are_sent_again_and_others_are_told(cluster, provider):
    cluster.failures += [("POST", "pods", 503), ("GET", "pods", 429), ("POST", "leases", 500)]
    sandbox = await provider.open(SPEC)
    await sandbox.destroy()
    cluster.failures.append(("POST", "pods", 403))
    with pytest.raises(SandboxUnavailable, match="may not create pods in namespace 'sandboxes'"):
        await provider.open(SPEC)
    assert not cluster.objects["pods"]


async def test_a_sandbox_that_is_handed_over_is_labelled_anew(cluster, provider):
    sandbox = await provider.open(replace(SPEC, name="warm-1"))
    await sandbox.hand_over(SPEC)
    [pod] = cluster.objects["pods"].values()
    await until(lambda: names.label(pod, names.TASK) == "1-task-0123abcd")
    assert (names.label(pod, names.ATTEMPT), names.note(pod, names.NAME_NOTE)) == ("2", SPEC.name)
    await sandbox.destroy()


async def test_the_rights_in_the_documentation_are_the_calls_that_are_made(
    cluster, make_provider, monkeypatch
):
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    provider = make_provider()
    sandbox = await provider.open(replace(SPEC, linger_seconds=60.0))
    a_pod(cluster, a_lease(cluster, seconds_ago=1_000))
    await until(lambda: ("update", "leases") in cluster.verbs)
    await provider.reap()
    with pytest.raises(SandboxUnavailable, match="its worker is alive"):
        await make_provider().attach(sandbox.handle)
    await sandbox.destroy()
    allowed = {(verb, rule["resources"][0]) for rule in documented_rules() for verb in rule["verbs"]}
    assert allowed == cluster.verbs | {("create", "pods/exec")}


async def test_an_opening_that_is_cancelled_leaves_nothing(cluster, provider):
    for seconds in (0.0, 0.05, 0.15, 0.3):
        opening = asyncio.create_task(provider.open(SPEC))
        await asyncio.sleep(seconds)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await opening).destroy()
        assert not cluster.objects["pods"]


async def test_a_cluster_that_is_not_there_is_one_sentence(make_provider, monkeypatch, tmp_path):
    provider = make_provider(kubeconfig_file=str(tmp_path / "none"))
    with pytest.raises(SandboxUnavailable, match=r"No cluster can be reached: .*kubeconfig_file"):
        await provider.open(SPEC)
    probe = await make_provider(kubeconfig_file=str(tmp_path / "none")).probe()
    assert not probe.available


async def test_where_the_policy_is_not_enforced_no_sandbox_is_opened(cluster, make_provider):
    cluster.policy_enforced = False
    provider = make_provider()
    with pytest.raises(SandboxUnavailable, match="missing or not enforced"):
        await provider.open(SPEC)
    probe = await provider.probe()
    assert (probe.available, probe.isolated) == (False, False)
    assert not cluster.objects["pods"]
    accepting = make_provider(require_network_policy=False)
    probe = await accepting.probe()
    assert (probe.available, probe.isolated, probe.facts["network policy"]) == (True, True, "not looked at")


async def test_where_nothing_can_be_reached_nothing_is_concluded(cluster, provider):
    cluster.address_reachable = False
    with pytest.raises(SandboxUnavailable, match=r"cannot connect .* either"):
        await provider.open(SPEC)


async def test_the_canary_is_sent_once_and_believed_for_a_while(cluster, provider, monkeypatch):
    for _ in range(2):
        await (await provider.open(SPEC)).destroy()
    assert cluster.requests.count(("POST", "pods")) == 2 + 2
    monkeypatch.setattr("zubble_sandbox.pod.POLICY_SECONDS", -1.0)
    cluster.policy_enforced = False
    with pytest.raises(SandboxUnavailable, match="not enforced"):
        await provider.open(SPEC)


async def test_a_probe_says_how_strong_it_is(cluster, make_provider):
    probe = await make_provider().probe()
    assert (probe.available, probe.isolated, probe.strength, probe.problems) == (True, True, "limits", ())
    assert probe.facts["network policy"] == "enforced"
    probe = await make_provider(runtime_class="gvisor").probe()
    assert probe.strength == "kernel"
