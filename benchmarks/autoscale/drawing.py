"""A few lines over a day, one panel for each measure, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 860
_LEFT, _RIGHT, _HEIGHT, _GAP, _TOP = 70, 20, 130, 34, 44
_COLOURS: Final = ("#1b6ca8", "#7fb069", "#d1495b")
_TICKS_HOURS: Final = 6
_FONT: Final = 'font-family="sans-serif" font-size="12"'

Line = Sequence[tuple[float, float]]
"""(hours, value), ascending."""


def svg(title: str, panels: Mapping[str, Mapping[str, Line]]) -> str:
    """Panels below each other, each with the same lines by name, over the same hours."""
    names = list(next(iter(panels.values())))
    height = _TOP + len(panels) * (_HEIGHT + _GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {_FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
        *_legend(names),
    ]
    hours = max(line[-1][0] for lines in panels.values() for line in lines.values())
    for number, (measure, lines) in enumerate(panels.items()):
        parts += _panel(measure, lines, hours, _TOP + number * (_HEIGHT + _GAP) + 18)
    return "\n".join([*parts, "</svg>", ""])


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = _LEFT
    for name, colour in zip(names, _COLOURS, strict=False):
        yield f'<rect x="{x}" y="28" width="14" height="4" fill="{colour}"/>'
        yield f'<text x="{x + 20}" y="34">{escape(name)}</text>'
        x += 40 + 7 * len(name)


def _panel(measure: str, lines: Mapping[str, Line], hours: float, top: float) -> Iterator[str]:
    width, bottom = WIDTH - _LEFT - _RIGHT, top + _HEIGHT
    most = max((value for line in lines.values() for _, value in line), default=0) or 1
    yield f'<text x="{_LEFT}" y="{top - 4}" fill="#444">{escape(measure)}</text>'
    yield f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.4g}</text>'
    yield f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>'
    for hour in range(0, int(hours) + 1, _TICKS_HOURS):
        x = _LEFT + width * hour / hours
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 13}" text-anchor="middle" fill="#666">{hour}:00</text>'
    for line, colour in zip(lines.values(), _COLOURS, strict=False):
        places = ((_LEFT + width * hour / hours, bottom - _HEIGHT * value / most) for hour, value in line)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline fill="none" stroke="{colour}" stroke-width="1.4" points="{points}"/>'
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{WIDTH - _RIGHT}" y2="{bottom}" stroke="#888"/>'
