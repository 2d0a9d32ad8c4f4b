"""What tasks ask to be let to is shown before they are submitted, and compared with what workers grant."""

from __future__ import annotations

import json

import pytest

from zubble_queue.cli import main, networks
from zubble_queue.cli.defaults import task_defaults
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.formats import envelopes


@pytest.fixture
def read(tmp_path):
    """The envelopes of some task lines."""

    def read(*lines, **flags):
        path = tmp_path / "tasks.jsonl"
        whole = ({"id": str(number), "description": "x", **line} for number, line in enumerate(lines))
        path.write_text("\n".join(map(json.dumps, whole)))
        defaults = task_defaults(batch="b", model="m", budget=LoopBudget(), **flags)
        return [parcel.envelope for parcel in envelopes.read(path, defaults)]

    return read


CHECK = {"verify": {"command": "true"}}
CHECK_ONLINE = {"verify": {"command": "true", "network": "open"}}


def worker(host, *granted, pool="default"):
    return WorkerInfo(
        worker_id=host, version="1", host=host, pid=1, slots=1, busy=0, pools=(pool,), models={"m": "x"},
        sandboxes=("bubblewrap",), networks=granted,
    )  # fmt: skip


def test_a_dry_run_shows_what_every_phase_may_reach(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zubble.toml").write_text('[models.m]\nbase_url = "http://127.0.0.1:1/v1"\nprice = "free"\n')
    tasks = [{"id": "a", "description": "x", **CHECK}, {"id": "b", "description": "x", **CHECK_ONLINE}]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    submit = ["batch", "submit", "tasks.jsonl", "--model", "m", "--dry-run"]
    hosts = ["--allow-host", "PyPI.org", "--allow-host", "*.pythonhosted.org"]

    assert main([*submit, *hosts]) == 0
    said = capsys.readouterr().out
    assert "Commands of 2 tasks may reach *.pythonhosted.org, pypi.org.\n" in said
    assert "Checks of 1 task may reach the whole network of their worker.\n" in said

    assert main([*submit, *hosts, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["networks"] == [
        {
            "phase": "sandbox", "network": "allowlist", "allowed_hosts": ["*.pythonhosted.org", "pypi.org"],
            "tasks": 2,
        },
        {"phase": "verify", "network": "open", "allowed_hosts": [], "tasks": 1},
    ]  # fmt: skip


def test_a_dry_run_of_tasks_that_reach_nothing_says_nothing_of_it(read):
    assert not networks.reaches(read(CHECK, CHECK))


def test_an_empty_list_is_called_what_it_is(read):
    ((reach, count),) = networks.reaches(read(CHECK, network="allowlist")).items()
    assert reach.words(count) == "Commands of 1 task may reach nothing: the allow-list is empty."


def test_workers_that_would_refuse_a_network_are_named(read):
    tasks = read(CHECK, CHECK_ONLINE, allow_hosts=["a.example"])
    alive = [
        worker("grants-all", "none", "allowlist", "open"),
        worker("grants-none", "none"),
        worker("grants-lists", "allowlist"),
        worker("elsewhere", "none", pool="gpu"),
    ]
    named = [sentence.split(" and seals")[0] for sentence in networks.ungranted(tasks, alive)]
    assert named == [
        "a worker on 'grants-lists' does not allow network 'open'",
        "a worker on 'grants-none' does not allow network 'allowlist'",
        "a worker on 'grants-none' does not allow network 'open'",
    ]
    assert list(networks.ungranted(read(CHECK), alive)) == []


def test_each_phase_is_asked_of_the_sandbox(read):
    asked = list(networks.sandboxes(read(CHECK, CHECK_ONLINE, allow_hosts=["a.example"])))
    assert [(request.network, request.allowed_hosts) for request in asked] == [
        ("allowlist", ("a.example",)),
        ("none", ()),
        ("allowlist", ("a.example",)),
        ("open", ()),
    ]


def test_a_network_that_the_sandbox_cannot_keep_is_refused_here(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZUBBLE_WORKER__SANDBOXES", "local")
    monkeypatch.setenv("ZUBBLE_WORKER__NETWORKS", "allowlist,open")
    execute = ["sandbox", "exec", "--sandbox", "local"]

    assert main([*execute, "--allow-host", "a.example", "--", "true"]) == 2
    assert capsys.readouterr().err == "Sandbox 'local' cannot keep network 'allowlist'; it has none, open.\n"
    assert main([*execute, "--network", "open", "--", "true"]) == 0, "control"


def test_an_allow_list_can_be_tried_and_says_what_was_asked_for(tmp_path, monkeypatch, capsys, missing_part):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZUBBLE_WORKER__NETWORKS", "allowlist")
    ask = "import urllib.request as u; u.urlopen('http://denied.example/', timeout=20)"

    code = main(["sandbox", "exec", "--allow-host", "a.example", "--json", "--", "python3", "-I", "-c", ask])

    said = capsys.readouterr()
    if code == 2 and "does not work here" in said.err:
        missing_part(said.err)
    found = json.loads(said.out)
    assert "HTTP Error 403" in found["stderr"]
    (use,) = found["host_uses"]
    assert (use["host"], use["denied"], use["reasons"]) == ("denied.example", 1, ["host"])
    assert said.err == "denied.example: 0 allowed, 1 denied host\n"
