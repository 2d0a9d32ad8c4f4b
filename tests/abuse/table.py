"""The table of attacks, backends and results: a plugin for pytest that writes it when a run ends.

Used by `script/attack-table`: pytest -p tests.abuse.table --attack-table docs/security.md …
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from tests.abuse.attacks import ATTACKS, Attack

COLUMNS: Final = ("bubblewrap", "docker", "pod")
BEGIN, END = "<!-- attacks: script/attack-table -->", "<!-- end of attacks -->"
_ONLY: Final = {65: "any", 66: "docker", 67: "pod", 68: "pod", 69: "pod"}
_ANY: Final = "any"


class Table:
    """Collects outcomes by test and backend."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._outcomes: dict[tuple[str, str], set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            path, _, rest = report.nodeid.partition("::")
            name, _, parameters = rest.partition("[")
            backend = next((column for column in COLUMNS if column in parameters), _ANY)
            self._outcomes[f"{path}::{name}", backend].add(report.outcome)

    def pytest_sessionfinish(self) -> None:
        text = self._target.read_text("utf-8")
        head, _, rest = text.partition(BEGIN)
        tail = rest.partition(END)[2]
        self._target.write_text(f"{head}{BEGIN}\n{self.render()}\n{END}{tail}", "utf-8")

    def render(self) -> str:
        lines = ["| # | attack | " + " | ".join(COLUMNS) + " |", "|---|---|" + "---|" * len(COLUMNS)]
        for number, attacks in sorted(ATTACKS.items()):
            cells = " | ".join(self._cell(number, attacks, column) for column in COLUMNS)
            lines.append(f"| {number} | {'; '.join(attack.what for attack in attacks)} | {cells} |")
        return "\n".join(lines)

    def _cell(self, number: int, attacks: tuple[Attack, ...], column: str) -> str:
        if _ONLY.get(number, column) not in {column, _ANY}:
            return "-"
        tests = [(attack, test) for attack in attacks for test in attack.tests]
        found = [self._outcomes_of(*one, column, alone=number in _ONLY) for one in tests]
        if any("failed" in outcomes for outcomes in found):
            return "**FAILED**"
        held = sum("passed" in outcomes for outcomes in found)
        if not held:
            return "not run"
        return "held" if held == len(found) else f"held ({held} of {len(found)} tests run)"

    def _outcomes_of(self, attack: Attack, test: str, column: str, *, alone: bool) -> set[str]:
        """A test that knows no backend tells about what all of them share; about a pod only its own do."""
        nodeid = f"{node(attack.where)}::test_{test}"
        shared = self._outcomes.get((nodeid, _ANY), set())
        own = self._outcomes.get((nodeid, column), set())
        return own | (shared if alone or column != "pod" else set())


def node(where: str) -> str:
    folder, _, name = where.rpartition("/")
    return f"tests/{folder}/test_{name}.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attack-table", metavar="FILE", help="write the table of attacks into this file")


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--attack-table"):
        config.pluginmanager.register(Table(Path(target)))


if __name__ == "__main__":
    sys.stdout.write(
        "\n".join(sorted({node(one.where) for found in ATTACKS.values() for one in found})) + "\n"
    )
