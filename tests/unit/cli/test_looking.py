"""Commands that only look: at the settings, at this machine, at a text."""

from __future__ import annotations

import json

import pytest

from zubble_queue.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys, *command):
    code = main([*command, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_every_setting_is_shown_with_its_origin_and_no_password(folder, monkeypatch, capsys):
    (folder / "zubble.toml").write_text('namespace = "mine"\n[models.a]\nbase_url = "http://x/v1"\n')
    monkeypatch.setenv("ZUBBLE_WORKER__SLOTS", "3")

    code, said = shown(capsys, "--redis-url", "redis://me:secret@h/0", "config", "show")

    assert (code, said["schema"], said["file"]) == (0, "zubble.config-show/1", str(folder / "zubble.toml"))
    settings = said["settings"]
    assert settings["namespace"] == {"value": "mine", "origin": str(folder / "zubble.toml")}
    assert settings["worker.slots"] == {"value": 3, "origin": "ZUBBLE_WORKER__SLOTS"}
    assert settings["redis_url"] == {"value": "redis://me:***@h/0", "origin": "flag redis_url"}
    assert settings["lease.lease_seconds"] == {"value": 60.0, "origin": "default"}
    assert settings["models.a.base_url"]["origin"] == str(folder / "zubble.toml")
    assert "secret" not in json.dumps(said)


def test_settings_are_shown_to_people_too(folder, capsys):
    assert main(["config", "show"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "File: none found"
    assert [line.split() for line in lines if line.startswith("namespace")] == [
        ["namespace", "zubble", "default"]
    ]


def findings(said):
    return {finding["check"]: finding for finding in said["findings"]}


def test_a_machine_that_submits_needs_little(folder, capsys, clean_environment):
    code, said = shown(capsys, "doctor", "--role", "submit")

    assert (code, said["exit_code"], said["role"]) == (0, 0, "submit")
    assert {finding["check"] for finding in said["findings"]} == {"python", "redis", "disk"}
    assert not (clean_environment / ".local" / "share" / "zubble-queue").exists()


def test_a_redis_that_does_not_answer_is_infrastructure(folder, monkeypatch, capsys):
    monkeypatch.setenv("ZUBBLE_REDIS_URL", "redis://:secret@127.0.0.1:1/0")

    code, said = shown(capsys, "doctor", "--role", "submit")

    assert code == said["exit_code"] == 3
    assert findings(said)["redis"]["verdict"] == "unreachable"
    assert "does not answer" in findings(said)["redis"]["todo"]
    assert "secret" not in json.dumps(said)


def test_a_worker_machine_is_told_about_models_keys_prices_and_endpoints(folder, monkeypatch, capsys):
    (folder / "zubble.toml").write_text(
        '[models.keyless]\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "NO_SUCH_KEY"\nprice = "free"\n'
        '[models.priceless]\nbase_url = "http://127.0.0.1:1/v1"\n'
        '[models.silent]\nbase_url = "http://127.0.0.1:1/v1"\nprice = "free"\n'
    )

    code, said = shown(capsys, "doctor")

    found = findings(said)
    assert code == 2
    assert found["model keyless"]["todo"] == "set the environment variable NO_SUCH_KEY."
    assert "The price of model 'priceless' is unknown" in found["model priceless"]["todo"]
    assert "does not answer: Connection refused" in found["model silent"]["todo"]
    verdicts = {name: found[f"model {name}"]["verdict"] for name in ("keyless", "priceless", "silent")}
    assert verdicts == {"keyless": "warning", "priceless": "failed", "silent": "failed"}


def test_a_worker_machine_is_told_which_program_it_lacks(folder, capsys):
    (folder / "zubble.toml").write_text(
        '[models.absent]\nbackend = "cli"\nprice = "free"\ncli = {command = ["no-such-program"]}\n'
        '[models.there]\nbackend = "cli"\nprice = "free"\ncli = {command = ["sh"]}\n'
    )

    _, said = shown(capsys, "doctor")

    found = findings(said)
    assert found["model absent"]["detail"] == "cli at no-such-program"
    assert found["model absent"]["todo"] == "the program no-such-program is not on this machine's PATH."
    assert found["model there"]["verdict"] == "ok"


def test_a_worker_machine_without_any_key_is_told_that_no_worker_starts(folder, capsys):
    (folder / "zubble.toml").write_text(
        '[models.keyless]\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "NO_SUCH_KEY"\nprice = "free"\n'
    )

    code, said = shown(capsys, "doctor")

    assert (code, findings(said)["model keyless"]["verdict"]) == (2, "failed")


def test_a_worker_machine_is_told_how_strong_its_sandboxes_are(folder, monkeypatch, capsys):
    monkeypatch.setenv("ZUBBLE_WORKER__SANDBOXES", "local")

    _, said = shown(capsys, "doctor")

    found = findings(said)["sandbox local"]
    assert found["detail"].startswith("strength none, ")
    assert found["verdict"] == "warning"


def test_a_worker_machine_is_told_which_networks_its_sandboxes_are_granted(folder, monkeypatch, capsys):
    monkeypatch.setenv("ZUBBLE_WORKER__SANDBOXES", "local")
    monkeypatch.setenv("ZUBBLE_WORKER__NETWORKS", "allowlist,open")

    _, said = shown(capsys, "doctor")

    detail = findings(said)["sandbox local"]["detail"]
    assert "networks none open," in detail, "local cannot keep an allow-list"


def test_a_backend_that_is_not_used_is_shown_with_what_it_would_need(folder, monkeypatch, capsys):
    monkeypatch.setenv("ZUBBLE_WORKER__SANDBOXES", "local")
    monkeypatch.setenv("ZUBBLE_SANDBOXES__DOCKER__HOST", f"unix://{folder}/none.sock")
    monkeypatch.setenv("ZUBBLE_SANDBOXES__BUBBLEWRAP__BWRAP_FILE", f"{folder}/bwrap")

    _, said = shown(capsys, "doctor")

    found = findings(said)
    assert {found[f"sandbox {name}"]["verdict"] for name in ("bubblewrap", "docker", "attached", "pod")} == {
        "unused"
    }
    assert (
        "does not answer (No such file or directory): start it, or say where"
        in found["sandbox docker"]["todo"]
    )
    assert "Install the package bubblewrap (0.8 or newer)" in found["sandbox bubblewrap"]["todo"]
    assert found["sandbox pod"]["todo"].startswith("To use it, add it to worker.sandboxes")


def test_a_cluster_without_credentials_is_infrastructure(folder, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", str(folder / "none"))

    code, said = shown(capsys, "doctor", "--cluster", "--namespace", "zubble")

    assert (code, said["exit_code"], said["namespace"]) == (3, 3, "zubble")
    assert findings(said)["cluster"]["todo"].startswith("No cluster can be reached")


def test_options_of_a_cluster_go_with_a_cluster(folder, capsys):
    code, said = shown(capsys, "doctor", "--namespace", "zubble")

    assert (code, said["problems"]) == (
        2,
        ["--namespace, --kubeconfig and --context go together with --cluster."],
    )


def test_a_misspelled_variable_is_a_warning(folder, monkeypatch, capsys):
    monkeypatch.setenv("ZUBBLE_REDIS", "redis://x")

    code, said = shown(capsys, "doctor", "--role", "submit")

    assert code == 0
    assert findings(said)["environment"]["verdict"] == "warning"
    assert findings(said)["environment"]["detail"] == "ZUBBLE_REDIS is not a setting"


def test_the_detector_reads_a_file(folder, capsys):
    (folder / "loop.txt").write_text("truncated " * 7_303)

    code, said = shown(capsys, "detect", "loop.txt")

    assert (code, said["schema"], said["tokens"], said["profile"]) == (
        0,
        "zubble.detect/1",
        7_303,
        "graduated",
    )
    assert [fired["threshold"] for fired in said["fired"]] == [50, 500, 1_000, 1_500, 3_000]
    assert {fired["channel"] for fired in said["fired"]} == {"text"}


def test_the_version_is_printed(capsys):
    from zubble_queue import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
