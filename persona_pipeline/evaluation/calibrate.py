"""What shows whether a judge can be believed: which judgments people can make too, how far it agrees with them, whether it changed
when the same is judged again, and whether it reads what it judges.

Not to be confused with the layer of canaries in ``judging``, which catches a judge that obeys what it reads.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice, zip_longest

from persona_pipeline.base.calls import run_async
from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import ConfigError, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.folder import FolderReader
from persona_pipeline.evaluation.plan import plan_agent
from persona_pipeline.evaluation.read import WorldReader
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline
from persona_pipeline.guard.calibration.calibrate import (
    Calibration,
    Rated,
    Usable,
    calibrate_dimension,
    inverted_claims,
    rated_by_judge,
    scores_of_people,
    usable,
)
from persona_pipeline.guard.calibration.judge_change import ANCHORS, Anchor, JudgeChange, JudgeName, judge_change
from persona_pipeline.guard.calibration.known import KnownVerdicts
from persona_pipeline.guard.calibration.reading import (
    DIMENSION,
    FEWEST_TRANSCRIPTS,
    MOST_TRANSCRIPTS,
    JudgedTranscript,
    ReadingTest,
)
from persona_pipeline.guard.labels.files import LABELS, AskedOf, Label, load_labels, stale_reasons
from persona_pipeline.judging.verdict import Judge, JudgeRequest, Usage, Verdict
from persona_pipeline.scoring.plan import JudgingContext, plan_judgments
from persona_pipeline.scoring.results import add_usage
from persona_pipeline.world.messages.store import read_messages, speaker_counts
from persona_pipeline.world.models import Entry, Message, Persona, Trajectory, Window, grouped
from persona_pipeline.world.propositions.loading import PROPOSITIONS, StoredSet, own_claims
from persona_pipeline.world.propositions.models import (
    Proposition,
    PropositionSet,
    select_dimensions,
    template_variables,
)
from persona_pipeline.world.world import World

# Windows of an agent that are looked at, the newest first.
MOST_WINDOWS = 26
# Judgments of a claim that are made again to see whether the judge has changed.
OF_A_CLAIM = 4


@dataclass(frozen=True)
class Judgment:
    """One judged claim: what was shown and asked, and what judges said.

    ``request``: with claim, transcript and the persona that was shown (None: none was); of the first sample. ``window``: the
    newest window it is part of. ``verdicts``: every answer to it and its repeats, of any judge; never empty.
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

    @property
    def judged(self) -> tuple[str, str, str, str, Sequence[Verdict]]:
        """Key, agent, dimension and claim's id, with every verdict on it."""
        asked = self.request
        return self.key, asked.agent_id, asked.dimension, asked.proposition_id, self.verdicts


def judged_population(
    world: World,
    agents: Sequence[str] | None = None,
    dimensions: Sequence[str] | None = None,
    known: KnownVerdicts | None = None,
) -> list[Judgment]:
    """Return every judgment of these agents (None: everybody) that a judge has answered, newest windows first, each once.

    Windows are those the agents were evaluated on, and those of the same length before the newest as far back as anybody spoke, so
    that a fresh copy of a world with recordings has the same population. Persona and claims are those of now.

    Args:
        known: the world's verdicts, where they are read already.

    Raises:
        ConfigError: files of these agents or recordings are not valid, or there is no message.
    """
    reader = WorldReader(world)
    now = reader.questions(world.settled(EvaluationRequest(agents=agents, dimensions=dimensions)))
    raise_problems(now.broken)
    past = [
        replace(scope, window=window, past=True)
        for scope in now.agents
        for window in _windows(scope.window, *reader.past_windows(scope.agent_id))
    ]
    snapshot = reader.scopes(replace(now, agents=past))
    asked: dict[str, tuple[JudgeRequest, Window]] = {}
    for scope in snapshot.agents:
        for item in plan_agent(snapshot, scope, EvaluationRequest()).requests:
            asked.setdefault(item.key, (item, scope.window))
    answers = (known or reader.known).on([item for item, _ in asked.values()])
    return [
        Judgment(item, window, verdicts)
        for (item, window), verdicts in zip(asked.values(), answers, strict=True)
        if verdicts
    ]


