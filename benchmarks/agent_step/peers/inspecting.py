"""Run by the Python of Inspect AI's environment: its ReAct agent with a bash tool in its local sandbox.

python inspecting.py URL FOLDER
"""

from __future__ import annotations

import sys

from inspect_ai import Task, eval  # noqa: A004 - their name for it
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.tool import bash

url, folder = sys.argv[1:]
model = get_model(
    "openai-api/local/scripted", base_url=url, api_key="none", config=GenerateConfig(temperature=0)
)
task = Task(
    dataset=[Sample(input="Say the numbers.", target="done")],
    solver=react(tools=[bash(timeout=30)]),
    sandbox="local",
)
(log,) = eval(task, model=model, display="none", log_dir=folder, message_limit=10_000)
if log.status != "success":
    sys.exit(f"Inspect AI ended with {log.status}: {log.error}")
