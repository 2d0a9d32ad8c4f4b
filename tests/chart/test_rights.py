"""The rights that the chart grants are the calls that the code makes, read from the code itself."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import zubble_sandbox
from zubble_sandbox.pods.api import Api
from zubble_worker import deletion_cost

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {"pods": "", "pods/exec": "", "leases": "coordination.k8s.io"}
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
EXEC = {"create", "get"}
"""Of an exec stream: newer clusters ask for the one, older ones for the other."""
Rights = dict[tuple[str, str], set[str]]


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Calls of methods, with the method's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func.attr


def _constants(node: ast.AST | None) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _requests(source: str) -> dict[str, set[str]]:
    """Method of the class to the verbs of its requests, those of the methods it calls included."""
    [cls] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    methods = {node.name: node for node in cls.body if isinstance(node, ast.AsyncFunctionDef)}

    def verbs(name: str) -> set[str]:
        found: set[str] = set()
        for call, called in _calls(methods[name]):
            if called == "_request":
                named = len(call.args) > 2
                found |= {
                    VERBS.get(method, "get" if named else "list") for method in _constants(call.args[0])
                }
            elif (
                called in methods
                and not called.startswith("_")
                and ast.unparse(call.func) == f"self.{called}"
            ):
                found |= verbs(called)
        return found

    return {name: verbs(name) for name in methods if not name.startswith("_")}


def _rights_of_workers() -> Rights:
    """Whatever the sandboxes' code asks of an Api, by the collection that each call names."""
    verbs = _requests(inspect.getsource(Api))
    found: Rights = defaultdict(set)
    folder = Path(next(iter(zubble_sandbox.__path__)))
    for path in [folder / "pod.py", *(folder / "pods").glob("*.py")]:
        for call, method in _calls(ast.parse(path.read_text("utf-8"))):
            if method == "exec_line" and path.name != "api.py":
                found["", "pods/exec"] |= EXEC
            for collection in _constants(call.args[0] if call.args else None):
                if method in verbs and collection in GROUPS:
                    found[GROUPS[collection], collection] |= verbs[method]
    return dict(found)


def _granted(role: dict[str, Any]) -> Rights:
    found: Rights = defaultdict(set)
    for rule in role["rules"]:
        assert set(rule) == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found[group, resource] |= set(rule["verbs"])
    return dict(found)


def _roles(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each
        for each in manifests
        if each["kind"] == "Role"
    }


def test_what_is_read_from_the_code_is_what_it_does():
    """The reading itself: a known method of each kind."""
    verbs = _requests(inspect.getsource(Api))
    assert verbs["create"] == {"create", "get"}
    assert verbs["find"] == {"get"}
    assert verbs["replace"] == {"update"}
    assert verbs["listed"] == {"list"}
    assert verbs["exec_line"] == set()


def test_every_collection_that_the_code_names_is_looked_at():
    """A request whose collection is not a word in the call would not be seen."""
    folder = Path(next(iter(zubble_sandbox.__path__)))
    for path in [folder / "pod.py", *(folder / "pods").glob("*.py")]:
        for call, method in _calls(ast.parse(path.read_text("utf-8"))):
            target = ast.unparse(call.func)
            if (
                path.name != "api.py"
                and re.search(r"\bapi(\(\)\))?\.", target)
                and method in _requests(inspect.getsource(Api))
            ):
                assert method == "exec_line" or _constants(call.args[0]), f"{path.name}: {ast.unparse(call)}"


def test_workers_may_do_what_their_code_does_and_nothing_else(newest):
    role = _roles(newest.template())["sandbox"]
    assert role["metadata"]["namespace"] == "agents-sandboxes"
    assert _granted(role) == _rights_of_workers()


def test_the_documentation_names_the_same_rights():
    text = (ROOT / "docs/how-to/pods.md").read_text("utf-8")
    [block] = re.findall(r"```yaml\n(apiVersion: v1\nkind: Namespace.*?)```", text, re.DOTALL)
    [role] = [each for each in yaml.safe_load_all(block) if each["kind"] == "Role"]
    assert _granted(role) == _rights_of_workers()


def test_a_dispatcher_may_do_what_its_code_does_where_it_is_told_to(newest):
    calls = [
        (method, ast.unparse(call.args[0]))
        for call, method in _calls(ast.parse(inspect.getsource(deletion_cost)))
        if call.args and "/namespaces/" in ast.unparse(call.args[0])
    ]
    [(method, url)] = calls
    assert re.fullmatch(r"f'/api/v1/namespaces/\{[^}]+\}/pods/\{pod\}'", url)
    role = _roles(newest.template("--set", "dispatcher.podDeletionCost=true"))["dispatcher"]
    assert "namespace" not in role["metadata"]
    assert _granted(role) == {("", "pods"): {method}}
    assert "dispatcher" not in _roles(newest.template())


def test_each_role_is_bound_to_the_one_account_that_needs_it(manifests):
    accounts = {"sandbox": "worker", "dispatcher": "dispatcher"}
    bindings = [each for each in manifests if each["kind"] == "RoleBinding"]
    assert len(bindings) == len(_roles(manifests))
    for binding in bindings:
        part = binding["metadata"]["labels"]["app.kubernetes.io/component"]
        role = _roles(manifests)[part]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["metadata"].get("namespace") == role["metadata"].get("namespace")
        assert binding["subjects"] == [
            {
                "kind": "ServiceAccount",
                "name": f"trial-zubble-queue-{accounts[part]}",
                "namespace": "agents",
            }
        ]


@pytest.mark.parametrize("word", ["*", "secrets", "escalate", "bind", "impersonate"])
def test_no_rule_grants_more_than_a_word_says(everything, word: str):
    for role in (each for each in everything if each["kind"] == "Role"):
        for rule in role["rules"]:
            assert word not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_a_pool_of_bubblewrap_makes_no_namespace_and_has_no_right(newest):
    manifests = newest.template("--set", "worker.sandboxes={bubblewrap}")
    assert not [each for each in manifests if each["kind"] in {"Role", "RoleBinding", "Namespace"}]
