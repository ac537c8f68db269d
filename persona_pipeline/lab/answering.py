"""Answers to scenes: targets are asked turn by turn, their answers are kept and paid, and become questions to the judge."""

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.files import repository_of
from persona_pipeline.evaluation.plan import AgentPlan, plan_case, planned
from persona_pipeline.judging.estimate import dollars
from persona_pipeline.judging.money import Budget, Reservation, estimated_tokens, has_price, price
from persona_pipeline.judging.open import JudgeOptions, OpenedJudge
from persona_pipeline.judging.verdict import Judge, Usage
from persona_pipeline.lab.scenes import Scene
from persona_pipeline.lab.versions import VersionAgent
from persona_pipeline.scoring.adherence import SHORTEST
from persona_pipeline.scoring.plan import AgentCase
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.suites.answering.base import (
    Output,
    OutputCache,
    Request,
    TargetError,
    TargetFields,
    ask,
    cache_key,
    persona_prompt,
    request_key,
)
from persona_pipeline.suites.format.models import Test
from persona_pipeline.suites.running.opening import open_targets
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.loading import StoredSet
from persona_pipeline.world.world import World

# Where a scene takes place, and who speaks to the agent.
SCENE_CHANNEL, VISITOR = "scene", "visitor"
WIDTH, RETRIES = 8, 2
NO_BUDGET, EMPTY = "budget", "empty"


@dataclass(frozen=True)
class AskedScene:
    """A scene that a version's agent is to answer by its target."""

    target: TargetFields
    agent: VersionAgent
    scene: Scene
    with_persona: bool = True

    def messages(self, texts: Sequence[str] = ()) -> list[dict[str, str]]:
        """Return the messages for the target after some answers.

        The persona is the system's message; then comes the conversation, with names of others.
        """
        played, names = self.agent.persona, self.agent.names
        own = played.agent_id
        said = []
        if self.with_persona:
            said = [{"role": "system", "content": persona_prompt(played.display_name, played.persona)}]
        for message in self.scene.context:
            if message.agent_id == own:
                said.append({"role": "assistant", "content": message.text})
            else:
                name = names.get(message.agent_id)
                said.append({"role": "user", "content": f"{name}: {message.text}" if name else message.text})
        for line, text in zip_longest(self.scene.lines[: len(texts) + 1], texts):
            said += [{"role": "user", "content": line}] if line else []
            said += [] if text is None else [{"role": "assistant", "content": text}]
        return said

    def key(self, fingerprint: Mapping[str, Any], texts: Sequence[str] = ()) -> str:
        """Return what the next answer depends on; the same for both versions where nothing differs."""
        asked = request_key(self.messages(texts), {})
        return cache_key(fingerprint, asked, test_id=self.scene.id, attempt=self.scene.attempt)


@dataclass
class SceneAnswers:
    """The answers to a scene.

    Attributes:
        outputs: the answers, one a turn, with time and cost.
        missing: why the next answer is missing, as a word for machines; empty: all are there.
    """

    outputs: list[Output] = field(default_factory=list)
    missing: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(output.text for output in self.outputs)


# The next turn of a scene: who is asked, and what.
_Question = tuple[TargetFields, Request]


