"""Where a setting's value comes from, and what is said about one that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zubble_queue import sandboxes
from zubble_queue.contracts.model_config import PriceTable
from zubble_queue.errors import BadInput
from zubble_queue.settings import LeaseSettings, Settings, without_password


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of a user."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(**flags):
    with pytest.raises(BadInput) as caught:
        Settings.load(flags)
    return caught.value.problems


def test_without_any_source_everything_has_its_default(folder, clean_environment, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    settings = Settings.load()

    home = clean_environment / ".local" / "share" / "zubble-queue"
    assert settings.home == home
    assert settings.artifacts_url == str(home / "artifacts")
    assert settings.images_folder == home / "images"
    assert settings.redis_url is None
    assert settings.worker.sandboxes == ("bubblewrap",)
    assert settings.origins == {}


def test_root_has_its_images_where_other_users_can_pass(folder, clean_environment, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert Settings.load().images_folder == Path("/var/lib/zubble-queue/images")
    assert Settings.load({"home": "/srv/zubble"}).images_folder == Path("/srv/zubble/images")


def test_flags_stand_over_environment_over_file_over_default(folder, monkeypatch):
    Path("zubble.toml").write_text("max_attempts = 4\n[worker]\nslots = 5\ndrain_seconds = 6\n")
    monkeypatch.setenv("ZUBBLE_WORKER__SLOTS", "7")
    monkeypatch.setenv("ZUBBLE_WORKER__DRAIN_SECONDS", "8")

    settings = Settings.load({"worker": {"slots": 9, "feeder": None}})

    assert (settings.worker.slots, settings.worker.drain_seconds, settings.max_attempts) == (9, 8.0, 4)
    assert settings.worker.feeder
    assert settings.origins == {
        "worker.slots": "flag worker.slots",
        "worker.drain_seconds": "ZUBBLE_WORKER__DRAIN_SECONDS",
        "max_attempts": str(folder / "zubble.toml"),
    }


def test_the_named_file_wins_over_the_one_here_and_that_over_the_users(
    folder, monkeypatch, clean_environment
):
    users = clean_environment / ".config" / "zubble-queue"
    users.mkdir(parents=True)
    (users / "zubble.toml").write_text("namespace = 'users'")
    assert Settings.load().namespace == "users"
    Path("zubble.toml").write_text("namespace = 'here'")
    assert Settings.load().namespace == "here"
    Path("named.toml").write_text("namespace = 'named'")
    monkeypatch.setenv("ZUBBLE_CONFIG", "named.toml")
    settings = Settings.load()
    assert (settings.namespace, settings.file) == ("named", folder / "named.toml")


def test_a_named_file_that_is_not_there_is_an_error(folder, monkeypatch):
    monkeypatch.setenv("ZUBBLE_CONFIG", "none.toml")

    assert problems() == (f"ZUBBLE_CONFIG names {folder}/none.toml, which is not a file.",)


def test_every_problem_is_one_sentence_with_file_and_field(folder, monkeypatch):
    Path("zubble.toml").write_text(
        "namespace = 'Not Good'\ncolour = 1\n[worker]\nslots = 0\nbar = 1\n[lease]\nlease_seconds = 'x'\n"
        "[models.a]\nbase_url = 'ftp://x'\n[models.b]\nbase_url = 'http://x/v1'\nprice = 'cheap'\n"
    )
    monkeypatch.setenv("ZUBBLE_MAX_ATTEMPTS", "many")
    file = folder / "zubble.toml"

    found = problems()

    assert f"{file}: worker.slots: input should be greater than or equal to 1." in found
    assert f"{file}: worker.bar: there is no such setting." in found
    assert f"{file}: colour: there is no such setting." in found
    assert (
        f"{file}: models.a.base_url: base_url must be an http or https URL, as in http://127.0.0.1:8000/v1."
        in found
    )
    assert (
        f"{file}: models.b.price: must be 'free', 'genai-prices' or {{input = USD, output = USD}} "
        "per million tokens."
    ) in found
    assert any(problem.startswith("ZUBBLE_MAX_ATTEMPTS: max_attempts: ") for problem in found)
    assert any(problem.startswith(f"{file}: namespace: ") for problem in found)
    assert any(problem.startswith(f"{file}: lease.lease_seconds: ") for problem in found)
    assert len(found) == 8


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a = ", "is not valid TOML: "),
        (b"\xff", "is not valid TOML: "),
        (b"[worker\n", "is not valid TOML: "),
    ],
)
def test_a_broken_file_is_one_sentence(folder, content, problem):
    Path("zubble.toml").write_bytes(content)

    (found,) = problems()

    assert found.startswith(f"{folder}/zubble.toml {problem}")


def test_a_table_of_a_sandbox_reaches_its_provider(folder, monkeypatch):
    Path("zubble.toml").write_text("[sandboxes.bubblewrap]\nuid_base = 70000\nbwrap_file = 'bin/bwrap'\n")
    monkeypatch.setenv("ZUBBLE_SANDBOXES__BUBBLEWRAP__UID_COUNT", "7")

    settings = Settings.load()
    shown = settings.shown()

    assert shown["sandboxes.bubblewrap.bwrap_file"] == str(folder / "bin" / "bwrap")
    assert settings.origins["sandboxes.bubblewrap.uid_count"] == "ZUBBLE_SANDBOXES__BUBBLEWRAP__UID_COUNT"
    assert sandboxes.provider(settings, "bubblewrap")._uid_range == (70_000, 7)


def test_what_a_sandbox_does_not_know_is_one_sentence_each(folder, monkeypatch):
    Path("zubble.toml").write_text(
        "[sandboxes.bubblewrap]\nuid_count = 0\ncolour = 1\n[sandboxes.local]\ncolour = 1\n"
    )
    monkeypatch.setenv("ZUBBLE_SANDBOXES__LOCAL__SIZE", "7")
    settings = Settings.load()

    with pytest.raises(BadInput) as refused:
        sandboxes.provider(settings, "bubblewrap")
    assert refused.value.problems == (
        f"{folder}/zubble.toml: sandboxes.bubblewrap.uid_count: input should be greater than or equal to 1.",
        f"{folder}/zubble.toml: sandboxes.bubblewrap.colour: there is no such setting.",
    )
    with pytest.raises(
        BadInput, match=r"ZUBBLE_SANDBOXES__LOCAL__SIZE: sandboxes\.local\.size: there is no "
    ):
        sandboxes.provider(settings, "local")


def test_a_key_of_a_sandbox_is_refused_and_a_password_in_its_url_is_shown_as_stars(folder):
    Path("zubble.toml").write_text("[sandboxes.docker]\nurl = 'tcp://me:hidden@host:1'\n")
    assert Settings.load().shown()["sandboxes.docker.url"] == "tcp://me:***@host:1"

    Path("zubble.toml").write_text("[sandboxes.docker.registry]\nPassword = 'hidden'\n")
    (problem,) = problems()
    assert problem.startswith(f"{folder}/zubble.toml: sandboxes.docker.registry.Password: a key must not ")
    assert "hidden" not in problem


def test_a_key_in_the_file_is_refused_and_not_repeated(folder):
    Path("zubble.toml").write_text("[models.a]\nbase_url = 'http://x/v1'\napi_key = 'sk-secret'\n")

    (problem,) = problems()

    assert problem.startswith(f"{folder}/zubble.toml: models.a: api_key: ")
    assert "sk-secret" not in problem


def test_lists_from_the_environment_are_json_or_comma_separated(folder, monkeypatch):
    monkeypatch.setenv("ZUBBLE_WORKER__SANDBOXES", "bubblewrap, local")
    monkeypatch.setenv("ZUBBLE_WORKER__POOLS", '["a", "b"]')

    worker = Settings.load().worker

    assert (worker.sandboxes, worker.pools) == (("bubblewrap", "local"), ("a", "b"))


def test_an_empty_variable_is_not_given(folder, monkeypatch):
    monkeypatch.setenv("ZUBBLE_REDIS_URL", "")

    assert Settings.load().redis_url is None


def test_models_come_from_file_and_environment_and_know_their_name(folder, monkeypatch):
    Path("zubble.toml").write_text(
        "[models.a]\nbase_url = 'http://a/v1'\nprice = {input = 1, output = 2}\n"
        "[models.b]\nbase_url = 'http://b/v1'\nmodel = 'other'\nprice = 'free'\n"
    )
    monkeypatch.setenv("ZUBBLE_MODELS", '{"c": {"base_url": "http://c/v1", "price": "free"}}')

    models = Settings.load().models

    assert {name: config.model for name, config in models.items()} == {"a": "a", "b": "other", "c": "c"}
    assert models["a"].price == PriceTable(input=1, output=2)


def test_paths_of_a_file_are_below_its_folder_and_of_a_flag_below_the_current_one(tmp_path, monkeypatch):
    for name in ("config", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "config" / "my.toml").write_text(
        "artifacts_url = 'blobs'\n[models.a]\nbackend = 'scripted'\nscript = 's.json'\nprice = 'free'\n"
    )
    monkeypatch.setenv("ZUBBLE_CONFIG", str(tmp_path / "config" / "my.toml"))

    settings = Settings.load({"home": "data"})

    assert settings.home == tmp_path / "here" / "data"
    assert settings.artifacts_url == str(tmp_path / "config" / "blobs")
    assert settings.models["a"].script == str(tmp_path / "config" / "s.json")


def test_an_artifact_url_with_a_scheme_is_left_as_it_is(folder, monkeypatch):
    monkeypatch.setenv("ZUBBLE_ARTIFACTS_URL", "s3://bucket/zubble")

    assert Settings.load().artifacts_url == "s3://bucket/zubble"


@pytest.mark.parametrize("url", ["http://x", "localhost:6379", "nonsense"])
def test_what_is_no_redis_url_is_refused_without_repeating_it(folder, url):
    (problem,) = problems(redis_url=url)

    assert problem.startswith("flag redis_url: redis_url: must be a URL such as redis://127.0.0.1:6379/0")
    assert url not in problem.split("such as")[0]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pw@h:1/0", "redis://:***@h:1/0"),
        ("rediss://me:p%40w@h/0", "rediss://me:***@h/0"),
        ("redis://h/0", "redis://h/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
    ],
)
def test_a_password_is_shown_as_stars(folder, url, shown):
    assert without_password(url) == shown
    settings = Settings.load({"redis_url": url})
    assert settings.shown()["redis_url"] == shown
    assert "pw" not in repr(settings)


def test_settings_cannot_be_changed(folder):
    settings = Settings.load()

    with pytest.raises(ValueError, match="frozen"):
        settings.namespace = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.models["a"] = None  # type: ignore[index]


@pytest.mark.parametrize("seconds", [2.0, 60.0, 3_600.0])
def test_an_attempt_stops_itself_before_anyone_may_reap_it(seconds):
    lease = LeaseSettings(lease_seconds=seconds)

    assert lease.renew_seconds < lease.self_stop_seconds < lease.lease_seconds


def test_importing_the_settings_reads_nothing(tmp_path):
    code = (
        "import sys, os\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(args[0]) if event == 'open' else None)\n"
        "import zubble_queue.settings\n"
        "print([name for name in opened if isinstance(name, str) and name.endswith('.toml')])\n"
    )
    (tmp_path / "zubble.toml").write_text("namespace = 'x'")

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert result.stdout == "[]\n"


def test_a_worker_grants_no_network_unless_its_settings_say_so(monkeypatch):
    assert (Settings.load().worker.networks, Settings.load().worker.network_ports) == (("none",), (80, 443))

    monkeypatch.setenv("ZUBBLE_WORKER__NETWORKS", "allowlist,open")
    monkeypatch.setenv("ZUBBLE_WORKER__NETWORK_PORTS", "443,8443")
    worker = Settings.load().worker
    assert (worker.networks, worker.network_ports) == (("allowlist", "open"), (443, 8443))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("NETWORKS", "lan", "worker.networks.0: input should be 'none', 'allowlist' or 'open'."),
        ("NETWORK_PORTS", "443,0", "worker.network_ports.1: input should be greater than or equal to 1."),
    ],
)
def test_a_network_that_there_is_not_is_one_sentence(monkeypatch, name, value, problem):
    monkeypatch.setenv(f"ZUBBLE_WORKER__{name}", value)
    assert problems() == (f"ZUBBLE_WORKER__{name}: {problem}",)
