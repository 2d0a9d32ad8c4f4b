"""Questions that a run has for a person: what is asked, until when it waits, what was answered."""

from __future__ import annotations

from typing import Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

QUESTION_CHARS: Final = 8_000
"""A longer question of an agent is cut; what is too long to be shown whole is not approved."""
ANSWER_CHARS: Final = 4_000
NOBODY: Final = "No human is available. Decide yourself, or report."
"""What the agent hears where nobody answers and the task says nothing else (C18)."""
LATE: Final = "nobody answered in time"
MOST_DEADLINE_SECONDS: Final = 30 * 86_400
MOST_KEEP_SECONDS: Final = 86_400

_FROZEN: Final = ConfigDict(frozen=True, extra="forbid")

Kind = Literal["question", "approval"]
"""A question has text for an answer; an approval is given or denied."""
Cause = Literal["agent", "policy", "cap", "guard"]
"""Who wants to know: the agent by its action `ask`, a policy by `Ask`, a cap or a guard that was met."""


class Answer(BaseModel):
    """What a person said, or what holds where none did."""

    model_config = _FROZEN

    text: str = Field(default="", max_length=ANSWER_CHARS)
    """The answer to a question; the reason of a denial."""
    allowed: bool | None = None
    """Of an approval; None for a question."""
    by: Literal["human", "deadline", "nobody"] = "human"
    """`deadline`: time was up; `nobody`: the run is unattended."""

    @classmethod
    def denied(cls, reason: str = "") -> Answer:
        return cls(text=reason, allowed=False)

    @classmethod
    def approved(cls) -> Answer:
        return cls(allowed=True)

    @property
    def kind(self) -> Kind:
        """What it answers."""
        return "question" if self.allowed is None else "approval"


class Question(BaseModel):
    """One question of a run."""

    model_config = _FROZEN

    question_id: str
    """Random, 64 bits, hex."""
    kind: Kind
    cause: Cause
    subject: str = ""
    """The tool, the cap or the detector it is about."""
    text: str
    """For the person; what the agent wrote in it is quoted, never trusted."""
    unanswered: Answer
    """What holds at the deadline."""


class Asked(BaseModel):
    """A question as the store has it."""

    model_config = _FROZEN

    question: Question
    asked_at: float
    """Seconds since the epoch, as all its times."""
    answer_by: float
    """Then `question.unanswered` is its answer."""
    answered_at: float | None = None
    answer: Answer | None = None

    @property
    def waited_seconds(self) -> float:
        """Until it was answered; 0 before."""
        return max(self.answered_at - self.asked_at, 0.0) if self.answered_at else 0.0


class AskRequest(BaseModel):
    """Whether a person may be asked, and what holds where none answers (C18)."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    human: bool = False
    """False: the run is unattended, a question has its default answer at once, an approval is denied."""
    deadline_seconds: int = Field(default=86_400, ge=1, le=MOST_DEADLINE_SECONDS)
    """How long the task waits for an answer; not charged to its wall clock."""
    default_answer: str = Field(default=NOBODY, min_length=1, max_length=ANSWER_CHARS)
    """What the agent hears where nobody answers. An approval that nobody gives is denied."""
    keep_seconds: int = Field(default=0, ge=0, le=MOST_KEEP_SECONDS)
    """How long slot and sandbox are kept for the answer; then they are given back, and another attempt
    goes on from a snapshot. 0: at once."""
    caps: bool = False
    """Whether a cap that is met asks instead of ending the run (C47)."""


class Human(Protocol):
    """Whoever answers the questions of one run."""

    async def answer(self, question: Question) -> Asked:
        """The question with its answer.

        Raises:
            AwaitingHuman: The run ends here; another attempt goes on with the answer.
        """
