"""`zubble sandbox …` and `zubble detect`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Exit, Report, plain

app = typer.Typer(help="Run commands where agents run theirs; keep root file systems.", no_args_is_help=True)


@app.callback()
def sandbox() -> None:
    """Run commands where agents run theirs; keep root file systems."""


@app.command("exec")
def execute(
    context: typer.Context,
    *,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    sandbox: options.Sandbox = None,
    container: options.Container = None,
    image: options.Image = None,
    network: options.Network = None,
    allow_host: options.AllowHost = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3_600, metavar="SECONDS", help="Then it is killed.")
    ] = 30.0,
    as_json: options.Json = False,
) -> int:
    """Run one command in a fresh sandbox. Exits with 0 when the command did, else with 1.

    \b
    Examples:
      zubble sandbox exec -- ls -la /
      zubble sandbox exec --timeout 5 --json -- sh -c 'cat /proc/self/status'
      zubble sandbox exec --image python:3.12-slim -- python3 -V
      zubble sandbox exec --sandbox attached --container dev-1 -- ls -la
      zubble sandbox exec --allow-host pypi.org -- curl -sI https://pypi.org
    """
    report = Report("sandbox-exec", as_json=as_json)
    from zubble_queue.cli import defaults, sandboxes

    asked = defaults.sandbox_request(sandbox, network, allow_host or (), image=image, container=container)
    return asyncio.run(sandboxes.execute(options.settings(context), asked, command, timeout, report))


@app.command("pull")
def pull(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A tar file or a folder.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What to call it; by default what it does.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Keep a root file system for sandboxes: from docker save, docker export, an OCI layout or a folder.

    \b
    Examples:
      docker save python:3.12-slim -o python.tar && zubble sandbox pull python.tar
      zubble sandbox pull rootfs.tar.xz --name debian:12
      zubble sandbox pull ./oci-layout --json
    """
    report = Report("sandbox-pull", as_json=as_json)
    from zubble_queue.cli import images

    return images.pull(options.settings(context), source, name, report)


@app.command("ls")
def ls(context: typer.Context, as_json: options.Json = False) -> int:
    """List the root file systems that were pulled.

    \b
    Example:
      zubble sandbox ls --json
    """
    report = Report("sandbox-ls", as_json=as_json)
    from zubble_queue.cli import images

    return images.ls(options.settings(context), report)


@app.command("rm")
def rm(
    context: typer.Context,
    image: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Names or digests.")],
    as_json: options.Json = False,
) -> int:
    """Remove root file systems; one that a sandbox runs in stays.

    \b
    Examples:
      zubble sandbox rm python:3.12-slim
      zubble sandbox rm sha256:0f1e2d3c4b5a
    """
    report = Report("sandbox-rm", as_json=as_json)
    from zubble_queue.cli import images

    return images.rm(options.settings(context), image, report)


def detect(
    file: Annotated[Path, typer.Argument(help="A text, as a model wrote it.")],
    profile: Annotated[str, typer.Option("--profile", metavar="graduated|strict")] = "graduated",
    as_json: options.Json = False,
) -> int:
    """Run the repetition detector over a file, as if a model streamed it.

    \b
    Example:
      zubble detect answer.txt --profile strict --json
    """
    report = Report("detect", as_json=as_json)
    from zubble_queue import registry

    found = registry.load("service", "detect")(file, profile)
    for fired in found["fired"]:
        period = "" if fired["period"] is None else f", period {fired['period']}"
        report.say(
            f"threshold {fired['threshold']} at token {fired['token']}{period}, "
            f"{plain(str(fired['channel']))}: {plain(str(fired['action']))}, by {plain(str(fired['by']))}"
        )
    report.say(f"{found['tokens']} tokens, {len(found['fired'])} thresholds reached ({found['profile']}).")
    report.result(found)
    return Exit.DONE
