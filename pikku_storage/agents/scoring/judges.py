"""Scorers that ask a model (contract SR-03). Which library talks to the model is the project's choice."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.utils.module_loading import import_string

from pikku_storage.agents.scoring.grades import Grade
from pikku_storage.agents.scoring.prompts import ANSWER, LONGEST, Tools, judge_prompt
from pikku_storage.agents.scoring.scorers import Scorer, scorers
from pikku_storage.agents.scoring.turns import Turn
from pikku_storage.conf import settings
from pikku_storage.exceptions import ScoringError
from pikku_storage.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """What a model is asked: `model` is its name without the provider. A judge never gets tools."""

    model: str
    prompt: str
    tools: tuple[()] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """What a model answered: `{"score": …, "reason": …}` as an object or as text, and what it took."""

    answer: str | Mapping[str, Json]
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None


Ask: TypeAlias = "Callable[[JudgeRequest], JudgeReply | str | Mapping[str, Json]]"
"""What a project gives for each provider."""
Prompt: TypeAlias = "Callable[[Turn, Any], str]"


class Judge(Scorer):
    """Asks a model for a grade. `model` is `"provider/name"`."""

    def __init__(
        self,
        name: str,
        *,
        model: str,
        criteria: str = "",
        needs_key: bool = False,
        tools: Tools = "names",
        longest: int = LONGEST,
        prompt: Prompt | None = None,
        ask: Ask | None = None,
        source_place: str = "",
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        if not (criteria or prompt):
            raise ScoringError(f"The judge {name!r} needs criteria, or a prompt of its own")
        self.model = model
        self.criteria = criteria
        self.needs_key = needs_key
        self.tools: Tools = tools
        self.longest = longest
        self.prompt = prompt
        self.ask = ask
        self._source_place = source_place

    @property
    def source_place(self) -> str:
        """See `Scorer.source_place`."""
        return self._source_place

    def prompt_for(self, turn: Turn, key: Any = None) -> str:
        """What the model is asked about that turn."""
        if self.prompt is not None:
            return f"{self.prompt(turn, key)}\n\n{ANSWER}"
        key = key if self.needs_key else None
        return judge_prompt(self.criteria, turn, key=key, tools=self.tools, longest=self.longest)

    def _answer(self, turn: Turn, key: Any) -> Grade:
        # What follows the provider may have slashes of its own.
        provider, model = self.model.split("/", 1) if "/" in self.model else ("", self.model)
        ask = self._provider(provider) if self.ask is None else self.ask
        reply = ask(JudgeRequest(model=model, prompt=self.prompt_for(turn, key)))
        if not isinstance(reply, JudgeReply):
            reply = JudgeReply(answer=reply)
        said = _said(reply.answer)
        if said is None:
            raise ScoringError(f"The judge {self.name!r} got no JSON object with a score from {self.model}")
        took = {"inputTokens": reply.input_tokens, "outputTokens": reply.output_tokens, "cost": reply.cost}
        metadata = {"model": self.model, **{name: value for name, value in took.items() if value is not None}}
        reason = said.get("reason")
        # What is no number is refused by `Scorer.grade`.
        return Grade(score=said["score"], reason=None if reason is None else str(reason), metadata=metadata)

    def _provider(self, name: str) -> Ask:
        known = settings.AGENT_MODELS
        if name not in known:
            raise ScoringError(
                f"The judge {self.name!r} asks the model {self.model!r}, and PIKKU_STORAGE['AGENT_MODELS'] names no "
                f"provider {name!r}; there are {', '.join(sorted(known)) or 'none'}"
            )
        found: Ask = import_string(known[name])
        return found


def judge(name: str, *, model: str, **options: Any) -> Judge:
    """Declare a judge: `judge("helpful", model="openai/gpt-5-mini", criteria="Does the answer help?")`.

    `needs_key` lets it compare with the answer that was expected. `tools` says what it is told of the tools that were
    called: `"names"` and failures, arguments and results in `"full"`, or `"off"`. `longest` is how many characters of a
    part it sees. `prompt(turn, key)` makes a prompt of your own in place of the criteria. `ask` is what asks the model,
    in place of the provider that `AGENT_MODELS` names. `queue` and `snapshot` are as in `@scorer`.
    """
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    place = "" if caller is None else f"{caller.f_globals.get('__name__')} (line {caller.f_lineno})"
    made = Judge(name, model=model, source_place=place, **options)
    scorers.add(made)
    return made


def _said(answer: Any) -> Mapping[str, Any] | None:
    if isinstance(answer, str):
        text = answer.strip()
        if text.startswith("```"):
            text = text.strip("`").removeprefix("json")
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return answer if isinstance(answer, Mapping) and "score" in answer else None
