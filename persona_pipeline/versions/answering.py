"""Both versions answer the same scenes, by targets as eval suites have them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persona_pipeline.background_loop import run_async
from persona_pipeline.errors import ConfigError
from persona_pipeline.judging.money import Budget, Reservation, has_price
from persona_pipeline.suites.answering.base import OutputCache, ask, cache_key, request_key
from persona_pipeline.suites.answering.model import ModelTarget
from persona_pipeline.suites.answering.prompts import PromptFiles, message_text
from persona_pipeline.suites.answering.responses import Output
from persona_pipeline.suites.format.files import state_folder
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.suites.targets import Request, TargetError, TargetFields
from persona_pipeline.suites.targets.persona import PersonaTarget, persona_prompt
from persona_pipeline.versions.scenes import Scene
from persona_pipeline.versions.sides import SideAgent

WIDTH, RETRIES = 8, 2
NO_BUDGET = "budget"


@dataclass(frozen=True)
class Asked:
    """A scene that a version's agent is to answer by its target."""

    target: TargetFields
    agent: SideAgent
    scene: Scene
    with_persona: bool = True

    @property
    def messages(self) -> list[dict[str, str]]:
        """What the target is sent: the persona as the system's message, then the talk, others under their names."""
        own, names = self.agent.persona.agent_id, self.agent.names
        system = [persona_prompt(self.agent.persona)] if self.with_persona else []
        system += [self.scene.system] if self.scene.system else []
        said = [{"role": "system", "content": "\n\n".join(system)}] if system else []
        for message in self.scene.context:
            if message.agent_id == own:
                said.append({"role": "assistant", "content": message.text})
            else:
                name = names.get(message.agent_id)
                said.append({"role": "user", "content": f"{name}: {message.text}" if name else message.text})
        return said

    @property
    def is_kept(self) -> bool:
        """Whether all its answer depends on is in its key."""
        return isinstance(self.target, ModelTarget)

    def key(self, fingerprint: Mapping[str, Any]) -> str:
        """Return what the answer depends on; the same for both versions where nothing differs."""
        asked = request_key(self.messages, {})
        return cache_key(fingerprint, asked, test_id=self.scene.id, attempt=self.scene.attempt)


@dataclass
class Answering:
    """Asks targets, keeps their answers, and counts what they cost.

    Attributes:
        targets: of before and after.
        with_persona: each version's persona goes along; off for bots that have their own.
        allow_code: targets that run programs may.
        cache: where answers of models are kept, so that a run that was stopped goes on from them; those of bots, which may change
            behind their address, never are. None: nothing is kept.
        budget: what answers may cost together with judging; None: no limit.
        usd: dollars of answers so far; None: a target does not tell.
        failures: why answers did not come, with how often.
    """

    targets: tuple[TargetFields, TargetFields]
    cache: OutputCache | None = None
    with_persona: bool = True
    allow_code: bool = False
    timeout: float = 120.0
    budget: Budget | None = None
    asked: int = 0
    usd: float | None = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    out_of_money: bool = False
    _fingerprints: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for target in self.targets:
            if target.runs_code and not self.allow_code:
                raise ConfigError(f"target {target.name!r} runs a program; pass --allow-code if you trust it")
            if isinstance(target, PersonaTarget) and self.with_persona:
                raise ConfigError(
                    f"target {target.name!r} plays a persona of its own; name one of provider anthropic or openai, "
                    "which plays that of each version, or add --no-send-persona"
                )

    def answers(self, asked: Sequence[Asked]) -> list[str | None]:
        """Return what was answered, in order; None where there is no answer, and why is counted. Equal ones are asked once."""
        keys = [item.key(self._fingerprint(item.target)) for item in asked]
        wanted = dict(zip(keys, asked, strict=True))
        known = {key: self.cache.get(key) if self.cache and item.is_kept else None for key, item in wanted.items()}
        new = {key: item for key, item in wanted.items() if known[key] is None}
        reserved = self._reserve(list(new.values()))
        if reserved is None:
            self.out_of_money = True
            self.failures[NO_BUDGET] += len(new)
            new = {}
        spent: float | None = 0.0
        with ThreadPoolExecutor(max_workers=min(WIDTH, *(target.workers or WIDTH for target in self.targets))) as pool:
            for key, output in zip(new, pool.map(self._answer, new.values()), strict=True):
                known[key] = output
                self.asked += 1
                if output is not None:
                    spent = None if spent is None or output.cost_usd is None else spent + output.cost_usd
                    if self.cache and new[key].is_kept:
                        self.cache.put(key, output)
        if reserved:
            reserved.settle(spent)
        self.usd = None if self.usd is None or spent is None else self.usd + spent
        found = [known[key] for key in keys]
        return [output.text if output is not None and output.text.strip() else None for output in found]

    def close(self) -> None:
        """Let go of the targets' connections."""
        for target in self.targets:
            target.close()

    def _fingerprint(self, target: TargetFields) -> Mapping[str, Any]:
        if target.name not in self._fingerprints:
            self._fingerprints[target.name] = target.fingerprint()
        return self._fingerprints[target.name]

    def _reserve(self, new: Sequence[Asked]) -> Reservation | None:
        """Set aside the most that answers may cost, as far as they have a price; None where it is not there."""
        if self.budget is None:
            return Reservation(0.0, lambda *_: None)
        worst = sum(self._worst_price(self.budget, item) for item in new)
        # Nothing else is under way: waiting for money to be freed would be waiting for ever.
        return run_async(self.budget.reserve(worst)) if worst <= self.budget.remaining else None

    def _worst_price(self, budget: Budget, item: Asked) -> float:
        model, most = getattr(item.target, "model", None), getattr(item.target, "max_tokens", 0)
        # What nobody can price takes nothing of the limit, and the report says that its dollars are not known.
        if not isinstance(model, str) or not has_price(model):
            return 0.0
        return budget.worst_price(json.dumps(item.messages), most, model)

    def _answer(self, item: Asked) -> Output | None:
        test = Test(item.scene.id, tuple(item.messages))
        request = Request(
            test,
            item.messages,
            "\n\n".join(f"@[{message['role'].capitalize()}]:\n{message['content']}" for message in item.messages),
            attempt=item.scene.attempt,
            timeout=self.timeout,
            request_key=request_key(item.messages, {}),
        )
        try:
            return ask(item.target, request, most_retries=RETRIES)[0]
        except TargetError as error:
            self.failures[error.reason] += 1
            return None


def answers_folder(world_root: Path) -> Path:
    """Return where a world's answers are kept."""
    return state_folder(world_root / "personas") / "cache" / "versions"


def inputs_of(suites: Sequence[Suite]) -> dict[str, Sequence[Mapping[str, str]]]:
    """Return the messages of every test of some suites, by the test's id, as a target would be sent them.

    Raises:
        ConfigError: a file that a message names is gone, or there is no test.
    """
    from persona_pipeline.suites.format.files import FileError

    found: dict[str, Any] = {}
    for suite in suites:
        files = PromptFiles(suite)
        for test in suite.tests:
            try:
                texts = [(item["role"], message_text(item, test, files)) for item in test.input_messages]
            except FileError as error:
                raise ConfigError(error.problem(suite.path)) from error
            name = test.id if test.id not in found else f"{suite.path.stem}/{test.id}"
            found[name] = [{"role": role, "content": text} for role, text in texts]
    if not found:
        raise ConfigError("the suites have no test; name others with --suite")
    return found