def _windows(now: Window, known: Iterable[Window], first: datetime | None) -> list[Window]:
    """Return an agent's windows, the newest first: those it was evaluated on (``known``), and older ones since it spoke first."""
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
    """Return how far each judge can be believed on each dimension; nobody is asked."""
    chosen = select_dimensions(dimensions)
    labels = [label for label in load_labels(world.root / LABELS) if label.dimension in chosen]
    known, asked = WorldReader(world).known, _asked(world, labels)
    used = usable(labels, asked, is_judged=known.knows)
    population = judged_population(world, dimensions=dimensions, known=known)
    rated = _rated(world, population, used)
    # What was labelled and lies farther back than the windows that are looked at.
    for judge, own in known.rated(used, asked).items():
        held = {item.key for item in rated.get(judge, ())}
        rated.setdefault(judge, []).extend(item for item in own if item.key not in held)
    labels = grouped((label for label in used.labels if label.is_persons), lambda label: label.dimension)
    people = {dimension: sorted({label.labeller for label in own}) for dimension, own in labels.items()}
    return Calibration(
        dimensions=[
            calibrate_dimension(judge, name, found[name], people=people.get(name, ()))
            for judge, items in sorted(rated.items())
            for found in [grouped(items, lambda item: item.dimension)]
            for name in chosen
            if name in found
        ],
        stale=list(used.stale),
    )


def _asked(world: World, judged: Iterable[Label | JudgeRequest]) -> AskedOf:
    return FolderReader(world.root).asked((item.agent_id, item.dimension) for item in judged)


def _rated(world: World, population: Sequence[Judgment], used: Usable) -> dict[tuple[str, str], list[Rated]]:
    inverted = inverted_claims(_asked(world, (item.request for item in population)))
    return rated_by_judge([item.judged for item in population], scores_of_people(used.labels), inverted)


@dataclass(frozen=True)
class Canary:
    """What is asked again to compare a judge with an earlier one, and how that one and people rated it, one a request."""

    before: JudgeName
    requests: Sequence[JudgeRequest]
    rated: Sequence[Rated]

    @property
    def labelled(self) -> int:
        """How many of them people labelled."""
        return sum(item.peoples is not None for item in self.rated)


@dataclass(frozen=True)
class CanaryResult:
    """What came of it. ``failed``: judgments that were not made; ``usage``: what was paid."""

    change: JudgeChange
    failed: int
    usage: Usage


def plan_canaries(world: World, now: JudgeName, *, before: str | None = None, anchors: int = ANCHORS) -> list[Canary]:
    """Return what is asked again, for every earlier judge of a baseline that is not the judge of now; nothing is asked yet.

    Judgments that people labelled come first, then those that are only recorded; evenly by dimension, some of each claim that is
    taken, and the same ones every time. ``before`` is the model of the earlier judge; None: those of the baselines.
    ``ConfigError``: files of the world are not valid, or no judgment of ``before`` is known.
    """
    verdicts, labels = WorldReader(world).known, load_labels(world.root / LABELS)
    population = judged_population(world, known=verdicts)
    used = usable(labels, _asked(world, labels), is_judged=verdicts.knows)
    by_judge = {
        JudgeName(model=model, prompt_version=prompt): items
        for (model, prompt), items in _rated(world, population, used).items()
    }
    golden = filter(None, (find_baseline(world.root / BASELINES, agent_id) for agent_id in world.agent_ids()))
    taken = (item for one in golden for item in one.provenance.get("dimensions", {}).values())
    named = ((item.get("judge_model"), item.get("prompt_version")) for item in taken)
    wanted = {JudgeName(model=model, prompt_version=prompt) for model, prompt in named if model and prompt}
    if before is not None:
        wanted = {judge for judge in by_judge if judge.model == before}
    if before is not None and not wanted:
        known = ", ".join(sorted({judge.model for judge in by_judge})) or "none"
        raise ConfigError(f"no judgment of {before!r} is known; those that are known were made by: {known}")
    return [
        _canary(judge, by_judge.get(judge, []), population, anchors)
        for judge in sorted(wanted, key=str)
        if judge != now
    ]


