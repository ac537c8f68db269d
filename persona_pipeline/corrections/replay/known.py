"""Which stored messages are known to be good or bad: by a file, else by people's labels, else by when they were sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from persona_pipeline.documents.csv_rows import csv_rows
from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.propositions import PROPOSITIONS, find_proposition_set
from persona_pipeline.propositions.dimensions import ADHERENCE
from persona_pipeline.scoring.results import final_score, weighted_mean
from persona_pipeline.world.models import Message
from persona_pipeline.world.world import World

# From here on people's mean score (0-9) of a message says that it is in character.
GOOD_FROM = 5.0
_WORDS = {"good": True, "bad": False}


@dataclass(frozen=True)
class Known:
    """What is known of messages.

    Attributes:
        marked: by a message's id, from a file.
        labelled: by a message's id, from people's labels.
        good_until, bad_from: messages sent until then, or from then on, which somebody vouches for or gives up.
    """

    marked: Mapping[str, bool] = field(default_factory=dict)
    labelled: Mapping[str, bool] = field(default_factory=dict)
    good_until: datetime | None = None
    bad_from: datetime | None = None

    def is_good(self, message: Message) -> bool | None:
        """Return whether a message is good; None: nothing is known of it."""
        for known in (self.marked, self.labelled):
            if message.id in known:
                return known[message.id]
        if self.good_until is not None and message.created_at <= self.good_until:
            return True
        if self.bad_from is not None and message.created_at >= self.bad_from:
            return False
        return None


def read_marks(path: Path) -> dict[str, bool]:
    """Return what a CSV file with the columns ``id`` and ``good`` or ``bad``, without a head, says of messages.

    Raises:
        ConfigError: the file cannot be read, or a row says something else or contradicts another, each with its place.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(f"cannot be read: {error}", str(path))]) from error
    problems: list[Problem] = []
    found: dict[str, bool] = {}
    for line, cells in csv_rows(text, str(path), problems):
        if not cells:
            continue
        if len(cells) != 2 or cells[1].strip() not in _WORDS:
            problems.append(Problem("a row is not a message's id and 'good' or 'bad'", str(path), line))
        elif found.setdefault(cells[0].strip(), _WORDS[cells[1].strip()]) is not _WORDS[cells[1].strip()]:
            problems.append(Problem(f"message {cells[0].strip()!r} is good and bad", str(path), line))
    if problems:
        raise ConfigError(problems)
    return found


def labelled_messages(world: World, agent_id: str) -> dict[str, bool]:
    """Return what people's labels say of single messages of an agent: of claims judged action by action.

    A message is good whose labels make a score of 5 and more, by the claims' own weights, inversion and hard mode.

    Raises:
        ConfigError: labels, recordings, persona or propositions are not valid.
    """
    from persona_pipeline.calibration.labelled import Rated, ballots
    from persona_pipeline.evaluation.calibrate import judged_population, world_labels

    claims = find_proposition_set(world.root / PROPOSITIONS, ADHERENCE.name, agent_id)
    if claims is None or claims.level != "action":
        return {}
    labels = [item for item in world_labels(world).current if item.is_persons and item.agent_id == agent_id]
    if not labels:
        return {}
    said, by_id = ballots(labels), {item.id: item for item in claims.propositions}
    scores: dict[str, list[tuple[float, float]]] = {}
    for judgment in judged_population(world, [agent_id], [ADHERENCE.name]):
        people = tuple(said[judgment.key].people.values()) if judgment.key in said else ()
        claim = by_id[judgment.request.proposition_id]
        mean = Rated(judgment.key, agent_id, ADHERENCE.name, claim.id, None, people=people).peoples if people else None
        if mean is not None:
            score = final_score(mean, inverted=claim.inverted, hard=claims.hard)
            message = judgment.request.trajectory.entries[-1].message_id
            scores.setdefault(message, []).append((score, claim.weight))
    return {
        message: weighted_mean(pairs) >= GOOD_FROM
        for message, pairs in scores.items()
        if any(weight > 0 for _, weight in pairs)
    }
