"""Run by the Python of mini-swe-agent's environment: its default agent, its local environment, one task.

python mini_swe.py URL
"""

from __future__ import annotations

import sys
from pathlib import Path

import minisweagent
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

config = yaml.safe_load((Path(minisweagent.__file__).parent / "config" / "mini_textbased.yaml").read_text())
agent_config = {key: config["agent"][key] for key in ("system_template", "instance_template")}
model = LitellmTextbasedModel(
    **{
        **config["model"],
        "model_name": "openai/scripted",
        "model_kwargs": {"api_base": sys.argv[1], "api_key": "none", "temperature": 0},
        "cost_tracking": "ignore_errors",
    }
)
DefaultAgent(model, LocalEnvironment(timeout=30), **agent_config).run("Say the numbers.")