def run_canary(canary: Canary, judge: Judge) -> CanaryResult:
    """Ask the judge of now, and return how it differs from the earlier one; ``ConfigError``: nothing was asked or answered."""
    if not canary.requests:
        raise ConfigError(
            f"no judgment of {canary.before} is known any more; take the baseline anew with `persona-pipeline baseline`"
        )
    verdicts = run_async(judge.judge(list(canary.requests)))
    answered = [verdict for verdict in verdicts if verdict.unscored is None or verdict.unscored.is_answer]
    if not answered:
        raise ConfigError(f"none of the {len(verdicts)} judgments was made: {verdicts[0].detail}")
    moment = rfc3339(datetime.now(UTC))
    anchors = [
        Anchor(
            item.dimension,
            item.oriented(item.judge),
            item.oriented(verdict.score),
            None if item.peoples is None else item.oriented(item.peoples),
            item.proposition_id,
        )
        for item, verdict in zip(canary.rated, verdicts, strict=True)
        if item.judge is not None and verdict.score is not None
    ]
    change = judge_change(canary.before, _name(answered), anchors, ran_at=moment)
    return CanaryResult(change, len(verdicts) - len(answered), add_usage(verdict.usage for verdict in verdicts))


def _canary(judge: JudgeName, rated: Sequence[Rated], population: Sequence[Judgment], anchors: int) -> Canary:
    requests = {item.key: item.request for item in population}
    by_dimension = grouped((item for item in rated if item.judge is not None), lambda item: item.dimension)
    for name, own in by_dimension.items():
        own.sort(key=lambda item: item.key)
        random.Random(name).shuffle(own)
        labelled = [item for item in own if item.peoples is not None]
        by_dimension[name] = [*_by_claim(labelled), *_by_claim([item for item in own if item.peoples is None])]
    chosen = [item for turn in zip_longest(*by_dimension.values()) for item in turn if item][:anchors]
    return Canary(judge, [requests[item.key] for item in chosen], chosen)


def _by_claim(rated: Sequence[Rated]) -> list[Rated]:
    """Return judgments four of a claim at a time, so that they can be compared within claims."""
    claims = grouped(rated, lambda item: item.proposition_id)
    rounds = range(0, max(map(len, claims.values()), default=0), OF_A_CLAIM)
    return [item for first in rounds for own in claims.values() for item in own[first : first + OF_A_CLAIM]]


def _name(verdicts: Sequence[Verdict]) -> JudgeName:
    named = Counter(JudgeName(model=item.model or "", prompt_version=item.prompt_version or "") for item in verdicts)
    return named.most_common(1)[0][0]


# Messages of a transcript.
LENGTH = 5
MOST_AGENTS = 4
MOST_CLAIMS, FEWEST_OWN_CLAIMS = 5, 2
# Shares of the judgments that must be made.
_COVERAGE = 0.9


@dataclass(frozen=True)
class ReadingPlan:
    """What is asked to find out whether a judge reads.

    Attributes:
        requests: of each transcript in turn.
        transcripts: whose name each is shown under, whether it is that agent's own, and how many requests it has.
        inverted: claims that are good when false, by agent.
        why_not: why nothing can be asked; "" where it can.
    """

    requests: Sequence[JudgeRequest] = ()
    transcripts: Sequence[tuple[str, bool, int]] = ()
    inverted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    why_not: str = ""


