"""What can be said about a template without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jinja2 import TemplateSyntaxError, nodes
from jinja2.sandbox import SandboxedEnvironment

from zubble_queue.templating.variables import NAMES

_GLOBALS: Final = frozenset(SandboxedEnvironment().globals)


def problems(text: str) -> Iterator[str]:
    """One sentence each; the template is parsed only, nothing in it is computed."""
    try:
        tree = SandboxedEnvironment().parse(text)
    except TemplateSyntaxError as wrong:
        yield f"line {wrong.lineno}: {wrong.message}"
        return
    except RecursionError:
        yield "it is nested too deeply"
        return
    if next(tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)), None):
        yield "it must not include, import or extend another file"
    names = list(tree.find_all(nodes.Name))
    own = {name.name for name in names if name.ctx != "load"} | {
        "loop",
        "caller",
        "self",
        "varargs",
        "kwargs",
    }
    own |= {macro.name for macro in tree.find_all(nodes.Macro)}
    for name in sorted({name.name for name in names} - own - _GLOBALS - set(NAMES)):
        yield f"there is no variable {name!r}; known: {', '.join(NAMES)}"
