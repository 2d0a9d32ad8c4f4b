"""A registry of metrics that tells, beside its own, what runs here and what it takes of the machine."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Info
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from zubble_queue import __version__


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """A registry with these, this process and its version."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    Info("zubble", "What runs here.", registry=registry).info({"version": __version__})
    ProcessCollector(registry=registry)
    return registry
