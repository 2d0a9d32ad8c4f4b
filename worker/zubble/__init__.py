"""One agent in one process: no queue, no broker, no Redis.

from zubble import Agent, Journal, RepairProtocol
from zubble.environments import docker_env
from zubble.models import openai_model

agent = Agent(openai_model("qwen", "http://127.0.0.1:8000/v1"), docker_env("web-1"), RepairProtocol(),
              Journal(work_dir="."), level_kwargs={"level": "xhigh"})
result = agent.run_task([{"role": "user", "content": "nginx does not start; repair it"}], 900, 4_000)
print(result.text, result.perf)
"""

from __future__ import annotations

from zubble.agent import Agent, run_task
from zubble.backend import make_backend
from zubble.journal import Journal
from zubble.protocols import RepairProtocol

__all__ = ["Agent", "Journal", "RepairProtocol", "make_backend", "run_task"]
