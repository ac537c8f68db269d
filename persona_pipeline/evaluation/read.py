"""Reading a world: its files brought into the store, the windows fixed, and all an evaluation needs gathered into a snapshot.

Nobody else reads for an evaluation. What concerns many agents is read for all of them at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from persona_pipeline.base.database.engine import exclusive
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.evaluation.decide import Guard, guard_of
from persona_pipeline.evaluation.history import points_of
from persona_pipeline.evaluation.plan import history_of
from persona_pipeline.evaluation.request import EvaluationRequest, select_agents, select_dimensions
from persona_pipeline.evaluation.snapshot import AgentScope, Snapshot
from persona_pipeline.evaluation.voice import voice_findings, voice_state
from persona_pipeline.guard.baselines.golden import find_baseline, watched_agents
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.baselines.statistics import MOST_TOGETHER
from persona_pipeline.guard.calibration.judge_change import load_judge_changes
from persona_pipeline.guard.calibration.known import peoples_labels
from persona_pipeline.guard.gate import GateRules
from persona_pipeline.guard.report import Finding
from persona_pipeline.guard.trust import Trust
from persona_pipeline.judging.cache import unable_judges
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.scoring.voice_alarm.storing import stored_voices
from persona_pipeline.world.messages.log import MessageLog, folder_messages
from persona_pipeline.world.messages.store import newest_message_time, read_messages, read_talk
from persona_pipeline.world.models import Window, parse_window
from persona_pipeline.world.names import read_names
from persona_pipeline.world.propositions.dimensions import ALL_DIMENSIONS
from persona_pipeline.world.propositions.loading import (
    PROPOSITIONS,
    StoredSet,
    find_proposition_set,
    store_proposition_sets,
    stored_sets,
)
from persona_pipeline.world.runs import newest_p_values, newest_windows, record_windows, results_on, touched_windows
from persona_pipeline.world.speakers import NameMatch, missing_agents, stored_names
from persona_pipeline.world.world import FUTURE_GRACE, World, utc_now

ALL_TIME = "all"


@contextmanager
def reading(world: World, request: EvaluationRequest) -> Iterator[Snapshot]:
    """Give everything an evaluation needs. Until it is done no other evaluation of these agents runs, on whatever host.

    Raises:
        ConfigError: the request is not valid, or there is no message. What is wrong with one agent's files is in ``broken``.
    """
    with exclusive(world.store, [f"evaluate/{agent_id}" for agent_id in select_agents(world, request.agents)]):
        yield read_rules(world, read_questions(world, request), request)


@contextmanager
def reading_stored(world: World, scope: AgentScope, request: EvaluationRequest) -> Iterator[Snapshot]:
    """Like ``reading`` of one agent on a window of its own, as the store has it: no file of it is read but its baseline."""
    with exclusive(world.store, [f"evaluate/{scope.agent_id}"]):
        yield read_rules(world, read_scopes(world, Snapshot(agents=[scope])), request)


def read_questions(world: World, request: EvaluationRequest) -> Snapshot:
    """Bring the agents' files and all messages into the store, fix the windows, and read what questions are made of.

    Raises:
        ConfigError: see ``reading``.
    """
    agent_ids, dimensions = select_agents(world, request.agents), select_dimensions(request.dimensions)
    if not dimensions and not request.newest_window:
        raise ConfigError("no dimensions are named; leave --dimensions out for all of them")
    personas, broken = world.sync_personas(agent_ids)
    claims, wrong = _read_claims(world.root, personas, dimensions, named=request.dimensions is not None)
    broken |= wrong
    store_proposition_sets(world.store, {(a, name): item for a, own in claims.items() for name, item in own.items()})
    problems = world.sync_messages().problems
    span = None if request.newest_window else request_window(world, request)
    newest = newest_windows(world.store, agent_ids, now=world.horizon)
    scopes = []
    for agent_id in (name for name in agent_ids if name in personas and name not in broken):
        window, last = span or newest.get(agent_id), newest.get(agent_id)
        if window is None:
            broken[agent_id] = (Problem(f"agent {agent_id!r} has no message window; materialize its messages first"),)
            continue
        past = last is not None and window.end < last.end
        scopes.append(AgentScope(agent_id, window, tuple(dimensions), past, persona=personas[agent_id]))
    earlier = (*_earlier(world, request, scopes), *_touched(world, request, scopes))
    snapshot = Snapshot(scopes, earlier, problems, broken, claims=claims, fresh=_fresh(world.root, request, scopes))
    return read_scopes(world, snapshot)


def read_scopes(world: World, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with what the questions of its scopes are made of: personas, claims, messages and baselines.

    Raises:
        ConfigError: a lexicon is not valid.
    """
    scopes = [*snapshot.agents, *snapshot.earlier]
    agent_ids = {scope.agent_id for scope in scopes}
    read_at, horizon = world.clock(), world.horizon
    known = {name for own in snapshot.claims.values() for name in own}
    stored = stored_sets(world.store, agent_ids, known if agent_ids <= snapshot.claims.keys() else ())
    baselines, broken = _read_baselines(world.rules_root, agent_ids)
    unread = {scope.agent_id for scope in scopes if scope.persona is None}
    personas = world.stored_personas(unread) if unread else {}

    def whole(scope: AgentScope) -> AgentScope:
        return replace(scope, persona=scope.persona or personas.get(scope.agent_id))

    spans = [history_of(scope.window) for scope in scopes if not scope.synthetic]
    said = [m for span in _merged(spans, horizon) for m in read_talk(world.store, span, agent_ids)]
    made_up = [scope.window for scope in scopes if scope.synthetic]
    return replace(
        snapshot,
        agents=[whole(scope) for scope in snapshot.agents if scope.agent_id not in broken],
        earlier=[whole(scope) for scope in snapshot.earlier if scope.agent_id not in broken],
        broken={**snapshot.broken, **broken},
        read_at=read_at,
        claims={name: {**stored.get(name, {}), **snapshot.claims.get(name, {})} for name in agent_ids},
        messages=MessageLog.of(said),
        generated=MessageLog.of(
            m for span in _merged(made_up, horizon) for m in read_messages(world.store, span, synthetic=True)
        ),
        names=world.display_names(),
        lexicon=world_lexicon(world.rules_root),
        baselines=baselines,
    )


