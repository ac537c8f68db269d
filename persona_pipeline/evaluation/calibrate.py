"""Agreement of judges with people, and the judgments that people can label."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from persona_pipeline.base.errors import raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.folder import asked_now
from persona_pipeline.evaluation.history import verdicts_of
from persona_pipeline.evaluation.plan import plan_agent
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.guard.calibration import (
    Calibration,
    MessageCalibration,
    calibrate_dimensions,
    calibrate_messages,
)
from persona_pipeline.guard.labels.files import LABELS, AskedOf, Label, load_labels, stale_lines, stale_reasons
from persona_pipeline.guard.labels.messages import MarkSource, load_message_labels, verdicts_of_people
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.scoring.messages.verdicts import MOST_MESSAGES
from persona_pipeline.world import runs
from persona_pipeline.world.models import Window, grouped
from persona_pipeline.world.propositions.models import select_dimensions
from persona_pipeline.world.world import World

# Windows of an agent that are looked at, the newest first.
MOST_WINDOWS = 26


@dataclass(frozen=True)
class Judgment:
    """A judged claim, as shown, and its answers.

    ``request``: with claim, transcript and the shown persona (None: not shown); of the first sample. ``window``: the newest
    with it. ``verdicts``: all answers to it and its repeats, of any judge; never empty.
    """

    request: JudgeRequest
    window: Window
    verdicts: Sequence[Verdict]

    @property
    def key(self) -> str:
        """What labels and verdicts find each other by."""
        return self.request.key

    @property
    def dimension(self) -> str:
        return self.request.dimension


def judged_population(
    world: World,
    agents: Sequence[str] | None = None,
    dimensions: Sequence[str] | None = None,
) -> list[Judgment]:
    """Return the answered judgments of these agents (None: all agents), newest windows first, each once.

    Windows are the evaluated ones, and earlier ones of the same length back to the first message, so that a fresh copy of a
    world with recordings has the same population. Persona and claims are the current ones.

    Raises:
        ConfigError: files of these agents or recordings are not valid, or there are no messages.
    """
    reader = WorldReader(world)
    now = reader.inputs(world.settled(EvaluationRequest(agents=agents, dimensions=dimensions)))
    raise_problems(now.broken)
    past = [
        replace(scope, window=window, past=True)
        for scope in now.agents
        for window in _windows(scope.window, *reader.past_windows(scope.agent_id))
    ]
    inputs = reader.gathered(replace(now, agents=past))
    asked: dict[str, tuple[JudgeRequest, Window]] = {}
    for scope in inputs.agents:
        for item in plan_agent(inputs, scope, EvaluationRequest()).requests:
            asked.setdefault(item.key, (item, scope.window))
    answers = reader.known.on([item for item, _ in asked.values()])
    return [
        Judgment(item, window, verdicts)
        for (item, window), verdicts in zip(asked.values(), answers, strict=True)
        if verdicts
    ]


def _windows(now: Window, known: Iterable[Window], first: datetime | None) -> list[Window]:
    """Return an agent's windows, newest first: evaluated ones (``known``), and earlier ones back to its first message."""
    found = dict.fromkeys([*known, now])
    before = max(found, key=lambda window: window.end).previous()
    while first is not None and before is not None and before.end >= first and len(found) < MOST_WINDOWS:
        found[before] = None
        before = before.previous()
    return sorted(found, key=lambda window: window.end, reverse=True)[:MOST_WINDOWS]


def world_labels(world: World) -> tuple[list[Label], dict[tuple[str, str], str]]:
    """Return the labels in a world's folder, and why some are stale, by identity."""
    labels = load_labels(world.root / LABELS)
    if not labels:
        return [], {}
    return labels, stale_reasons(labels, _asked(world, labels), is_judged=WorldReader(world).known.knows)


def calibrate_world(world: World, dimensions: Sequence[str] | None = None) -> Calibration:
    """Return each judge's agreement with people, without any call."""
    chosen = select_dimensions(dimensions)
    labels = [label for label in load_labels(world.root / LABELS) if label.dimension in chosen]
    known, asked = WorldReader(world).known, _asked(world, labels)
    reasons = stale_reasons(labels, asked, is_judged=known.knows)
    current = [label for label in labels if label.identity not in reasons]
    found = calibrate_dimensions(current, asked, known.on_labels)
    return Calibration(messages=_messages(world), dimensions=found, stale=stale_lines(labels, reasons))


def _asked(world: World, judged: Iterable[Label]) -> AskedOf:
    return asked_now(world.root, ((item.agent_id, item.dimension) for item in judged))


def _messages(world: World) -> list[MessageCalibration]:
    """Return the agreement of each judge's stored verdicts on messages with people's."""
    every = load_message_labels(world.root / LABELS)
    labels = [label for label in every if label.source is MarkSource.PERSON]
    agents = sorted({label.agent_id for label in labels})
    if not agents:
        return []
    said = verdicts_of_people(labels, (message for name in agents for message in world.messages(agent_id=name)))
    people = {message: role for own in said.values() for message, role in own.items()}
    stored = verdicts_of(runs.message_verdict_rows(world.store, agents, until=world.horizon, most=MOST_MESSAGES))
    by_judge = grouped((item for own in stored.values() for item in own), lambda item: item.judged_by)
    names = sorted({label.labeller for label in labels if label.message in people})
    found = []
    for (model, prompt), items in sorted(by_judge.items(), key=str):
        judged = {item.verdict.message: item.verdict.verdict for item in items}
        found.append(calibrate_messages((model or "", prompt or ""), judged, people, names))
    return [item for item in found if item]
