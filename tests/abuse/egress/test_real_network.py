"""Attacks 36, 38 and 40 with nothing pretended: the machine's resolver and routes, on a network apart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "programs" / "reach_out_of_a_namespace.py"
WEB, OURS = "93.184.216.34", "93.184.216.1"
REACHED = "HTTP/1.1 200 OK | hello"


@pytest.fixture
def network_apart(missing_part):
    if os.geteuid() != 0:
        pytest.skip("Making networks takes root.")
    trial = ["unshare", "--net", "ip", "link", "add", "here", "type", "veth", "peer", "name", "there"]
    if not shutil.which("ip") or subprocess.run(trial, check=False, capture_output=True).returncode:
        missing_part("No network can be made here (iproute2, CAP_NET_ADMIN, veth).")


@pytest.mark.usefixtures("network_apart")
def test_names_are_looked_up_once_and_lead_only_to_public_addresses_of_other_machines():
    asked = [
        ("http://allowed.example/", [[WEB]]),
        ("http://flips.example/", [[WEB], ["127.0.0.1"]]),
        ("http://flips.example/", []),
        ("http://local.example/", [["127.0.0.1"]]),
        ("http://metadata.example/", [["169.254.169.254"]]),
        ("http://mapped.example/", [["::ffff:127.0.0.1"]]),
        ("http://ours.example/", [[OURS]]),
        ("http://mixed.example/", [["127.0.0.1", WEB]]),
        ("http://nothing.example/", [[]]),
        ("http://secret.attacker.test/", [[WEB]]),
    ]
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, PROGRAM],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    said = dict(enumerate(found["said"]))
    refused = {number: text.partition(" | zubble: ")[2] for number, text in said.items() if text != REACHED}
    assert [number for number in said if number not in refused] == [0, 1, 7]
    assert refused == {
        2: "flips.example leads to 127.0.0.1, not a public address.",
        3: "local.example leads to 127.0.0.1, not a public address.",
        4: "metadata.example leads to 169.254.169.254, not a public address.",
        5: "mapped.example leads to ::ffff:127.0.0.1, not a public address.",
        6: f"ours.example leads to {OURS}, an address of this machine.",
        8: "nothing.example cannot be resolved.",
        9: "secret.attacker.test is not on the allow-list of this task.",
    }
    assert found["touched"] == 0, "the traps on our own addresses"
    assert not [name for name in found["asked"] if "attacker" in name], (
        "no packet leaves for a name not allowed"
    )
