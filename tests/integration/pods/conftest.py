"""A cluster in one process, and providers as different workers have them."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.integration.pods.one_process import NAMESPACE, OneProcessCluster
from zubble_sandbox.pod import PodProvider
from zubble_sandbox.pods.options import PodOptions

IMAGE = "registry.test/tools@sha256:" + "ab" * 32


@pytest.fixture
async def cluster(tmp_path):
    if os.geteuid() or not shutil.which("nsenter") or not shutil.which("bwrap"):
        pytest.skip("a cluster in one process needs root, nsenter and bwrap")
    async with OneProcessCluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def make_provider(cluster):
    """Makes providers, each as another worker process would have one."""
    providers = []

    def make(**options):
        base = {"kubeconfig_file": str(cluster.kubeconfig()), "namespace": NAMESPACE, "image": IMAGE}
        provider = PodProvider(PodOptions(**{**base, **options}))
        providers.append(provider)
        return provider

    yield make
    for provider in providers:
        await provider.close()


@pytest.fixture
def provider(make_provider):
    return make_provider()
