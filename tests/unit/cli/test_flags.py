"""Flags that cannot be used: one sentence each, exit code 2, and nothing is touched."""

from __future__ import annotations

import json

import pytest

from zubble_queue.cli import main

TASK = {"id": "a", "description": "Do it.", "verify": {"command": "true"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of a user with one model and one task file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zubble.toml").write_text(
        '[models.mock]\nbase_url = "http://127.0.0.1:1/v1"\nprice = {input = 3, output = 15}\n'
    )
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK))
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--max-iterations", "500"], "--max-iterations: should be less than or equal to 100, got 500."),
        (["--max-tokens", "-5"], "--max-tokens: should be greater than or equal to 1, got -5."),
        (["--max-spend-usd", "-1"], "--max-spend-usd: should be greater than 0, got -1.0."),
        (["--max-spend-usd", "51"], "--max-spend-usd: should be less than or equal to 50, got 51.0."),
        (["--max-spend-usd", "nan"], "--max-spend-usd: should be a finite number"),
        (["--minutes", "61"], "--max-wallclock-seconds: should be less than or equal to 3600, got 3660."),
        (["--minutes", "1", "--max-wallclock-seconds", "9"], "--minutes and --max-wallclock-seconds exclude"),
        (["--level", "huge"], "--level must be one of off, low, medium, xhigh, not 'huge'."),
        (["--temperature", "3"], "--temperature must be between 0 and 2, got 3."),
        (["--memory", "yes"], "--memory must be one of off, read, write, both, not 'yes'."),
        (["--batch", "no spaces"], "--batch must be 1 to 100 letters"),
        (["--sandbox", "cage"], "Unknown sandbox 'cage'; known: "),
        (["--env", "cage"], "Unknown sandbox 'cage'; known: "),
        (["--backend=cage"], "Unknown sandbox 'cage'; known: "),
        (
            ["--min-strength", "steel"],
            "--min-strength must be one of none, namespaces, limits, kernel, not 's",
        ),
        (["--network", "lan"], "--network must be one of none, allowlist, open, not 'lan'."),
        (
            ["--network", "open", "--allow-host", "a.example"],
            "--allow-host needs --network allowlist, not open.",
        ),
        (
            ["--allow-host", "a.example:443"],
            "--allow-host 'a.example:443' must be a name, without a port and",
        ),
        (["--format", "xml"], "Unknown format 'xml'; known: envelopes, harbor, humaneval."),
        (["--label", "x"], "--label must be NAME=VALUE, not 'x'."),
        (["--price", "free"], "--price and --api-key-env describe an --endpoint"),
        (["--endpoint", "http://llm.example/v1"], "--endpoint needs --price"),
        (["--endpoint", "http://127.0.0.1:1/v1", "--price", "cheap"], "--price must be free or IN/OUT"),
        (["--endpoint", "ftp://x", "--price", "free"], "--endpoint: base_url must be an http or https URL"),
        (
            ["--endpoint", "http://127.0.0.1:1/v1", "--price", "free"],
            "--endpoint defines a model for workers",
        ),
        (["--max-batch-usd", "0"], "--max-batch-usd must be above 0 and at most 1,000,000, got 0."),
        (["--tenant", "a/b"], "--tenant must be 1 to 100 letters"),
        (["--on-ceiling", "explode"], "--on-ceiling must be one of pause, seal, not 'explode'."),
        (["--retries", "11"], "Invalid value for '--retries'"),
        (["--weight", "-1"], "--weight: should be greater than or equal to 0.01, got -1.0."),
        (["--weight", "nan"], "--weight: should be a finite number"),
        (["--priority", "11"], "--priority: should be less than or equal to 10, got 11."),
        (["--concurrency", "-1"], "--concurrency: should be greater than or equal to 0, got -1."),
        (["--pool", "GPU"], "--pool must be 1 to 64 lower-case letters"),
        (["--repeats", "0"], "Invalid value for '--repeats'"),
        (["--colour"], "No such option: --colour"),
    ],
)
def test_a_wrong_flag_is_one_sentence(folder, clean_environment, capsys, flags, problem):
    code = main(["batch", "submit", "tasks.jsonl", "--model", "mock", *flags])

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith(problem), said.err
    assert said.err.count("\n") == 1
    assert not (clean_environment / ".local" / "share" / "zubble-queue").exists()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["run", "--model", "mock"], "Give either a task file, or --task."),
        (["run", "tasks.jsonl", "--task", "x", "--model", "mock"], "Give either a task file, or --task."),
        (["run", "--task", "none.md", "--model", "mock"], "--task: none.md cannot be read: No such file"),
        (
            ["run", "--task", "x", "--model", "mock", "--stop-sequences", "x" * 101],
            "--stop-sequences must have 1 to 100 characters each.",
        ),
        (["run", "--task", "x", "--model", "mock", "--stop-sequences"], "Option '--stop-sequences' requires"),
        (["run", "tasks.jsonl", "--id", "b", "--model", "mock"], "Unknown task 'b'; known: a."),
        (
            ["run", "--task", "x", "--verify", "true", "--input", "none", "--model", "mock"],
            "none cannot be read",
        ),
        (["run", "tasks.jsonl", "--model", "other"], "Unknown model 'other'; known: mock."),
        (["batch", "export", "b", "--json"], "--json needs -o FILE"),
        (["batch", "export", "b", "--format", "xml"], "Unknown export format 'xml'"),
        (["doctor", "--role", "cook"], "Unknown role 'cook'; known: dispatcher, submit, worker."),
        (["detect", "none.txt"], "none.txt cannot be read"),
        (["mock-endpoint", "--script", "none.json"], "none.json: No such file or directory."),
        (
            ["run", "tasks.jsonl", "--model", "mock", "--allow-host", "a.example"],
            "Network 'allowlist' is not allowed on this machine: add it to worker.networks in zubble.toml or",
        ),
        (
            ["sandbox", "exec", "--network", "open", "--", "true"],
            "Network 'open' is not allowed on this machine: add it to worker.networks in zubble.toml or",
        ),
        (
            ["sandbox", "exec", "--allow-host", "::1", "--", "true"],
            "--allow-host '::1' must be a name, without",
        ),
        (["sandbox", "exec", "--sandbox", "local", "--", "true"], "Sandbox 'local' is not allowed on this"),
        (["batch"], None),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_a_wrong_command_is_one_sentence(folder, capsys, command, problem):
    code = main(command)

    said = capsys.readouterr()
    assert code == 2
    if problem is not None:
        assert said.err.startswith(problem), said.err
        assert said.err.count("\n") == 1


def test_options_behind_two_dashes_belong_to_the_command_in_the_sandbox(folder, capsys):
    code = main(["sandbox", "exec", "--env", "cage", "--", "env", "--json", "--env"])

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith("Unknown sandbox 'cage'; known: ")


@pytest.mark.parametrize("command", [["batch", "ls"], ["up"], ["worker"], ["config", "show"], ["doctor"]])
def test_a_wrong_zubble_toml_is_named_by_every_command_that_reads_it(folder, capsys, command):
    file = folder / "zubble.toml"
    file.write_text("[worker]\nslots = -1\n")

    code = main(command)

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err == f"{file}: worker.slots: input should be greater than or equal to 1.\n"