def read_rules(world: World, snapshot: Snapshot, request: EvaluationRequest) -> Snapshot:
    """Return a snapshot with what decides: whom else is watched, what is known of judges, earlier runs and voices.

    Raises:
        ConfigError: labels, recordings, or the file of judge changes are not valid.
    """
    scopes = [*snapshot.agents, *snapshot.earlier]
    agent_ids = {scope.agent_id for scope in scopes}
    watched = watched_agents(world.rules_root)
    # Learning takes a second an agent: done here only for who wants to fail on it.
    learn = "voice_alarm" in (request.fail_on or ())
    return replace(
        snapshot,
        watched=watched,
        p_values=newest_p_values(world.store) if watched.count > MOST_TOGETHER else {},
        trust=read_trust(world),
        results=results_on(world.store, agent_ids, {scope.window.end for scope in scopes}),
        points=points_of(world.store, {*agent_ids, *watched.baselines}),
        voices=_read_voices(world, snapshot.agents, learn=learn),
        missing=missing_agents(world.root, world.rules_root),
        speakers=read_names_of(world, request),
    )


def read_names_of(world: World, request: EvaluationRequest) -> NameMatch:
    """Return how speakers and personas go together, as far as it concerns the agents that are asked for."""
    match = stored_names(world)
    return match if request.agents is None else match.of(request.agents)


