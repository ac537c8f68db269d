"""Scenes of a comparison: windows of messages, or moments in which the targets of both versions answer."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.evaluation.read import ALL_TIME, WorldReader
from persona_pipeline.evaluation.snapshot import Inputs
from persona_pipeline.judging.synthetic import SAMPLE_PROMPTS
from persona_pipeline.lab.answering import SCENE_CHANNEL, VISITOR
from persona_pipeline.lab.results import ComparisonRequest
from persona_pipeline.lab.scenes import Scene
from persona_pipeline.lab.versions import VersionAgent
from persona_pipeline.world.models import Message, Window, conversations, grouped, seed_from
from persona_pipeline.world.world import World

# How much of the talk before an answer is shown.
CONTEXT = 8
_Item = TypeVar("_Item")


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


def script_scenes(scenes: Sequence[Scene], agent_id: str, request: ComparisonRequest) -> list[Scene]:
    """Return an interview's scenes, one kind after another in turn, those of a kind in an order by seed."""
    kinds = grouped(_shuffled(list(scenes), agent_id, request), lambda scene: scene.kind)
    # However soon it is decided, each kind was seen about as often.
    each = [_as_many(own, request.scenes) for own in kinds.values()]
    return [scene for together in zip(*each, strict=True) for scene in together][: request.scenes]


def window_plan(world: World, agent: VersionAgent, scene: Scene, samples: int) -> AgentPlan:
    """Return the questions about a window by one version's persona and claims."""
    gathered = WorldReader(world).gathered(Inputs(agents=[agent.scope(scene.window)]))
    return agent.plan(gathered, scene.window, samples)


def _prompts(agent_id: str, end: datetime) -> list[Scene]:
    found = []
    for place, (line, *_) in enumerate(SAMPLE_PROMPTS, start=1):
        said = Message(f"prompt-{place}-0", VISITOR, line, end - timedelta(minutes=1), SCENE_CHANNEL)
        found.append(Scene(f"prompt-{place}", Window(end), (said,)))
    return found


def _shuffled(found: list[_Item], agent_id: str, request: ComparisonRequest) -> list[_Item]:
    random.Random(seed_from("scenes", request.seed, agent_id)).shuffle(found)
    return found


def _together(conversations: Iterable[Sequence[Scene]]) -> list[Scene]:
    return [replace(scene, conversation=scenes[0].id) for scenes in conversations for scene in scenes]


def _as_many(scenes: Sequence[Scene], wanted: int) -> list[Scene]:
    return [replace(scenes[place % len(scenes)], attempt=place // len(scenes)) for place in range(wanted) if scenes]
