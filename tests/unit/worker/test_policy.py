"""What a worker refuses at the claim, whoever let the task pass before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.envelope import SandboxRequest, VerifySpec
from zubble_queue.errors import JobError
from zubble_queue.settings import LeaseSettings
from zubble_sandbox.local import LocalProvider
from zubble_worker.policy import check_network, provider_for
from zubble_worker.tools import Tools


def tools(tmp_path, **strengths):
    return Tools(
        worker_id="w",
        store=None,
        artifacts=ArtifactStore(str(tmp_path)),
        models={},
        providers=dict.fromkeys(strengths, LocalProvider()),
        strengths={name: strength for name, strength in strengths.items() if strength},
        lease=LeaseSettings(),
    )


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"backend": "docker"}, r"sandbox 'docker' is not allowed on this worker \(allowed: bare, cell\)"),
        ({"backend": "cell", "min_strength": "kernel"}, r"min_strength 'kernel' .* 'cell' .* \('limits'\)"),
        ({"backend": "bare", "min_strength": "namespaces"}, r"min_strength 'namespaces' .* \('none'\)"),
        ({"backend": "cell", "network": "open"}, r"sandbox\.network 'open' is not .* \(allowed: none\)"),
        ({"backend": "cell", "network": "allowlist"}, r"sandbox\.network 'allowlist' is not allowed"),
    ],
)
def test_what_goes_beyond_what_the_worker_allows_or_offers_is_refused(tmp_path, asked, sentence):
    with pytest.raises(JobError, match=sentence):
        provider_for(SandboxRequest(**asked), tools(tmp_path, cell="limits", bare=None))


@pytest.mark.parametrize("least", ["none", "namespaces", "limits"])
def test_a_sandbox_that_is_strong_enough_is_opened(tmp_path, least):
    here = tools(tmp_path, cell="limits")

    assert provider_for(SandboxRequest(backend="cell", min_strength=least), here) is here.providers["cell"]


def test_each_phase_gets_the_network_that_the_worker_grants_and_no_other(tmp_path):
    here = replace(tools(tmp_path, cell="limits"), networks=("allowlist",))

    provider_for(SandboxRequest(backend="cell", network="allowlist"), here)
    check_network("verify", VerifySpec(), here)
    check_network("verify", VerifySpec(network="allowlist", allowed_hosts=("a.example",)), here)
    with pytest.raises(JobError, match=r"verify\.network 'open' is not .* \(allowed: allowlist, none\)"):
        check_network("verify", VerifySpec(network="open"), here)
