"""Agreement of judges with people."""

from collections.abc import Sequence

from persona_pipeline.evaluation.history import verdicts_of
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.guard.calibration import (
    Calibration,
    MessageCalibration,
    calibrate_dimensions,
    calibrate_messages,
)
from persona_pipeline.guard.labels.files import LABELS, current_labels, labelled_claims, load_labels
from persona_pipeline.guard.labels.messages import MarkSource, load_message_labels, verdicts_of_people
from persona_pipeline.scoring.messages.verdicts import MOST_MESSAGES
from persona_pipeline.world import runs
from persona_pipeline.world.models import grouped
from persona_pipeline.world.propositions.models import select_dimensions
from persona_pipeline.world.world import World


def calibrate_world(world: World, dimensions: Sequence[str] | None = None) -> Calibration:
    """Return each judge's agreement with people, without any call."""
    chosen = select_dimensions(dimensions)
    labels = [label for label in load_labels(world.root / LABELS) if label.dimension in chosen]
    known, claims = WorldReader(world).known, labelled_claims(world.root, labels)
    current = current_labels(labels, claims)
    found = calibrate_dimensions(current, claims, known.on_labels)
    return Calibration(messages=_messages(world), dimensions=found, unused=len(labels) - len(current))


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
