"""Scenes of a comparison: windows of messages, or moments in which the targets of both versions answer."""

import json
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError, NothingError
from persona_pipeline.base.files import repository_of
from persona_pipeline.evaluation.plan import AgentPlan, plan_case, planned
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.evaluation.snapshot import Inputs
from persona_pipeline.judging.money import Budget, Reservation, has_price
from persona_pipeline.judging.synthetic import SAMPLE_PROMPTS
from persona_pipeline.lab.interview_scenes import InterviewScene
from persona_pipeline.lab.results import ComparisonRequest
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
    inputs,
    persona_prompt,
    request_key,
)
from persona_pipeline.suites.format.models import Suite, Test
from persona_pipeline.world.models import Message, Window, conversations, grouped, seed_from
from persona_pipeline.world.propositions.loading import StoredSet
from persona_pipeline.world.world import World

# How much of the talk before an answer is shown, and the conversation it is put into.
CONTEXT, SCENE_CHANNEL = 8, "scene"
_VISITOR = "visitor"
# Time of written scenes: judgments must not depend on the day.
_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Scene:
    """One pair of a comparison.

    Attributes:
        window: its messages are judged; of an answered scene, its time.
        context: messages before the answer, oldest first; empty where messages are judged as they are.
        turns: the visitor's lines, whatever the answers are; empty: the context is answered, once.
        conversation: its scenes are alike and count once, as their mean; they are neighbours. Empty: it is alone.
        system: the system message of a suite's test, in addition to the persona.
        attempt: 0-based: the same scene may be answered again.
        kind: of an interview's scene; a change may show in scenes of a single kind.
    """

    id: str
    window: Window
    context: tuple[Message, ...] = ()
    turns: tuple[str, ...] = ()
    system: str = ""
    attempt: int = 0
    conversation: str = ""
    kind: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """What the visitor says before each answer; ``""`` where all of that is in the context."""
        return self.turns or ("",)


