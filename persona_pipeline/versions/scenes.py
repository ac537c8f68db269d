"""What two versions are compared on: windows of messages, or moments in which both answer."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from persona_pipeline.evaluation.plan import AgentPlan, build_case, plan_case
from persona_pipeline.evaluation.read import ALL_TIME, read_scopes, resolve_window
from persona_pipeline.evaluation.snapshot import AgentScope, Snapshot
from persona_pipeline.judging.synthetic import SAMPLE_PROMPTS
from persona_pipeline.scoring.plan import AgentCase
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.versions.request import ComparisonRequest
from persona_pipeline.versions.sides import SideAgent
from persona_pipeline.world import World
from persona_pipeline.world.models import Message, Window, seed_from

# How much of the talk before an answer is shown, and the conversation it is put into.
CONTEXT, SCENE_CHANNEL = 8, "scene"
_VISITOR = "visitor"


@dataclass(frozen=True)
class Scene:
    """One pair of a comparison.

    Attributes:
        window: its messages are judged; of an answered scene, when it is said to have taken place.
        context: what was said before the answer, oldest first; empty where messages are judged as they are.
        system: what a suite's test says to the system, beside the persona.
        attempt: 0-based: the same scene may be answered again.
    """

    id: str
    window: Window
    context: tuple[Message, ...] = ()
    system: str = ""
    attempt: int = 0


def window_scenes(world: World, agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return the windows an agent spoke in, in an order by seed: the newest and those of the same length before it.

    Raises:
        ConfigError: there is no message, or the window is none.
    """
    window: Window | None = resolve_window(world, request.window, request.as_of)
    said = [message.created_at for message in world.messages(agent_id=agent_id)]
    found = []
    while window is not None and len(found) < request.scenes and said and window.end >= said[0]:
        if any(moment in window for moment in said):
            found.append(Scene(window.end.isoformat(), window))
        window = None if request.window == ALL_TIME else window.previous()
    return _shuffled(found, agent_id, request)


def moments(world: World, agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return moments in which an agent answered somebody, each with the talk before it, in an order by seed.

    Without any, the sample prompts; fewer than are asked for are answered again.

    Raises:
        ConfigError: the window is none.
    """
    newest = world.newest_message_time()
    window = resolve_window(world, request.window, request.as_of) if newest else Window(datetime.now(UTC))
    talks: dict[str, list[Message]] = {}
    found = []
    for message in world.messages(window):
        talk = talks.setdefault(message.conversation, [])
        if message.agent_id == agent_id and talk and talk[-1].agent_id != agent_id:
            found.append(Scene(message.id, Window(message.created_at), tuple(talk[-CONTEXT:])))
        talk.append(message)
    return _as_many(_shuffled(found or _prompts(agent_id, window.end), agent_id, request), request.scenes)


def suite_scenes(
    tests: Mapping[str, Sequence[Mapping[str, str]]], agent_id: str, request: ComparisonRequest
) -> list[Scene]:
    """Return the inputs of a suite's tests as scenes.

    Args:
        tests: the messages of each test, as ``role`` and ``content``.
    """
    end, found = datetime(2026, 1, 1, tzinfo=UTC), []
    for name, messages in tests.items():
        systems = [item["content"] for item in messages if item["role"] == "system"]
        turns = [item for item in messages if item["role"] != "system" and item["content"].strip()]
        spoken = [(agent_id if item["role"] == "assistant" else _VISITOR, item["content"]) for item in turns]
        found.append(Scene(name, Window(end), _talk(name, spoken, end), "\n\n".join(systems)))
    return _as_many(_shuffled(found, agent_id, request), request.scenes)


def window_plan(world: World, agent: SideAgent, scene: Scene, request: ComparisonRequest) -> AgentPlan:
    """Return what is judged of a window by one version's persona and claims.

    Raises:
        ConfigError: the world's lexicon is not valid.
    """
    scope = _scope(agent, scene)
    case = build_case(read_scopes(world, Snapshot(agents=[scope])), agent.persona, scope, request.samples)
    return plan_case(replace(case, names={**case.names, **agent.names}), scope, agent.sets)


def answer_plan(world: World, agent: SideAgent, scene: Scene, text: str, request: ComparisonRequest) -> AgentPlan:
    """Return what is judged of an answer, by one persona and its claims.

    Raises:
        ConfigError: the world's lexicon is not valid.
    """
    said_at = scene.window.end
    answer = Message(f"{scene.id}-answer", agent.persona.agent_id, text, said_at, SCENE_CHANNEL, synthetic=True)
    talk = [replace(item, channel=SCENE_CHANNEL, recipient=None) for item in scene.context]
    scope = _scope(agent, scene)
    case = AgentCase(
        agent_id=agent.persona.agent_id,
        display_name=agent.persona.display_name,
        persona=agent.persona.persona,
        window=scene.window,
        messages=[answer],
        channels={SCENE_CHANNEL: [*talk, answer]},
        names={**world.display_names(), **agent.names},
        samples=request.samples,
        lexicon=world_lexicon(world.root),
    )
    return plan_case(case, scope, agent.sets)


def _scope(agent: SideAgent, scene: Scene) -> AgentScope:
    claimed = tuple(name for name, stored in agent.sets.items() if stored.propositions is not None)
    return AgentScope(agent.persona.agent_id, scene.window, claimed, past=True, persona=agent.persona)


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


def _shuffled(scenes: list[Scene], agent_id: str, request: ComparisonRequest) -> list[Scene]:
    random.Random(seed_from("scenes", request.seed, agent_id)).shuffle(scenes)
    return scenes


def _as_many(scenes: Sequence[Scene], wanted: int) -> list[Scene]:
    return [replace(scenes[place % len(scenes)], attempt=place // len(scenes)) for place in range(wanted) if scenes]
