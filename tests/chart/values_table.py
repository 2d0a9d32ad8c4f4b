"""The table of values in the chart's README, made of values.yaml and its comments.

python tests/chart/values_table.py      writes it anew
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "charts/zubble-queue"
BEGIN, END = "<!-- values -->\n", "<!-- end of values -->"
_LINE = re.compile(r"( *)([A-Za-z_.]+):(?:\s|$)")


def table() -> str:
    """Every value with its default and its comment; a mapping whose parts have none is one value."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    comments = dict(_comments((CHART / "values.yaml").read_text("utf-8").splitlines()))
    rows = [
        f"| `{name}` | {_default(value)} | {comments.get(name, '')} |"
        for name, value in leaves(values, comments)
    ]
    return "\n".join(["| value | default | |", "|---|---|---|", *rows]) + "\n"


def leaves(values: dict[str, Any], comments: dict[str, str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and default."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        nested = isinstance(value, dict) and any(other.startswith(f"{name}.") for other in comments)
        if nested:
            yield from leaves(value, comments, f"{name}.")
        else:
            yield name, value


def commented() -> dict[str, str]:
    """Dotted name to the comment above it."""
    return dict(_comments((CHART / "values.yaml").read_text("utf-8").splitlines()))


def _comments(lines: list[str]) -> Iterator[tuple[str, str]]:
    path: list[str] = []
    said: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("#"):
            said.append(text.lstrip("# "))
        elif found := _LINE.match(line):
            path[len(found[1]) // 2 :] = [found[2]]
            if said:
                yield ".".join(path), " ".join(said)
            said = []
        else:
            said = []


def _default(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return "comments only"
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _write() -> None:
    readme = CHART / "README.md"
    before, rest = readme.read_text("utf-8").split(BEGIN)
    readme.write_text(before + BEGIN + table() + END + rest.split(END)[1], "utf-8")


if __name__ == "__main__":
    _write()