def plan_reading(world: World) -> ReadingPlan:
    """Return what is asked: of up to 4 agents up to 20 transcripts of 5 messages of their own and as many of others, the newest.

    Nothing is asked yet. The others are agents, or where there are none whoever else speaks. ``ConfigError``: the world's files are
    not valid.
    """
    world.sync()
    fewest, ids = FEWEST_TRANSCRIPTS * LENGTH, set(world.agent_ids())
    counts = {name: count for name, count in speaker_counts(world.store).items() if count >= fewest}
    speaking = sorted(counts, key=lambda name: (-counts[name], name))
    sets = {name: claims for name in speaking if name in ids and (claims := _telling_claims(world, name))}
    if not sets:
        return ReadingPlan(why_not=f"no agent with {DIMENSION} claims has {fewest} messages")
    agents = [name for name in speaking if name in ids]
    voices = (agents if len(agents) > 1 else speaking)[: MOST_AGENTS + 1]
    if len(voices) < 2:
        return ReadingPlan(why_not=f"{voices[0]} speaks alone: it takes a second voice with {fewest} messages")
    said = {name: _transcripts(world, name) for name in voices}
    found: list[tuple[str, bool, Sequence[JudgeRequest]]] = []
    for agent_id in [name for name in voices if name in sets][:MOST_AGENTS]:
        # In turn, so that no rival stands for all.
        turns = zip_longest(*(own for name, own in said.items() if name != agent_id))
        others = [item for item in chain.from_iterable(turns) if item][: len(said[agent_id])]
        for own, shown in ((True, said[agent_id]), (False, others)):
            found += [(agent_id, own, _shown_as(world.persona(agent_id), sets[agent_id], item)) for item in shown]
    return ReadingPlan(
        [request for *_, requests in found for request in requests],
        [(agent_id, own, len(requests)) for agent_id, own, requests in found],
        {name: frozenset(item.id for item in own.propositions if item.inverted) for name, own in sets.items()},
    )


def run_reading(plan: ReadingPlan, judge: Judge, *, now: datetime | None = None) -> ReadingTest:
    """Ask the judge, and return what it gave to whose messages; ``ConfigError``: less than nine tenths of them were judged."""
    verdicts = run_async(judge.judge(list(plan.requests)))
    made = [verdict for verdict in verdicts if not verdict.has_failed]
    if not made or len(made) < _COVERAGE * len(verdicts):
        failed = next(verdict for verdict in verdicts if verdict.has_failed)
        raise ConfigError(
            f"{len(made)} of {len(verdicts)} judgments were made, too few to tell whether the judge reads; {failed.detail}"
        )
    answers, transcripts = iter(zip(plan.requests, verdicts, strict=True)), []
    for agent_id, own, count in plan.transcripts:
        scores, inverted = dict[str, int](), dict[str, int]()
        for request, verdict in islice(answers, count):
            if verdict.score is not None:
                turned = request.proposition_id in plan.inverted[agent_id]
                (inverted if turned else scores)[request.key] = verdict.score
        transcripts.append(JudgedTranscript(agent_id=agent_id, own=own, scores=scores, inverted=inverted))
    return ReadingTest(judge=_name(made), transcripts=transcripts, ran_at=rfc3339(now or datetime.now(UTC)))


def _transcripts(world: World, agent_id: str) -> list[list[Message]]:
    """Return the newest messages of a speaker, so many in a row each, oldest first."""
    newest = read_messages(world.store, Window(world.horizon), agent_id=agent_id, limit=MOST_TRANSCRIPTS * LENGTH)
    return [newest[at : at + LENGTH] for at in range(len(newest) % LENGTH, len(newest), LENGTH)]


def _telling_claims(world: World, agent_id: str) -> PropositionSet | None:
    """Return the claims by which an agent is told from others: its own file's, those of all where that has too few."""
    stored = StoredSet.read(world.root / PROPOSITIONS, DIMENSION, agent_id).propositions
    if stored is None:
        return None
    own = own_claims(world.root / PROPOSITIONS, DIMENSION, agent_id)

    def order(item: Proposition) -> tuple[bool, float]:
        return item.id not in own, -item.weight

    # What a claim says of a channel or a recipient is not so of messages shown elsewhere.
    fitting = [item for item in stored.propositions if set(template_variables(item.claim)) <= {"agent_name"}]
    enough = len(own) >= FEWEST_OWN_CLAIMS
    chosen = sorted((item for item in fitting if item.id in own or not enough), key=order)[:MOST_CLAIMS]
    return replace(stored, propositions=tuple(chosen)) if chosen else None


def _shown_as(persona: Persona, claims: PropositionSet, messages: Sequence[Message]) -> Sequence[JudgeRequest]:
    # Where and to whom it was said would tell whose it is.
    entries = tuple(Entry(persona.display_name, message.text, message.id) for message in messages)
    context = JudgingContext(Trajectory(entries), {"agent_name": persona.display_name})
    return plan_judgments(claims, [context], agent_id=persona.agent_id, persona=persona.persona).requests
