"""Whom an evaluation is about and on which windows: bounds that never move again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from persona_pipeline.errors import ConfigError, Problem
from persona_pipeline.evaluation.request import EvaluationRequest, select_agents, select_dimensions
from persona_pipeline.evaluation.syncing import sync_propositions
from persona_pipeline.propositions import PROPOSITIONS
from persona_pipeline.world import World, parse_window
from persona_pipeline.world.evaluated_windows import newest_window, record_window, touched_windows
from persona_pipeline.world.models import Persona, Window

ALL_TIME = "all"


@dataclass(frozen=True)
class AgentScope:
    """One agent, the window it is evaluated on, and the dimensions that are scored.

    Attributes:
        past: the agent was evaluated on a newer window: what is found here is history.
        synthetic: generated conversations are evaluated instead of what it really said.
        persona: as it was just read; None: as the store has it.
    """

    agent_id: str
    window: Window
    dimensions: tuple[str, ...]
    past: bool = False
    synthetic: bool = False
    persona: Persona | None = None


@dataclass(frozen=True)
class Scope:
    """What a request comes to.

    Attributes:
        agents: who is evaluated now; ``earlier``: the windows before that are evaluated too, the oldest first.
        problems: lines of message files that were left out, and messages of the future.
        broken: agents whose files are not valid, with everything wrong with them.
    """

    agents: tuple[AgentScope, ...] = ()
    earlier: tuple[AgentScope, ...] = ()
    problems: tuple[Problem, ...] = ()
    broken: dict[str, tuple[Problem, ...]] = field(default_factory=dict)

    def raise_broken(self) -> None:
        """Raise everything wrong with the agents' files.

        Raises:
            ConfigError: there is something.
        """
        raise_problems(self.broken)


def raise_problems(broken: Mapping[str, Sequence[Problem]]) -> None:
    """Raise what is wrong with some agents, if anything is; a default file's problem is every agent's and said once.

    Raises:
        ConfigError: there is something.
    """
    problems = dict.fromkeys(problem for found in broken.values() for problem in found)
    if problems:
        raise ConfigError(list(problems))


def resolve_scope(world: World, request: EvaluationRequest) -> Scope:
    """Bring the agents' files and all messages into the store and fix the windows.

    Raises:
        ConfigError: the request is not valid, or there is no message. What is wrong with one agent's files is in ``broken``.
    """
    agent_ids = select_agents(world, request.agents)
    dimensions = select_dimensions(request.dimensions)
    if not dimensions and not request.newest_window:
        raise ConfigError("no dimensions are named; leave --dimensions out for all of them")
    synced, broken = _sync(world, agent_ids, dimensions, named=request.dimensions is not None)
    problems = world.sync_messages().problems
    span = None if request.newest_window else request_window(world, request)
    scopes = []
    for agent_id, persona in synced.items():
        newest = newest_window(world.store, agent_id, now=world.horizon)
        window = span or newest
        if window is None:
            broken[agent_id] = (Problem(f"agent {agent_id!r} has no message window; materialize its messages first"),)
            continue
        past = newest is not None and window.end < newest.end
        scopes.append(AgentScope(agent_id, window, tuple(dimensions), past, persona=persona))
    earlier = (*_earlier(world, request, scopes), *_touched(world, request, scopes))
    return Scope(tuple(scopes), earlier, tuple(problems), broken)


def open_scope(world: World, agent_id: str, request: EvaluationRequest) -> AgentScope:
    """Fix the window of one agent and keep it: the steps that follow score its newest window.

    Raises:
        ConfigError: the request or the agent's persona is not valid, or there is no message.
    """
    world.persona(agent_id)
    window = request_window(world, request)
    newest = newest_window(world.store, agent_id, now=world.horizon)
    if newest is not None and window.end < newest.end:
        return AgentScope(agent_id, window, tuple(select_dimensions(request.dimensions)), past=True)
    with world.store.begin() as connection:
        record_window(world.store, connection, agent_id, window)
    return AgentScope(agent_id, window, tuple(select_dimensions(request.dimensions)))


def stored_scope(world: World, agent_id: str, dimensions: Sequence[str], window: Window | None = None) -> AgentScope:
    """Return an agent's scope on a window of its own, by default the newest it was evaluated on.

    Raises:
        ConfigError: it has none.
    """
    newest = newest_window(world.store, agent_id, now=world.horizon)
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


def _sync(
    world: World, agent_ids: Iterable[str], dimensions: Sequence[str], *, named: bool
) -> tuple[dict[str, Persona], dict[str, tuple[Problem, ...]]]:
    """Return the personas whose files are in the store now, and what is wrong with the others'."""
    synced, broken, names = {}, {}, world.names()
    for agent_id in agent_ids:
        problems: list[Problem] = []
        try:
            persona = world.sync_persona(agent_id, names)
        except ConfigError as error:
            broken[agent_id] = error.problems
            continue
        for dimension in dimensions:
            try:
                stored = sync_propositions(world, agent_id, dimension)
            except ConfigError as error:
                problems += error.problems
                continue
            if named and stored.propositions is None:
                folder = f"{PROPOSITIONS}/{dimension}"
                problems.append(
                    Problem(
                        f"{agent_id} has no {dimension} propositions; write {folder}/_default.yaml or "
                        f"{folder}/{agent_id}.yaml, or leave the dimension out"
                    )
                )
        if problems:
            broken[agent_id] = tuple(problems)
        else:
            synced[agent_id] = persona
    return synced, broken


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
        if any(world.messages(window) for window in set(windows.values())):
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