def read_baselines(world: World, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the golden files as they are now.

    Raises:
        ConfigError: one is not valid.
    """
    baselines, broken = _read_baselines(
        world.rules_root, snapshot.baselines.keys() | {s.agent_id for s in snapshot.agents}
    )
    found = replace(snapshot, baselines=baselines, watched=watched_agents(world.rules_root), broken=broken)
    found.raise_broken()
    return found


def read_guard(world: World, rules: GateRules) -> Guard:
    """Return by what a fall in a world is told from chance.

    Raises:
        ConfigError: labels, recordings, or the file of judge changes are not valid.
    """
    return guard_of(read_rules(world, Snapshot(), EvaluationRequest()), rules)


def read_trust(world: World) -> Trust:
    """Return what a world knows of judges.

    Raises:
        ConfigError: labels, recordings, or the file of judge changes are not valid.
    """
    return Trust(peoples_labels(world), load_judge_changes(world.rules_root), unable_judges(world.store))


def read_folder(root: Path, now: datetime | None = None) -> Snapshot:
    """Return what a world's folder says without a store, as of a moment (None: now): messages, names and lexicon.

    Raises:
        ConfigError: a lexicon is not valid.
    """
    names = read_names(root)
    log = folder_messages(root, names, until=(now or utc_now()) + FUTURE_GRACE)
    return Snapshot(
        messages=MessageLog(tuple(message for message in log.messages if not message.synthetic)),
        generated=MessageLog(tuple(message for message in log.messages if message.synthetic)),
        names={agent_id: item.display_name or agent_id for agent_id, item in names.items()},
        lexicon=world_lexicon(root),
    )


def open_scope(world: World, agent_id: str, request: EvaluationRequest) -> AgentScope:
    """Fix the window of one agent and keep it: the steps that follow score its newest window.

    Raises:
        ConfigError: the request or the agent's persona is not valid, or there is no message.
    """
    world.persona(agent_id)
    window = request_window(world, request)
    newest = newest_windows(world.store, [agent_id], now=world.horizon).get(agent_id)
    if newest is not None and window.end < newest.end:
        return AgentScope(agent_id, window, tuple(select_dimensions(request.dimensions)), past=True)
    with world.store.begin() as connection:
        record_windows(world.store, connection, [(agent_id, window, None)])
    return AgentScope(agent_id, window, tuple(select_dimensions(request.dimensions)))


def stored_scope(world: World, agent_id: str, dimensions: Sequence[str], window: Window | None = None) -> AgentScope:
    """Return an agent's scope on a window of its own, by default the newest it was evaluated on.

    Raises:
        ConfigError: it has none.
    """
    newest = newest_windows(world.store, [agent_id], now=world.horizon).get(agent_id)
    found = window or newest
    if found is None:
        raise ConfigError(f"agent {agent_id!r} has no message window; materialize its messages first")
    return AgentScope(agent_id, found, tuple(dimensions), past=newest is not None and found.end < newest.end)


def resolve_window(world: World, window: str, as_of: datetime | None) -> Window:
    """Return the window that ends at ``as_of`` (default: the newest message in the store that is not in the future).

    Raises:
        ConfigError: ``window`` is neither ``all`` nor a length of time, ``as_of`` has no offset, or there is no message.
    """
    length = None if window == ALL_TIME else parse_window(window)
    if as_of is not None and as_of.tzinfo is None:
        raise ConfigError(f"as-of {as_of.isoformat()} has no offset; add Z or +02:00")
    end = as_of or world.newest_message_time()
    if end is None:
        raise ConfigError("there are no messages; put them into messages/ or run persona-pipeline ingest FILE")
    try:
        return Window.ending(end, length)
    except OverflowError as error:
        raise ConfigError(f"window {window!r} reaches before year 1; shorten it or use 'all'") from error


def request_window(world: World, request: EvaluationRequest) -> Window:
    """Return the window a request asks for; see ``resolve_window``.

    Raises:
        ConfigError: there is no such window.
    """
    window = resolve_window(world, request.window, request.as_of)
    if request.since is None:
        return window
    if request.since >= window.end:
        raise ConfigError(f"since {request.since.isoformat()} is not before the window's end {window.end.isoformat()}")
    return replace(window, start=request.since)


def proposition_set(root: Path, agent_id: str, dimension: str) -> StoredSet:
    """Return one agent's set of a dimension as it stands in a world's folder.

    Raises:
        ConfigError: a file is not valid.
    """
    found = find_proposition_set(root / PROPOSITIONS, dimension, agent_id)
    return StoredSet.of(found if found is not None and found.propositions else None)


def sync_propositions(world: World, agent_id: str, dimension: str) -> StoredSet:
    """Bring one agent's set of a dimension into the store and return it.

    Raises:
        ConfigError: a file is not valid.
    """
    found = proposition_set(world.root, agent_id, dimension)
    store_proposition_sets(world.store, {(agent_id, dimension): found})
    return found


def _read_claims(
    root: Path, agent_ids: Iterable[str], dimensions: Sequence[str], *, named: bool
) -> tuple[dict[str, dict[str, StoredSet]], dict[str, tuple[Problem, ...]]]:
    """Return the claims of agents by dimension, as far as they are valid, and what is wrong with the others'."""
    claims: dict[str, dict[str, StoredSet]] = {}
    broken: dict[str, tuple[Problem, ...]] = {}
    for agent_id in agent_ids:
        problems: list[Problem] = []
        own = claims.setdefault(agent_id, {})
        for dimension in dimensions:
            try:
                own[dimension] = proposition_set(root, agent_id, dimension)
            except ConfigError as error:
                problems += error.problems
                continue
            if named and own[dimension].propositions is None:
                folder = f"{PROPOSITIONS}/{dimension}"
                problems.append(
                    Problem(
                        f"{agent_id} has no {dimension} propositions; write {folder}/_default.yaml or "
                        f"{folder}/{agent_id}.yaml, or leave the dimension out"
                    )
                )
        if problems:
            broken[agent_id] = tuple(problems)
    return claims, broken


def _fresh(
    root: Path, request: EvaluationRequest, scopes: Sequence[AgentScope]
) -> dict[str, tuple[Mapping[str, StoredSet], tuple[Problem, ...]]]:
    if not request.newest_window:
        return {}
    agent_ids = [scope.agent_id for scope in scopes]
    claims, broken = _read_claims(root, agent_ids, ALL_DIMENSIONS, named=False)
    return {agent_id: (claims[agent_id], broken.get(agent_id, ())) for agent_id in agent_ids}


def _read_baselines(root: Path, agent_ids: Iterable[str]) -> tuple[dict[str, Baseline], dict[str, tuple[Problem, ...]]]:
    found: dict[str, Baseline] = {}
    broken: dict[str, tuple[Problem, ...]] = {}
    for agent_id in sorted(agent_ids):
        try:
            baseline = find_baseline(root, agent_id)
        except ConfigError as error:
            broken[agent_id] = error.problems
            continue
        if baseline is not None:
            found[agent_id] = baseline
    return found, broken


def _read_voices(world: World, scopes: Sequence[AgentScope], *, learn: bool) -> dict[str, list[Finding]]:
    known, found = stored_voices(world.store, {scope.agent_id for scope in scopes}), {}
    for scope in scopes:
        voice = known.get(scope.agent_id)
        same = scope.persona is None or voice is None or voice.persona_hash == scope.persona.hash
        # What was never learnt raises no alarm.
        if scope.past or scope.synthetic or (not learn and same and (voice is None or voice.model is None)):
            continue
        found[scope.agent_id] = voice_findings(voice_state(world, scope.agent_id, scope.window, learn=learn))
    return found


def _merged(windows: Iterable[Window], until: datetime) -> list[Window]:
    """Return the spans of time that windows cover, none of it in the future, each moment once."""
    found: list[Window] = []
    for window in sorted(windows, key=lambda item: (item.start is not None, item.start or item.end)):
        window = replace(window, end=min(window.end, until))
        last = found[-1] if found else None
        if last is not None and (window.start is None or window.start <= last.end):
            found[-1] = replace(last, end=max(last.end, window.end))
        else:
            found.append(window)
    return found


def _earlier(world: World, request: EvaluationRequest, scopes: Sequence[AgentScope]) -> list[AgentScope]:
    """Return the windows before that ``history`` or a baseline asks for; a window nobody spoke in is left out."""
    windows_back = max(request.history, request.baseline_windows - 1)
    if not windows_back:
        return []
    if request.window == ALL_TIME:
        raise ConfigError("windows before need a window of some length; write --window 7d")
    length = parse_window(request.window)
    found = []
    for back in range(windows_back, 0, -1):
        windows = {scope.agent_id: Window.ending(scope.window.end - length * back, length) for scope in scopes}
        if any(_is_spoken_in(world, window) for window in set(windows.values())):
            found += [replace(scope, window=windows[scope.agent_id], past=True) for scope in scopes]
    return found


def _touched(world: World, request: EvaluationRequest, scopes: Sequence[AgentScope]) -> list[AgentScope]:
    if not request.touched:
        return []
    now = {scope.agent_id: scope for scope in scopes}
    return [
        replace(now[agent_id], window=window, past=True)
        for agent_id, window in touched_windows(world.store, list(now))
        if window != now[agent_id].window
    ]


def _is_spoken_in(world: World, window: Window) -> bool:
    newest = newest_message_time(world.store, until=min(window.end, world.horizon))
    return newest is not None and newest in window
