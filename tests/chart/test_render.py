"""The chart lints and renders with every value file, and what it renders is what a cluster accepts."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import zubble_queue
from tests.chart.rendered import CHART, HELMS, VALUES
from tests.chart.values_table import BEGIN, END, commented, leaves, table

CUSTOM = {"ScaledObject", "PodMonitor", "PrometheusRule"}


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch):
    """The validator, which otherwise reads its 10 MB of definitions again for each manifest."""
    module = sys.modules[kubernetes_validate.validate.__module__]
    monkeypatch.setattr(module, "schema_contents", functools.cache(module.schema_contents))
    return functools.partial(kubernetes_validate.validate, strict=True)


@pytest.fixture
def accepts(schemas, missing_part):
    """Checks a custom resource by its definition; a field that this does not know is wrong."""

    @functools.cache
    def validator(kind: str) -> jsonschema.Draft202012Validator:
        if not (schemas / f"{kind}.json").exists():
            missing_part("The schemas of custom resources are not to be had; script/fetch-helm fetches them.")
        return jsonschema.Draft202012Validator(json.loads((schemas / f"{kind}.json").read_text()))

    return lambda manifest: validator(manifest["kind"]).validate(manifest)


def test_the_chart_lints(helm, values):
    done = helm.run("lint", "--strict", str(CHART), "-f", str(values))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_is_tested_with_both_major_versions_of_helm(helm_majors, missing_part):
    if not {"helm-v3", "helm-v4"} <= helm_majors:
        missing_part(f"Helm 3 and Helm 4 are not both to be had, only: {sorted(helm_majors)}.")


def test_every_helm_renders_the_same(manifests, values):
    for helm in HELMS:
        assert helm.template("-f", str(values)) == manifests


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_every_manifest_is_valid_for_the_oldest_and_the_newest_kubernetes(everything, strict, version: str):
    for manifest in everything:
        if manifest["kind"] not in CUSTOM:
            strict(manifest, version)


def test_a_kind_that_nobody_knows_is_a_failure(strict):
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        strict({"apiVersion": "example.com/v1", "kind": "Unknown"}, "1.37")


def test_every_custom_resource_is_what_its_definition_accepts(everything, accepts):
    custom = [manifest for manifest in everything if manifest["kind"] in CUSTOM]
    assert {manifest["kind"] for manifest in custom} == CUSTOM
    for manifest in custom:
        accepts(manifest)


@pytest.mark.parametrize(
    "wrong",
    [
        {"maxReplicaCout": 5},
        {"maxReplicaCount": "five"},
        {"triggers": [{"metadata": {}}]},
        {"scaleTargetRef": {}},
    ],
)
def test_a_scaled_object_that_is_wrong_is_found(everything, accepts, wrong: dict[str, Any]):
    good = next(manifest for manifest in everything if manifest["kind"] == "ScaledObject")
    with pytest.raises(jsonschema.ValidationError):
        accepts({**good, "spec": {**good["spec"], **wrong}})


def test_no_object_is_rendered_twice(manifests):
    names = [
        (manifest["kind"], manifest["metadata"].get("namespace"), manifest["metadata"]["name"])
        for manifest in manifests
    ]
    assert len(names) == len(set(names))


def test_names_fit_where_release_and_pool_are_long(newest):
    name = "a-release-whose-name-is-as-long-as-helm-allows-53-ch"
    done = newest.run(
        "template", name, str(CHART), "--set", "pools.a-pool-of-names.slots=1,artifacts.url=s3://b/p"
    )
    assert done.returncode == 0, done.stderr
    for manifest in filter(None, yaml.safe_load_all(done.stdout)):
        if manifest["kind"] != "PriorityClass":
            assert len(manifest["metadata"]["name"]) <= 63


def test_the_chart_names_the_packages_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == zubble_queue.__version__
    assert chart["version"] == zubble_queue.__version__


def test_the_readme_has_every_value_with_its_default():
    readme = (CHART / "README.md").read_text("utf-8")
    assert readme.split(BEGIN)[1].split(END)[0] == table(), "run python tests/chart/values_table.py"


def test_every_value_is_explained():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert {name for name, _ in leaves(values, commented())} - commented().keys() == set()


def test_every_value_is_something_else_in_some_file_of_values():
    """So that all branches of the templates are rendered and checked."""
    defaults, *others = [
        dict(leaves(yaml.safe_load(path.read_text()), commented())) for path in VALUES.values()
    ]
    same = [
        name for name in defaults if all(each.get(name, defaults[name]) == defaults[name] for each in others)
    ]
    assert same == []
