"""What the doctor reads off objects of a cluster."""

from __future__ import annotations

import pytest

from zubble_sandbox.cluster.workload import (
    SecretUse,
    Workload,
    denies_all,
    last_words,
    troubles,
    unscheduled,
)

PODS = {"name": "ZUBBLE_WORKER__SANDBOXES", "value": "pod,docker"}


def workload(*containers, volumes=(), configs=None, **spec):
    template = {"spec": {"containers": list(containers), "volumes": list(volumes), **spec}}
    manifest = {"kind": "Deployment", "metadata": {"name": "w"}, "spec": {"template": template}}
    return Workload(manifest, configs or {})


def secret(name, key, **more):
    return {"name": "X", "valueFrom": {"secretKeyRef": {"name": name, "key": key, **more}}}


def test_secrets_are_those_that_a_pod_cannot_start_without():
    found = workload(
        {"env": [secret("a", "url"), secret("b", "k", optional=True), {"name": "Y", "value": "z"}]},
        {"env": [secret("a", "url")], "envFrom": [{"secretRef": {"name": "c"}}]},
        volumes=[
            {"name": "v", "secret": {"secretName": "d"}},
            {"name": "u", "secret": {"secretName": "f", "items": [{"key": "users", "path": "users"}]}},
            {"name": "e", "emptyDir": {}},
        ],
        initContainers=[{"env": [secret("i", "k")]}],
    ).secrets
    wanted = [("i", "k"), ("a", "url"), ("c", None), ("d", None), ("f", "users")]
    assert found == [SecretUse(name, key) for name, key in wanted]


@pytest.mark.parametrize(
    ("container", "data", "sandboxes"),
    [
        ({"args": ["worker"]}, None, ("bubblewrap",)),
        ({"args": ["dispatcher"], "env": [PODS]}, None, ()),
        ({"args": ["worker"], "env": [PODS]}, None, ("pod", "docker")),
        ({"args": ["worker"]}, '[worker]\nsandboxes = ["pod"]\n', ("pod",)),
        ({"args": ["worker"]}, "[worker\n", ("bubblewrap",)),
    ],
)
def test_the_sandboxes_are_those_of_the_environment_else_of_the_file(container, data, sandboxes):
    configs = {} if data is None else {"c": {"data": {"zubble.toml": data}}}
    found = workload(container, volumes=[{"name": "config", "configMap": {"name": "c"}}], configs=configs)
    assert found.sandboxes == sandboxes


def test_options_of_pods_are_read_as_a_worker_reads_them_but_for_its_own_way_to_the_cluster():
    text = '[sandboxes.pod]\nnamespace = "a"\nimage = "x"\ncontext = "there"\n'
    found = workload(
        {"args": ["worker"], "env": [{"name": "ZUBBLE_SANDBOXES__POD__NAMESPACE", "value": "b"}]},
        volumes=[{"name": "config", "configMap": {"name": "c"}}],
        configs={"c": {"data": {"zubble.toml": text}}},
    )
    assert found.pod_options == {"namespace": "b", "image": "x"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"state": {"running": {}}}, []),
        ({"state": {"running": {}}, "lastState": {"terminated": {"reason": "OOMKilled"}}}, []),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, []),
        ({"state": {"waiting": {"reason": "ErrImagePull", "message": "no such"}}}, ["ErrImagePull: no such"]),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}, ["CrashLoopBackOff"]),
        ({"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}, ["CrashLoopBackOff"]),
        ({"state": {"terminated": {"exitCode": 0}}}, []),
        ({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, ["OOMKilled"]),
    ],
)
def test_why_a_container_does_not_run(status, said):
    pod = {"status": {"containerStatuses": [{"name": "worker", **status}]}}
    assert [trouble for _, trouble in troubles(pod)] == said


def test_a_pod_that_no_node_takes_says_why():
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient memory"}
    assert unscheduled({"status": {"conditions": [condition]}}) == "0/3 nodes: Insufficient memory"
    assert unscheduled({"status": {}}) == ""


@pytest.mark.parametrize(
    ("log", "said"),
    [("", ""), ("a\nb.\n\n", "b."), ('{"event": "it left", "level": "info"}\n', "it left"), ("[1]\n", "[1]")],
)
def test_last_words_are_the_last_line_as_a_sentence(log, said):
    assert last_words(log) == said


@pytest.mark.parametrize(
    ("spec", "denies"),
    [
        ({"policyTypes": ["Ingress", "Egress"]}, True),
        ({"policyTypes": ["Ingress", "Egress"], "egress": []}, True),
        ({"policyTypes": ["Ingress", "Egress"], "egress": [{}]}, False),
        ({"policyTypes": ["Ingress"]}, False),
        ({}, False),
    ],
)
def test_a_policy_that_lets_nothing_pass(spec, denies):
    assert denies_all({"spec": spec}) is denies
