"""`[sandboxes.pod]`: what is taken, and what is refused in one sentence."""

from __future__ import annotations

import pytest

from zubble_queue import sandboxes
from zubble_queue.errors import BadInput
from zubble_queue.settings import Settings
from zubble_sandbox.pods.options import PodOptions


def settings(monkeypatch, tmp_path, text):
    file = tmp_path / "zubble.toml"
    file.write_text("[sandboxes.pod]\n" + text)
    monkeypatch.setenv("ZUBBLE_CONFIG", str(file))
    return Settings.load()


def test_a_table_is_taken_with_files_from_its_own_folder(monkeypatch, tmp_path):
    text = """
        kubeconfig_file = "kube/config"
        namespace = "boxes"
        node_selector = { pool = "sandboxes" }
        tolerations = [{ key = "a", operator = "Exists", effect = "NoSchedule" }]
        pull_secrets = ["registry"]
    """
    options = sandboxes.provider(settings(monkeypatch, tmp_path, text), "pod").options
    assert options.kubeconfig_file == str(tmp_path / "kube/config")
    assert (options.namespace, options.node_selector) == ("boxes", {"pool": "sandboxes"})
    assert options.tolerations[0].effect == "NoSchedule"


def test_from_the_environment_lists_have_commas_and_tables_are_json(monkeypatch, tmp_path):
    monkeypatch.setenv("ZUBBLE_SANDBOXES__POD__PULL_SECRETS", "a,b")
    monkeypatch.setenv("ZUBBLE_SANDBOXES__POD__NODE_SELECTOR", '{"pool": "x"}')
    monkeypatch.setenv("ZUBBLE_SANDBOXES__POD__TOLERATIONS", '[{"operator": "Exists"}]')
    monkeypatch.setenv("ZUBBLE_SANDBOXES__POD__CPUS", "0.5")
    options = sandboxes.provider(settings(monkeypatch, tmp_path, ""), "pod").options
    assert (options.pull_secrets, options.node_selector, options.cpus) == (("a", "b"), {"pool": "x"}, 0.5)
    assert options.tolerations[0].operator == "Exists"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('namespace = "Not A Name"', "namespace"),
        ('box_path = "relative"', "box_path"),
        ('canary_address = "no-port"', "canary_address"),
        ("cpus = 0", "cpus"),
        ("uid_base = 4294967290\nuid_count = 9", "uid_count"),
        ('work_medium = "tape"', "work_medium"),
        ('tolerations = [{ operator = "Perhaps" }]', "tolerations.0.operator"),
        ('node_selector = "{"', "node_selector"),
        ("privileged = true", "privileged"),
        ("host_network = true", "host_network"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_with_its_field(monkeypatch, tmp_path, text, field):
    with pytest.raises(BadInput) as refused:
        sandboxes.provider(settings(monkeypatch, tmp_path, text), "pod")
    [problem] = refused.value.problems
    assert f"sandboxes.pod.{field}: " in problem
    assert str(tmp_path / "zubble.toml") in problem


def test_uids_that_do_not_fit_are_refused_whichever_field_says_so(monkeypatch, tmp_path):
    with pytest.raises(
        BadInput, match=r"sandboxes\.pod\.uid_count: uid_base \+ uid_count is above the last uid"
    ):
        sandboxes.provider(settings(monkeypatch, tmp_path, "uid_base = 4294967290"), "pod")


def test_no_option_opens_a_pod_further_than_its_sandbox_needs():
    words = (
        "host_path",
        "host_network",
        "privileged",
        "volume",
        "capabilit",
        "docker",
        "host_pid",
        "run_as_root",
    )
    assert not [name for name in PodOptions.model_fields for word in words if word in name]