@dataclass
class Answering:
    """Asks targets, keeps their answers, and counts their cost.

    Attributes:
        targets: of before and after.
        with_persona: each version's persona is sent; off for bots that have their own.
        allow_code: targets that run programs are allowed.
        cache: keeps answers of models, so that a stopped run continues; answers of bots, which may change, are not kept. None:
            nothing is kept.
        kept: keeps answers of bots too, for one run; None: nothing is kept.
        run: unique name of the run, by which bots know a conversation.
        budget: for answers together with judging; None: no limit.
        prices: of models, as in ``PERSONA_JUDGE_PRICES``.
        usd: dollars of answers; None: a target does not report them.
        failures: number of missing answers by reason.
    """

    targets: tuple[TargetFields, TargetFields]
    cache: OutputCache | None = None
    kept: OutputCache | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    with_persona: bool = True
    allow_code: bool = False
    budget: Budget | None = None
    prices: str = ""
    asked: int = 0
    usd: float | None = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    out_of_money: bool = False
    _fingerprints: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for target in self.targets:
            if target.runs_code and not self.allow_code:
                raise ConfigError(f"target {target.name!r} runs a program; pass --allow-code if you trust it")
            if target.plays_agent and self.with_persona:
                raise ConfigError(
                    f"target {target.name!r} plays a persona of its own; name one of provider anthropic or openai, "
                    "which plays that of each version, or add --no-send-persona"
                )

    def answers(self, asked: Sequence[AskedScene]) -> list[SceneAnswers]:
        """Ask turn by turn, scenes in parallel, and return the answers in order.

        A scene ends with its first missing answer, and the reason is counted. Equal questions are asked once.
        """
        found = [SceneAnswers() for _ in asked]
        for turn in range(max((len(item.scene.lines) for item in asked), default=0)):
            due = [
                (own, self._fingerprint(item.target), item)
                for own, item in zip(found, asked, strict=True)
                if turn < len(item.scene.lines) and not own.missing
            ]
            keys = [item.key(fingerprint, own.texts) for own, fingerprint, item in due]
            answered = self._turn(
                {
                    key: (item.target, self._request(item, turn, own.texts, fingerprint))
                    for key, (own, fingerprint, item) in zip(keys, due, strict=True)
                }
            )
            for key, (own, _, _) in zip(keys, due, strict=True):
                output = answered[key]
                if isinstance(output, Output):
                    own.outputs.append(output)
                else:
                    own.missing = output
        return found

    def _request(self, item: AskedScene, turn: int, texts: Sequence[str], fingerprint: Mapping[str, Any]) -> Request:
        messages = item.messages(texts)
        return Request(
            Test(item.scene.id, tuple(messages)),
            messages,
            "\n\n".join(f"@[{message['role'].capitalize()}]:\n{message['content']}" for message in messages),
            attempt=item.scene.attempt,
            request_key=request_key(messages, {}),
            turn=turn,
            conversation=content_hash([self.run, item.key(fingerprint)])[:32],
        )

    def _turn(self, wanted: Mapping[str, _Question]) -> dict[str, Output | str]:
        """Return an answer, or the reason why there is none, by the question's key."""
        places = {key: self.cache if target.is_model else self.kept for key, (target, _) in wanted.items()}
        # Of a model all that its answer depends on is in the key.
        known: dict[str, Output | str] = {
            key: output for key, place in places.items() if place and (output := place.get(key)) is not None
        }
        new = {key: question for key, question in wanted.items() if key not in known}
        reserved = self._reserve(list(new.values()))
        if reserved is None:
            self.out_of_money = True
            known |= dict.fromkeys(new, NO_BUDGET)
            new = {}

        def answer(key: str) -> Output | str:
            try:
                output = ask(*new[key], most_retries=RETRIES)
            except TargetError as error:
                return error.reason
            if place := places[key]:
                place.put(key, output)
            return output

        spent: float | None = 0.0
        with ThreadPoolExecutor(max_workers=min(WIDTH, *(target.workers or WIDTH for target in self.targets))) as pool:
            # Each is kept as it comes: one that waits for a slower one would be paid again after a crash.
            for key, output in zip(new, pool.map(answer, new), strict=True):
                known[key] = output
                self.asked += 1
                if isinstance(output, Output):
                    spent = None if spent is None or output.cost_usd is None else spent + output.cost_usd
        if reserved:
            reserved.settle(spent)
        self.usd = None if self.usd is None or spent is None else self.usd + spent
        silent = {key for key, output in known.items() if isinstance(output, Output) and not output.text.strip()}
        found = known | dict.fromkeys(silent, EMPTY)
        self.failures.update(reason for reason in found.values() if isinstance(reason, str))
        return found

    def close(self) -> None:
        for target in self.targets:
            target.close()

    def _fingerprint(self, target: TargetFields) -> Mapping[str, Any]:
        if target.name not in self._fingerprints:
            self._fingerprints[target.name] = target.fingerprint()
        return self._fingerprints[target.name]

    def _reserve(self, new: Sequence[_Question]) -> Reservation | None:
        """Set aside the most that answers may cost, as far as they have a price; None where it is not there."""
        if self.budget is None:
            return Reservation(0.0, lambda *_: None)
        worst = 0.0
        for target, request in new:
            model, most = getattr(target, "model", None), getattr(target, "max_tokens", 0)
            # An answer without a known price takes nothing of the limit, and the report says that dollars are unknown.
            if isinstance(model, str) and has_price(model, self.prices):
                worst += self.budget.worst_price(json.dumps(request.messages), most, model, self.prices)
        # Nothing else is under way: waiting for money to be freed would be waiting for ever.
        return run_async(self.budget.reserve(worst)) if worst <= self.budget.remaining else None