def window_scenes(world: World, agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return the windows in which an agent spoke, in an order by seed: the newest and those of the same length before it.

    Neighbouring weeks are alike and count as one conversation. ConfigError: no messages or windows.
    """
    window: Window | None = WorldReader(world).window(request.window, request.as_of)
    said = [message.created_at for message in world.messages(agent_id=agent_id)]
    found = []
    while window is not None and len(found) < request.scenes and said and window.end >= said[0]:
        if any(moment in window for moment in said):
            found.append(Scene(window.end.isoformat(), window))
        window = None if request.window == ALL_TIME else window.previous()
    length = block_length(len(found))
    blocks = [found[start : start + length] for start in range(0, len(found), length)]
    return _together(_shuffled(blocks, agent_id, request))


def block_length(windows: int) -> int:
    """Return how many neighbouring windows count as one: two from 8 on, three from 27, four from 64 (the rate of Kuensch, 1989)."""
    return max(1, int(windows ** (1 / 3) + 1e-9))


def moments(world: World, agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return moments in which an agent answered, each with the messages before it, by conversation in an order by seed.

    Each conversation (one place, no pause of an hour) gives about the same number of scenes. Without conversations the sample
    prompts are used. Too few scenes are answered again.
    """
    newest = world.newest_message_time()
    window = WorldReader(world).window(request.window, request.as_of) if newest else Window(datetime.now(UTC))
    talks: dict[str, list[Message]] = {}
    found: dict[str, list[Scene]] = {}
    messages = world.messages(window)
    for message, number in zip(messages, conversations(messages), strict=True):
        talk = talks.setdefault(message.conversation, [])
        if message.agent_id == agent_id and talk and talk[-1].agent_id != agent_id:
            scene = Scene(message.id, Window(message.created_at), tuple(talk[-CONTEXT:]))
            found.setdefault(str(number), []).append(scene)
        talk.append(message)
    if not found:
        return _as_many(_shuffled(_prompts(agent_id, window.end), agent_id, request), request.scenes)
    conversing = _shuffled(list(found.values()), agent_id, request)
    each, more = divmod(request.scenes, len(conversing))
    drawn = (
        _as_many(_shuffled(scenes, agent_id, request), each + (place < more)) for place, scenes in enumerate(conversing)
    )
    return _together(drawn)


def suite_scenes(
    tests: Mapping[str, Sequence[Mapping[str, str]]], agent_id: str, request: ComparisonRequest
) -> list[Scene]:
    """Return the inputs of a suite's tests, lists of ``role`` and ``content``, as scenes."""
    found = []
    for name, messages in tests.items():
        systems = [item["content"] for item in messages if item["role"] == "system"]
        turns = [item for item in messages if item["role"] != "system" and item["content"].strip()]
        spoken = [(agent_id if item["role"] == "assistant" else _VISITOR, item["content"]) for item in turns]
        found.append(Scene(name, Window(_SOME_DAY), _talk(name, spoken, _SOME_DAY), system="\n\n".join(systems)))
    return _as_many(_shuffled(found, agent_id, request), request.scenes)


def script_scene(script: InterviewScene, attempt: int = 0) -> Scene:
    """Return a scene of an interview as it is asked."""
    return Scene(script.id, Window(_SOME_DAY), turns=script.turns, attempt=attempt, kind=script.kind)


def script_scenes(scripts: Sequence[InterviewScene], agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return an interview's scenes, one kind after another in turn, those of a kind in an order by seed."""
    scenes = list(map(script_scene, scripts))
    kinds = grouped(_shuffled(scenes, agent_id, request), lambda scene: scene.kind)
    # However soon it is decided, each kind was seen about as often.
    each = [_as_many(own, request.scenes) for own in kinds.values()]
    return [scene for together in zip(*each, strict=True) for scene in together][: request.scenes]


def window_plan(world: World, agent: VersionAgent, scene: Scene, samples: int) -> AgentPlan:
    """Return the questions about a window by one version's persona and claims."""
    gathered = WorldReader(world).gathered(Inputs(agents=[agent.scope(scene.window)]))
    return agent.plan(gathered, scene.window, samples)


def answer_plan(world: World, agent: VersionAgent, scene: Scene, texts: Sequence[str], samples: int) -> AgentPlan:
    """Return the questions about the answers to a scene, one conversation, by one persona and its claims."""
    own, said_at, talk, answers = agent.persona.agent_id, scene.window.end, list[Message](), list[Message]()
    for place, (line, text) in enumerate(zip(scene.lines, texts, strict=True)):
        moment = said_at - timedelta(minutes=len(texts) - 1 - place)
        if line:
            asked_at = moment - timedelta(seconds=30)
            talk.append(Message(f"{scene.id}-line-{place}", _VISITOR, line, asked_at, SCENE_CHANNEL, synthetic=True))
        answers.append(Message(answer_id(scene, place), own, text, moment, SCENE_CHANNEL, synthetic=True))
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
    alone = {"adherence": _by_answer(agent.sets["adherence"])} if "adherence" in agent.sets and _is_long(scene) else {}
    plan = plan_case(case, agent.scope(scene.window), {**agent.sets, **alone})
    if "consistency" not in plan.plans or len(answers) < 2:
        return plan
    # Of a script the second half is held against the first.
    halves = replace(case, earlier=answers[: len(answers) // 2], messages=answers[len(answers) // 2 :])
    return replace(plan, plans={**plan.plans, **planned(replace(plan, case=halves), ["consistency"]).plans})


def answer_id(scene: Scene, place: int) -> str:
    """Return the id of an answer as a message, by its place (from 0) in the scene."""
    return f"{scene.id}-answer-{place + 1}" if place else f"{scene.id}-answer"


def _is_long(scene: Scene) -> bool:
    return len(scene.lines) >= SHORTEST


def _by_answer(stored: StoredSet) -> StoredSet:
    claims = stored.propositions
    return StoredSet(stored.version, claims and replace(claims, level="action", first_n=0, last_n=1))


def _prompts(agent_id: str, end: datetime) -> list[Scene]:
    return [
        Scene(f"prompt-{place}", Window(end), _talk(f"prompt-{place}", [(_VISITOR, turns[0])], end))
        for place, turns in enumerate(SAMPLE_PROMPTS, start=1)
    ]


def _talk(name: str, spoken: Sequence[tuple[str, str]], end: datetime) -> tuple[Message, ...]:
    return tuple(
        Message(f"{name}-{place}", who, text, end - timedelta(minutes=len(spoken) - place), SCENE_CHANNEL)
        for place, (who, text) in enumerate(spoken)
    )


def _shuffled(found: list[_Item], agent_id: str, request: ComparisonRequest) -> list[_Item]:
    random.Random(seed_from("scenes", request.seed, agent_id)).shuffle(found)
    return found


def _together(conversations: Iterable[Sequence[Scene]]) -> list[Scene]:
    return [replace(scene, conversation=scenes[0].id) for scenes in conversations for scene in scenes]


def _as_many(scenes: Sequence[Scene], wanted: int) -> list[Scene]:
    return [replace(scenes[place % len(scenes)], attempt=place // len(scenes)) for place in range(wanted) if scenes]


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
        system = [persona_prompt(played.display_name, played.persona)] if self.with_persona else []
        system += [self.scene.system] if self.scene.system else []
        said = [{"role": "system", "content": "\n\n".join(system)}] if system else []
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


def answers_folder(world: World) -> Path:
    """Return where a world's answers are kept."""
    return (world.settings.state or repository_of(world.root) / ".persona") / "cache" / "versions"


def inputs_of(suites: Sequence[Suite]) -> dict[str, Sequence[Mapping[str, str]]]:
    """Return the messages of every test of some suites, by its id, as a target would be sent them."""
    found: dict[str, Any] = {}
    for suite in suites:
        for name, messages in inputs(suite):
            found[name if name not in found else f"{suite.path.stem}/{name}"] = messages
    if not found:
        raise NothingError("the suites have no test; name others with --suite")
    return found
