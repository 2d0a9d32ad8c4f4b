"""`zubble config …`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Exit, Report

app = typer.Typer(help="What is configured here, and where it was said.", no_args_is_help=True)


@app.callback()
def config() -> None:
    """What is configured here, and where it was said."""


@app.command("show")
def show(context: typer.Context, as_json: options.Json = False) -> int:
    """Print every setting with its value and where it came from. Passwords are shown as ***.

    \b
    Examples:
      zubble config show
      ZUBBLE_WORKER__SLOTS=8 zubble config show --json
    """
    report = Report("config-show", as_json=as_json)
    settings = options.settings(context)
    values = settings.shown()
    rows = [(name, value, settings.origins.get(name, "default")) for name, value in sorted(values.items())]
    report.say(f"File: {settings.file or 'none found'}")
    report.table(("SETTING", "VALUE", "FROM"), rows)
    report.result(
        {
            "file": settings.file and str(settings.file),
            "settings": {name: {"value": value, "origin": origin} for name, value, origin in rows},
        }
    )
    return Exit.DONE
