"""The table of attacks names tests that are there, and no attack is forgotten."""

from __future__ import annotations

from pathlib import Path

from tests.abuse.attacks import ATTACKS
from tests.abuse.table import BEGIN, END, node

ROOT = Path(__file__).parents[3]


def test_every_attack_but_the_gateways_has_its_tests():
    assert sorted(ATTACKS) == [number for number in range(1, 73) if number != 43]


def test_every_test_that_is_named_exists():
    named = [
        (attack.where, test) for attacks in ATTACKS.values() for attack in attacks for test in attack.tests
    ]
    missing = [
        f"{where}: {test}"
        for where, test in named
        if f"def test_{test}(" not in (ROOT / node(where)).read_text()
    ]
    assert missing == []


def test_the_page_on_security_has_a_place_for_the_table():
    text = (ROOT / "docs/security.md").read_text("utf-8")
    assert text.index(BEGIN) < text.index(END)
