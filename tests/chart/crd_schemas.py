"""JSON schemas of custom resources, from Python models that were generated from their definitions.

    python tests/chart/crd_schemas.py FOLDER_OF_WHEELS FOLDER_OF_SCHEMAS

The models need a newer Python than the tests run on, so their modules are not imported: the fields of the
classes are read from their source and made into models of pydantic, which refuse what they do not know.
"""

from __future__ import annotations

import ast
import json
import sys
import types
import typing
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic

KINDS = {
    "ScaledObject": "cloudcoil/models/keda/v1alpha1.py",
    "PodMonitor": "cloudcoil/models/prometheus_operator/v1.py",
    "PrometheusRule": "cloudcoil/models/prometheus_operator/v1.py",
}


class _Strict(pydantic.BaseModel):
    """A field that the definition does not have is a misspelled one."""

    model_config = pydantic.ConfigDict(extra="forbid")


def schema(source: str, kind: str) -> dict[str, Any]:
    """What an API server with the definition of this kind would accept; metadata is not looked into."""
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    wanted = _reachable(classes, kind)
    body = [_fields(node) for name, node in classes.items() if name in wanted]
    module = ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))
    place = sys.modules[f"{__name__}.{kind}"] = types.ModuleType(f"{__name__}.{kind}")
    vars(place).update(
        {name: getattr(typing, name) for name in ("Annotated", "Literal")},
        **{name: getattr(pydantic, name) for name in ("AwareDatetime", "Field", "RootModel")},
        BaseModel=_Strict,
        Resource=_Strict,
        ObjectMeta=dict[str, Any],
    )
    exec(compile(module, kind, "exec", dont_inherit=True), vars(place))
    made: dict[str, Any] = vars(place)[kind].model_json_schema(by_alias=True)
    return made


def _reachable(classes: dict[str, ast.ClassDef], kind: str) -> set[str]:
    found: set[str] = set()
    waiting = [kind]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [other for other in _named(classes[name]) if other in classes]
    return found


def _named(node: ast.ClassDef) -> Iterator[str]:
    for part in [*_fields(node).body, *node.bases]:
        yield from (inner.id for inner in ast.walk(part) if isinstance(inner, ast.Name))


def _fields(node: ast.ClassDef) -> ast.ClassDef:
    fields = [
        line for line in node.body if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.dump(line)
    ]
    return ast.ClassDef(node.name, node.bases, [], fields or [ast.Pass()], [])


def _write(wheels: Path, schemas: Path) -> None:
    schemas.mkdir(exist_ok=True)
    for wheel in wheels.glob("cloudcoil_models_*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for kind, path in KINDS.items():
                if path in archive.namelist():
                    made = schema(archive.read(path).decode(), kind)
                    (schemas / f"{kind}.json").write_text(json.dumps(made))


if __name__ == "__main__":
    _write(Path(sys.argv[1]), Path(sys.argv[2]))
