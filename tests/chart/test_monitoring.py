"""Alerts, dashboard and scaling rules ask for metrics that are there, by labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml

from tests.chart.rendered import CHART, ROOT
from zubble_queue.contracts.demand import Demand
from zubble_queue.feeder import Tally
from zubble_worker.dispatching import ScalingRoute
from zubble_worker.metrics import WorkerMetrics
from zubble_worker.pool_metrics import FeederMetrics, PoolMetrics

ADDED = {"namespace", "le", "pod", "instance"}
"""Labels that Prometheus itself brings."""
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "info": ("_info",),
}
_METRIC = re.compile(r"\b(zubble_[a-z_]+)(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\) \((?:rate\(|increase\()?(zubble_[a-z_]+)")


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """Name of a series to its labels, from what worker and dispatcher register."""
    feeder = SimpleNamespace(tally=Tally())
    collectors = [
        *WorkerMetrics().registry._collector_to_names,
        PoolMetrics(lambda: (Demand((), {}, 0), ())),
        FeederMetrics(feeder),
    ]
    found: dict[str, set[str]] = {}
    for collector in collectors:
        for family in collector.describe() if hasattr(collector, "describe") else ():
            labels = set(getattr(family, "_labelnames", getattr(collector, "_labelnames", ())))
            for suffix in SUFFIXES[family.type]:
                found[family.name + suffix] = labels
    return found


def _expressions(manifests: list[dict[str, Any]]) -> Iterator[str]:
    for manifest in manifests:
        if manifest["kind"] == "PrometheusRule":
            yield from (rule["expr"] for group in manifest["spec"]["groups"] for rule in group["rules"])
    board = json.loads((CHART / "dashboards/zubble-queue.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    adapter = yaml.safe_load((ROOT / "helm/prometheus-adapter/values.yaml").read_text())
    yield from (rule["metricsQuery"] for rule in adapter["rules"]["external"])


def test_every_metric_that_is_asked_for_is_one_that_is_served(everything, metrics):
    asked = {name for text in _expressions(everything) for name, _ in _METRIC.findall(text)}
    assert asked - metrics.keys() == set()


def test_every_label_that_is_asked_for_is_one_that_the_metric_has(everything, metrics):
    for text in _expressions(everything):
        for name, matchers in _METRIC.findall(text):
            assert set(re.findall(r"(\w+) ?(?:=|!)", matchers)) <= metrics[name] | ADDED, text
        for labels, name in _BY.findall(text):
            assert set(labels.split(", ")) <= metrics[name] | ADDED, text


def test_the_alerts_are_those_that_the_readme_names(everything):
    rules = next(each for each in everything if each["kind"] == "PrometheusRule")
    [group] = rules["spec"]["groups"]
    readme = (CHART / "README.md").read_text("utf-8")
    assert {rule["alert"] for rule in group["rules"]} == set(re.findall(r"`(Zubble[A-Za-z]+)`", readme))
    assert all({"summary", "description"} <= set(rule["annotations"]) for rule in group["rules"])


def test_thresholds_of_alerts_are_those_of_the_values(newest):
    given = {"rules": True, "backlogAgeSeconds": 77, "spendUsdPerHour": 3.5, "sandboxFailureRatio": 0.25}
    manifests = newest.template("--set-json", f"monitoring={json.dumps(given)}")
    [rules] = [each for each in manifests if each["kind"] == "PrometheusRule"]
    expressions = {rule["alert"]: rule["expr"] for rule in rules["spec"]["groups"][0]["rules"]}
    assert expressions["ZubbleBacklogOld"].endswith("> 77")
    assert expressions["ZubbleSpendRate"].endswith("> 3.5")
    assert expressions["ZubbleSandboxFailures"].endswith("> 0.25")
    assert all('namespace="agents"' in text for text in expressions.values())


def test_the_dashboard_is_the_one_that_is_installed(newest):
    manifests = newest.template("--set", "monitoring.dashboard=true")
    [board] = [each for each in manifests if each["metadata"]["name"].endswith("-dashboard")]
    text = (CHART / "dashboards/zubble-queue.json").read_text()
    assert board["data"] == {"zubble-queue.json": text}
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10


def test_the_monitor_reads_every_port_that_serves_metrics(newest):
    manifests = newest.template("--set", "monitoring.podMonitor=true")
    [monitor] = [each for each in manifests if each["kind"] == "PodMonitor"]
    ports = {
        port["name"]
        for each in manifests
        if each["kind"] == "Deployment"
        for port in each["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} == ports
    selector = monitor["spec"]["selector"]["matchLabels"]
    for each in manifests:
        if each["kind"] == "Deployment":
            assert selector.items() <= each["spec"]["template"]["metadata"]["labels"].items()


def test_the_autoscaler_without_keda_asks_for_the_metric_that_the_adapter_serves(newest):
    manifests = newest.template("-f", str(ROOT / "helm/hpa.yaml"))
    [scaler] = [each for each in manifests if each["kind"] == "HorizontalPodAutoscaler"]
    adapter = yaml.safe_load((ROOT / "helm/prometheus-adapter/values.yaml").read_text())
    [rule] = adapter["rules"]["external"]
    [metric] = scaler["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    assert metric["external"]["metric"]["selector"]["matchLabels"] == {"pool": "default"}
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "8"}


def test_keda_asks_the_dispatcher_what_it_answers(newest):
    """The URL's path and query, put to the real route; the field, taken from its real answer."""
    manifests = newest.template("-f", str(ROOT / "helm/keda.yaml"))
    [scaler] = [each for each in manifests if each["kind"] == "ScaledObject"]
    [trigger] = scaler["spec"]["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    [service] = [
        each
        for each in manifests
        if each["kind"] == "Service" and url.hostname == f"{each['metadata']['name']}.agents.svc"
    ]
    assert [port["port"] for port in service["spec"]["ports"]] == [url.port]
    bridge = SimpleNamespace(ask=lambda _question: (Demand((), {}, 0), ()))
    answer = ScalingRoute(bridge, SimpleNamespace(state=None), 4)(dict(parse_qsl(url.query)))
    assert url.path == "/scaling"
    assert answer.status == 200
    assert answer.body[trigger["metadata"]["valueLocation"]] == 0.0
    assert answer.body["slots_per_worker"] == 8
    assert answer.body["pool"] == "default"