@dataclass(frozen=True)
class ChosenTargets:
    """The targets that answer.

    Attributes:
        names: of before and after, as in the targets file.
        file: the targets file; None: the nearest to the world.
        with_persona: each version's persona is sent to its target.
        allow_code: targets that run programs are allowed.
        environment, network: what a targets file inside the repository may read and reach.
    """

    names: tuple[str, str]
    file: Path | None = None
    with_persona: bool = True
    allow_code: bool = False
    environment: Sequence[str] = ()
    network: bool = False

    def open(self, world: World, judge: Judge, options: JudgeOptions) -> Answering:
        """Open the targets; answers and judgments share one budget. ConfigError: a target does not exist, or is not allowed."""
        beside = world.root / "targets.yaml"
        targets = open_targets(beside, self.file, world.settings, environment=self.environment, network=self.network)
        if targets is None:
            raise ConfigError(
                "there is no targets file; write targets.yaml in the world's folder, or name one with --targets"
            )
        budget = judge.budget if isinstance(judge, OpenedJudge) else None
        if budget is None and options.max_usd is not None:
            budget = Budget(options.max_usd)
        before, after = map(targets.open, self.names)
        return Answering(
            (before, after),
            None if options.fresh else OutputCache(answers_folder(world)),
            with_persona=self.with_persona,
            allow_code=self.allow_code,
            budget=budget,
            prices=world.settings.judge_prices,
        )


def answers_folder(world: World) -> Path:
    """Return where a world's answers are kept."""
    return (world.settings.state or repository_of(world.root) / ".persona") / "cache" / "versions"


def answer_plan(world: World, agent: VersionAgent, scene: Scene, texts: Sequence[str], samples: int) -> AgentPlan:
    """Return the questions about the answers to a scene, one conversation, by one persona and its claims."""
    own, said_at, talk, answers = agent.persona.agent_id, scene.window.end, list[Message](), list[Message]()
    for place, (line, text) in enumerate(zip(scene.lines, texts, strict=True)):
        moment = said_at - timedelta(minutes=len(texts) - 1 - place)
        if line:
            asked_at = moment - timedelta(seconds=30)
            talk.append(Message(f"{scene.id}-line-{place}", VISITOR, line, asked_at, SCENE_CHANNEL, synthetic=True))
        answers.append(Message(scene.answer_id(place), own, text, moment, SCENE_CHANNEL, synthetic=True))
        talk.append(answers[-1])
    before = [replace(item, channel=SCENE_CHANNEL, recipient=None) for item in scene.context]
    case = AgentCase(
        agent_id=own,
        display_name=agent.persona.display_name,
        persona=agent.persona.persona,
        window=scene.window,
        messages=answers,
        channels={SCENE_CHANNEL: [*before, *talk]},
        names={**world.display_names(), **agent.names},
        samples=samples,
        lexicon=world_lexicon(world.root),
    )
    # Each answer of a long script is judged alone: this shows how long the character lasts.
    alone = (
        {"adherence": _by_answer(agent.sets["adherence"])}
        if "adherence" in agent.sets and len(scene.lines) >= SHORTEST
        else {}
    )
    plan = plan_case(case, agent.scope(scene.window), {**agent.sets, **alone})
    if "consistency" not in plan.plans or len(answers) < 2:
        return plan
    # Of a script the second half is held against the first.
    halves = replace(case, earlier=answers[: len(answers) // 2], messages=answers[len(answers) // 2 :])
    return replace(plan, plans={**plan.plans, **planned(replace(plan, case=halves), ["consistency"]).plans})


def _by_answer(stored: StoredSet) -> StoredSet:
    claims = stored.propositions
    return StoredSet(stored.version, claims and replace(claims, level="action", first_n=0, last_n=1))


# Tokens of an answer in a chat: usual, long.
_ANSWER = (90, 400)
USUAL_ANSWER = "word " * 72


def price_of_answers(answers: Sequence[AskedScene], prices: str) -> str:
    """Return in words the expected cost of answers, and that of long ones."""
    total = [0.0, 0.0]
    for item, turn in ((asked, turn) for asked in answers for turn in range(len(asked.scene.lines))):
        model = getattr(item.target, "model", None)
        # The earlier answers are read again, and are as long as this one.
        said = [["word " * (tokens * 4 // 5)] * turn for tokens in _ANSWER]
        read = [sum(estimated_tokens(message["content"]) for message in item.messages(texts)) for texts in said]
        usages = [Usage(input_tokens=count, output_tokens=tokens) for count, tokens in zip(read, _ANSWER, strict=True)]
        usd = [price(usage, model, prices=prices) if isinstance(model, str) else None for usage in usages]
        if any(each is None for each in usd):
            return "answers: no price is known"
        total = [known + (each or 0.0) for known, each in zip(total, usd, strict=True)]
    return f"answers: about {dollars(total[0])}, {dollars(total[1])} if they are long"
