"""Every example of Harbor is read, or refused with a sentence that names the field."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from zubble_queue.contracts.submission import TaskDefaults
from zubble_queue.errors import BadInput
from zubble_queue.formats import harbor

SAMPLES = Path(__file__).parents[4] / "shared" / "data" / "tasks" / "harbor"
COUNT = 43
STEPS, SEPARATE = "steps", "verifier.environment"
MATRIX = "examples__tasks__network-policy-matrix"
MODES = "examples__tasks__verifier-mode-matrix"
REFUSED = {
    "examples__jobs__skills-merge__runtime-skill-merge": {"environment.skills_dir", "artifacts"},
    "examples__tasks__hello-cuda": {"environment.gpus", "environment.gpu_types"},
    "examples__tasks__hello-healthcheck": {"environment.healthcheck"},
    "examples__tasks__hello-multi-step-advanced": {STEPS},
    "examples__tasks__hello-multi-step-bat": {STEPS, "environment.os"},
    "examples__tasks__hello-skills": {"environment.skills_dir"},
    "examples__tasks__hello-user": {"agent.user"},
    "examples__tasks__hello-world-bat": {"environment.os"},
    "examples__tasks__llm-judge-example": {"verifier.env.ANTHROPIC_API_KEY"},
    "examples__tasks__reward-kit-example": {"verifier.env.ANTHROPIC_API_KEY"},
    "examples__tasks__separate-verifier-multi-step": {STEPS, "artifacts"},
    "examples__tasks__sidecar-artifacts": {"verifier.environment_mode", "verifier.collect", "artifacts"},
    f"{MATRIX}__dynamic__e-ve-sa-sv-diff": {STEPS, SEPARATE},
    f"{MATRIX}__dynamic__sa-sv-diff": {STEPS},
    f"{MATRIX}__dynamic__sv-sve-diff": {STEPS},
    f"{MATRIX}__dynamic__v-ve-diff": {SEPARATE},
    f"{MATRIX}__static__e-allowlist-ipv4-cidr": {"environment.allowed_hosts"},
    f"{MATRIX}__static__e-sa-same": {STEPS},
    f"{MATRIX}__static__e-ve": {SEPARATE},
    f"{MATRIX}__static__verifier-separate-mode": {SEPARATE},
    f"{MODES}__multistep-all-shared": {STEPS},
    f"{MODES}__multistep-top-separate-mixed": {STEPS, "verifier.environment_mode"},
    f"{MODES}__separate-explicit": {SEPARATE, "artifacts"},
    f"{MODES}__separate-implicit": {SEPARATE, "artifacts"},
}
"""Sample to the fields it is refused for; all others are read."""


@pytest.fixture
def samples() -> list[Path]:
    if not SAMPLES.is_dir():
        pytest.skip("../shared is not beside this checkout: Harbor's examples are read from there.")
    return sorted(folder for folder in SAMPLES.iterdir() if folder.is_dir())


def completed(sample: Path, folder: Path) -> Path:
    """With the test script, which the samples come without."""
    copy = folder / sample.name
    shutil.copytree(sample, copy)
    (copy / "tests").mkdir()
    (copy / "tests/test.sh").write_text("#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n")
    return copy


def fields(bad: BadInput) -> set[str]:
    """Those that the sentences name."""
    return {problem.split(": ")[1] for problem in bad.problems if problem.endswith(".")}


def test_every_example_is_read_or_refused_by_the_name_of_its_fields(samples, tmp_path):
    refused, read = {}, set()
    for sample in samples:
        try:
            [parcel] = harbor.read(completed(sample, tmp_path), TaskDefaults(batch="b", model="m"))
            read.add(parcel.envelope.source_id)
        except BadInput as bad:
            refused[sample.name] = fields(bad)

    assert refused == REFUSED
    assert len(read) == COUNT - len(REFUSED)


def test_what_the_examples_say_about_limits_and_networks_is_what_their_tasks_get(samples, tmp_path):
    named = {sample.name: sample for sample in samples}

    def task(name: str):
        [parcel] = harbor.read(completed(named[name], tmp_path), TaskDefaults(batch="b", model="m"))
        return parcel.envelope

    click = task("examples__tasks__computer-1-click-calibration")
    env = task("examples__tasks__environment-env-multi")
    listed = task(f"{MATRIX}__dynamic__shared-allowlist")
    assert (click.budget.max_wallclock_seconds, click.verify.timeout_seconds) == (600, 300)
    assert (click.sandbox.cpus, click.sandbox.memory_mb, click.sandbox.network) == (2.0, 4_096, "none")
    assert dict(env.sandbox.env) == {"HARBOR_STARTUP_ENV_TEST": "multi-container-injected"}
    assert listed.sandbox.allowed_hosts == ("*.amazonaws.com", "example.com")
    assert listed.verify.allowed_hosts == ("*.iana.org",)


def test_an_example_as_it_is_lacks_its_tests_and_is_refused_for_that(samples):
    whole = next(sample for sample in samples if sample.name == "examples__tasks__hello-world")

    with pytest.raises(BadInput, match="tests: is missing"):
        harbor.read(whole, TaskDefaults(batch="b", model="m"))
