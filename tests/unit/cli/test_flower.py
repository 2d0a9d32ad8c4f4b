"""What is wrong with `zubble flower` is said before anything is asked of Redis or served."""

from __future__ import annotations

import importlib
import os
import sys

import pytest

from zubble_queue.cli import main

pytest.importorskip("flower")


@pytest.fixture(autouse=True)
def own_options(monkeypatch, tmp_path):
    """Flower's options are one object for a process, and its defaults go through the environment."""
    from tornado.options import options

    for name in [name for name in os.environ if name.startswith("FLOWER_")]:
        monkeypatch.delenv(name)
    before = options.as_dict()
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.chdir(tmp_path)
    yield
    for name, value in before.items():
        if name != "help":
            setattr(options, name, value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--address", "0.0.0.0"], "Anybody who reaches 0.0.0.0 would see every task: name who may look"),
        (["--address", "::"], "Anybody who reaches :: would see"),
        (["--address", "queue.example"], "Anybody who reaches queue.example would see"),
        (["--address", "0.0.0.0", "--", "--basic_auht=a:b"], "Flower has no option '--basic_auht'"),
        (["--", "basic_auth=a:b"], "Flower has no option 'basic_auth'"),
        (["--", "--max_workers=many"], "Flower cannot read an option"),
        (["--", "--auth=.*"], "Flower refuses what it was told"),
        (["--users", "none"], "none cannot be read: No such file or directory."),
        (["--port", "70000"], "Invalid value for '--port'"),
    ],
)
def test_what_is_wrong_is_one_sentence(words, said, capsys):
    assert main(["--redis-url", "redis://127.0.0.1:1/0", "flower", *words]) == 2

    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "users names nobody"),
        ("# nobody\n\n", "users names nobody"),
        (
            "a:b\nme\n:secret-1\n",
            "users line 2: must be name:password.\nusers line 3: must be name:password.",
        ),
    ],
)
def test_a_file_of_users_is_looked_through_and_no_password_is_said(tmp_path, text, said, capsys):
    (tmp_path / "users").write_text(text)

    assert main(["flower", "--users", "users"]) == 2

    err = capsys.readouterr().err
    assert said in err
    assert "secret-1" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["--address", "127.0.0.2"],
        ["--address", "0.0.0.0", "--open"],
        ["--address", "0.0.0.0", "--", "--basic_auth=a:b"],
        ["--address", "0.0.0.0", "--users", "users"],
    ],
)
def test_a_guarded_flower_asks_for_redis_next(tmp_path, words, capsys):
    (tmp_path / "users").write_text("a:b\n")

    assert main(["--redis-url", "redis://127.0.0.1:1/0", "flower", *words]) == 2

    assert "Redis at redis://127.0.0.1:1/0 does not answer" in capsys.readouterr().err


def test_a_variable_of_flowers_guards_it_too(monkeypatch, capsys):
    monkeypatch.setenv("FLOWER_BASIC_AUTH", "a:b")

    main(["--redis-url", "redis://127.0.0.1:1/0", "flower", "--address", "0.0.0.0"])

    assert "does not answer" in capsys.readouterr().err


def test_a_program_in_the_current_folder_is_not_run(tmp_path, capsys):
    (tmp_path / "flowerconfig.py").write_text("raise SystemExit('it ran')\n")

    main(["--redis-url", "redis://127.0.0.1:1/0", "flower"])

    assert "does not answer" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "flower"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "zubble_worker.flower", raising=False)
    monkeypatch.setitem(sys.modules, "flower", None)
    importlib.invalidate_caches()

    assert main(["flower"]) == 2

    assert "pip install 'zubble-queue[flower]'" in capsys.readouterr().err
