"""Evidence of progress: another tree, a new target, a result not seen before, the plan's next step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zubble_worker.observers.actions import table
from zubble_worker.observers.actions.facts import Call, Counters, Progress, StepFacts
from zubble_worker.observers.actions.results import call_key, digest, is_echo
from zubble_worker.observers.actions.targets import targets, waits

_KEPT_TARGETS: Final = 5_000
_KEPT_RESULTS: Final = 2_000
_KEPT_CALLS: Final = 200


@dataclass(slots=True)
class Evidence(Counters):
    """Remembers what was seen; says what a step adds to it."""

    tree: str = ""
    """Fingerprint before the last call."""
    targets: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    by_call: dict[str, str] = field(default_factory=dict)
    """Last result of each call, and how often it changed."""
    plan_step: int = 0
    waited: int = 0
    """Waits since something was new."""
    after_wait: bool = False

    def seen(self, call: Call) -> str:
        """The state that makes a call another one: the tree, and what the same call has shown since.

        A call whose result changed, and one after a wait, is legitimate as long as patience lasts; without
        an end is only waiting for a result that goes on changing.
        """
        changes = self.by_call.get(_key(call), "").partition(" ")[2] or "0"
        return f"{call.state}/{changes}/{min(self.waited, table.PATIENCE.count)}"

    def is_patient_wait(self, call: Call) -> bool:
        """A wait that is not yet one too many."""
        return waits(call.tool, call.arguments) and self.waited < table.PATIENCE.count

    def new_targets(self, call: Call) -> frozenset[str]:
        return targets(call.tool, call.arguments) - frozenset(self.targets)

    def add(self, step: StepFacts) -> Progress:
        """Take a step in; refused and denied calls bring nothing."""
        advanced, self.plan_step = step.plan_step > self.plan_step, max(step.plan_step, self.plan_step)
        call = step.call
        if call is None:
            return Progress(plan_advanced=advanced)
        changed, self.tree = call.state != self.tree and bool(self.tree), call.state
        if step.end in {"refused", "denied", "infra"}:
            return Progress(changed=changed, plan_advanced=advanced)
        waiting = self.is_patient_wait(call)
        fresh = self.new_targets(call)
        self.targets = [*self.targets, *sorted(fresh)][-_KEPT_TARGETS:]
        new_result = self._result(call, step)
        self.after_wait = waits(call.tool, call.arguments)
        self.waited = 0 if changed or new_result else self.waited + self.after_wait
        return Progress(changed, bool(fresh), new_result, advanced, waiting)

    def _result(self, call: Call, step: StepFacts) -> bool:
        key, result = _key(call), digest(step.end, step.output)
        last, _, changes = self.by_call.pop(key, "").partition(" ")
        count = int(changes or 0)
        waited = self.after_wait or waits(call.tool, call.arguments)
        if last and last != result and (waited or count < table.PATIENCE.count):
            count += 1
        self.by_call[key] = f"{result} {count}"
        while len(self.by_call) > _KEPT_CALLS:
            self.by_call.pop(next(iter(self.by_call)))
        if result in self.results:
            return False
        self.results = [*self.results, result][-_KEPT_RESULTS:]
        return bool(step.output.strip()) and not is_echo(call.arguments, step.output)


def _key(call: Call) -> str:
    return call_key(call.tool, call.arguments)
