"""Read a world for an evaluation: bring its files into the store, fix the windows, and gather a snapshot.

No other module reads for an evaluation. Data of many agents is read for all of them at once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from persona_pipeline.base.database.engine import exclusive
from persona_pipeline.base.errors import ConfigError, NothingError, Problem, raise_problems
from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.base.settings import Settings
from persona_pipeline.evaluation.history import (
    OUTLINE,
    StoredVerdict,
    by_need,
    outlines,
    points_of,
    saved_run,
    verdicts_of,
)
from persona_pipeline.evaluation.plan import history_of, refused
from persona_pipeline.evaluation.snapshot import AgentScope, Inputs, Reference, Signals, Snapshot
from persona_pipeline.evaluation.voice import (
    VoiceState,
    followed,
    messages_to_follow,
    voice_at,
    voice_findings,
)
from persona_pipeline.guard.anchors import FILE as ANCHORS_FILE
from persona_pipeline.guard.anchors import AnchoredAgent, load_anchors
from persona_pipeline.guard.baselines.golden import BASELINES, find_baseline, watched_agents, windows_taken
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.drawing import MOST_AGENTS, draw_anchors
from persona_pipeline.guard.gate import counted
from persona_pipeline.guard.known_drift import KnownDrift, drift_path, load_drift
from persona_pipeline.guard.labels.files import LABELS, load_labels
from persona_pipeline.guard.labels.messages import MarkSource, load_message_labels, verdicts_of_people
from persona_pipeline.guard.report import AgentReport
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.open import RECORDINGS
from persona_pipeline.judging.recordings.known import KnownVerdicts
from persona_pipeline.judging.verdict import Judge
from persona_pipeline.scoring.facts.known import load_canon
from persona_pipeline.scoring.messages.reading import Character, character_of
from persona_pipeline.scoring.messages.verdicts import MOST_MESSAGES, Role
from persona_pipeline.scoring.style.likeness import FEWEST_BEFORE, FEWEST_NOW, MOST_VOICES, VoiceFinding, fleet_likeness
from persona_pipeline.scoring.style.model import everyday
from persona_pipeline.scoring.style.monitor import (
    stored_voices,
)
from persona_pipeline.scoring.text.agreement import world_lexicon
from persona_pipeline.world import runs
from persona_pipeline.world.messages.revision import aged_out_before
from persona_pipeline.world.messages.store import (
    MessageLog,
    newest_message_time,
    read_alike,
    read_messages,
    read_newest,
    read_talk,
    said_most,
)
from persona_pipeline.world.models import Window, parse_window
from persona_pipeline.world.names import named_agents
from persona_pipeline.world.propositions.models import ADHERENCE, select_dimensions
from persona_pipeline.world.speakers import NameMatch, missing_agents, stored_names
from persona_pipeline.world.world import World

ALL_TIME = "all"
# Messages of an agent in which another's lines are looked for, and of each, now and before, whose voices are compared.
_MOST_EACH = 1000

Broken = dict[str, tuple[Problem, ...]]


@dataclass(frozen=True)
class WorldReader:
    """Reads snapshots of a world. Their holders need neither the world nor the reader.

    ``ConfigError``: the request, a lexicon, labels, recordings or anchors are invalid. Invalid files of one agent are in
    ``Inputs.broken``.
    """

    world: World

    @contextmanager
    def alone(self, agent_ids: Iterable[str]) -> Iterator[None]:
        """Hold a lock so that no other evaluation of these agents runs on any host."""
        with exclusive(self.world.store, [f"evaluate/{agent_id}" for agent_id in agent_ids]):
            yield

    def snapshot(self, request: EvaluationRequest, judge: Judge) -> Snapshot:
        """Return everything an evaluation needs; the agents' files and all messages are brought into the store.

        Agents that the judge cannot be asked about are broken.
        """
        with self.world.store.together():
            inputs = self.inputs(request)
            inputs = inputs.without(refused(judge, (scope.persona for scope in inputs.agents)))
            baselines, wrong = self.baselines(scope.agent_id for scope in inputs.scopes)
            inputs = inputs.without(wrong)
            inputs = self.with_canon(inputs) if request.facts else inputs
            # Learning takes a second an agent: it is done here only where an alarm fails the run.
            voices, drifts, wrong = self._voices(inputs.agents, learn="voice_alarm" in (counted(request) or ()))
            inputs, alike = inputs.without(wrong), self._alike(inputs)
            inputs = replace(
                inputs,
                agents=[replace(scope, alike=alike.get(scope.agent_id, ())) for scope in inputs.agents],
                missing=missing_agents(self.world.root, self.world.rules_root),
                left_out=self._left_out(request.agents),
                speakers=self.names_of(request),
            )
            signals = Signals(
                drifts=drifts,
                voices={agent_id: voice_findings(state) for agent_id, state in voices.items()},
                learnt=[state.learnt for state in voices.values() if state.is_new],
            )
            return Snapshot(inputs, self.reference(inputs, baselines, request), signals)

    def inputs(self, request: EvaluationRequest) -> Inputs:
        """Bring the agents' files and all messages into the store, fix the windows, and read what questions are made of."""
        world, dimensions = self.world, select_dimensions(request.dimensions)
        agent_ids = world.chosen(request.agents)
        if not dimensions and not request.newest_window:
            raise ConfigError("no dimensions are named; leave --dimensions out for all of them")
        brought = world.bring_in(agent_ids, dimensions, named=request.dimensions is not None)
        broken = dict(brought.broken)
        span = None if request.newest_window else self.window(request.window, request.as_of, request.since)
        newest = runs.newest_windows(world.store, agent_ids, now=world.horizon)
        scopes = []
        for agent_id in (name for name in agent_ids if name in brought.personas and name not in broken):
            window, last = span or newest.get(agent_id), newest.get(agent_id)
            if window is None:
                why = f"agent {agent_id!r} has no message window; materialize its messages first"
                broken[agent_id] = (Problem(why),)
                continue
            past = last is not None and window.end < last.end
            scopes.append(AgentScope(agent_id, window, tuple(dimensions), brought.personas[agent_id], past))
        earlier = (*self._earlier(request, scopes), *self._touched(request, scopes))
        found = Inputs(scopes, earlier, brought.problems, broken, claims=brought.claims, invalid=brought.invalid)
        return self.gathered(found)

    def gathered(self, inputs: Inputs) -> Inputs:
        """Return inputs with the messages of their scopes."""
        world, scopes = self.world, inputs.scopes
        agent_ids = {scope.agent_id for scope in scopes}
        read_at, horizon = world.clock(), world.horizon
        inputs = self._without_aged(inputs)
        spans = _merged([history_of(scope.window) for scope in scopes if not scope.synthetic], horizon)
        said = [m for span in spans for m in read_talk(world.store, span, agent_ids)]
        made_up = _merged([scope.window for scope in scopes if scope.synthetic], horizon)
        generated = (m for span in made_up for m in read_messages(world.store, span, synthetic=True))
        return replace(
            inputs,
            read_at=read_at,
            messages=MessageLog.of(said),
            generated=MessageLog.of(generated),
            names=world.display_names(),
            lexicon=world_lexicon(world.rules_root),
            most_messages=world.settings.message_verdicts,
        )

    def _without_aged(self, inputs: Inputs) -> Inputs:
        """Return inputs without windows whose messages have aged out; an agent with such a current window is broken."""
        with self.world.store.connect() as connection:
            aged = aged_out_before(connection)
        if aged is None:
            return inputs

        def is_kept(scope: AgentScope) -> bool:
            return scope.window.start is None or scope.window.start >= aged or scope.synthetic

        why = "this window begins before; what it came to is stored as it was"
        out = Problem(f"messages before {aged:%Y-%m-%d} have aged out, and {why}")
        gone = {scope.agent_id: (out,) for scope in inputs.agents if not is_kept(scope)}
        return replace(inputs, earlier=[scope for scope in inputs.earlier if is_kept(scope)]).without(gone)

    def baselines(self, agent_ids: Iterable[str]) -> tuple[dict[str, Baseline], Broken]:
        """Return the golden files of agents, and the problems of invalid ones."""
        found, broken = dict[str, Baseline](), Broken()
        for agent_id in sorted({*agent_ids}):
            try:
                if baseline := find_baseline(self.world.rules_root / BASELINES, agent_id):
                    found[agent_id] = baseline
            except ConfigError as error:
                broken[agent_id] = error.problems
        return found, broken

    def reference(
        self,
        inputs: Inputs | None = None,
        baselines: Mapping[str, Baseline] | None = None,
        request: EvaluationRequest | None = None,
    ) -> Reference:
        """Return what scores are compared with; without inputs, what holds for any agent."""
        world, inputs, request = self.world, inputs or Inputs(), request or EvaluationRequest()
        baselines, scopes = baselines or {}, inputs.scopes
        agent_ids, watched = {scope.agent_id for scope in scopes}, watched_agents(world.rules_root / BASELINES)
        watching = {*agent_ids, *watched.baselines}
        verdicts, labelled = dict[str, list[StoredVerdict]](), dict[str, dict[str, Role]]()
        ends = [scope.window.end for scope in scopes if not scope.synthetic]
        if inputs.most_messages and ends:
            rows = runs.message_verdict_rows(world.store, agent_ids, until=max(ends), most=MOST_MESSAGES)
            labels = load_message_labels(world.rules_root / LABELS)
            said = (m for item in inputs.agents for m in inputs.messages.within(item.window, agent_id=item.agent_id))
            verdicts, labelled = verdicts_of(rows), verdicts_of_people(labels, said)
        return Reference(
            baselines=baselines,
            watched=watched,
            results=runs.results_on(world.store, agent_ids, {scope.window.end for scope in scopes}),
            points=points_of(watching, runs.summary_rows(world.store, watching)),
            verdicts=verdicts,
            labelled=labelled,
            label_counts=self.label_counts(),
            anchors=self.anchors(inputs, baselines, request),
            coverage=coverage_of(world.settings),
        )

    def with_baselines(self, reference: Reference, agent_ids: Iterable[str]) -> Reference:
        """Return a reference with the golden files as they are now."""
        baselines, broken = self.baselines([*reference.baselines, *agent_ids])
        raise_problems(broken)
        return replace(reference, baselines=baselines, watched=watched_agents(self.world.rules_root / BASELINES))

    def _left_out(self, agents: Sequence[str] | None) -> list[str]:
        """Return agents with a persona that a run leaves out: by ``persona.yaml``, or unnamed ones with a baseline."""
        world = self.world
        golden = {path.stem for path in (world.rules_root / BASELINES).glob("*.json")} - {*(agents or ())}
        expected = world.written.leave_out if agents is None else golden
        return [name for name in world.agent_ids() if name in expected]

    def with_canon(self, inputs: Inputs) -> Inputs:
        """Return inputs with the facts that people wrote down about agents."""
        canon, broken = {}, dict(inputs.broken)
        for agent_id in {scope.agent_id for scope in inputs.agents}:
            try:
                canon[agent_id] = load_canon(self.world.root, agent_id)
            except ConfigError as error:
                broken[agent_id] = error.problems
        return replace(inputs, canon=canon, broken=broken)

    def _alike(self, inputs: Inputs) -> dict[str, tuple[VoiceFinding, ...]]:
        """Return by agent the other agents whose lines it repeats or whose voice it has taken over.

        The cost does not grow with the number of agents: of others only lines are read that begin or end like one of the agent's
        newest 1,000, and whole voices only of a few talkative ones.
        """
        found: dict[str, tuple[VoiceFinding, ...]] = {}
        asked = [scope for scope in inputs.agents if not scope.synthetic and "convergence" in scope.dimensions]
        store, fleet = self.world.store, set(named_agents(self.world.root)) if asked else set()
        for window in {scope.window for scope in asked}:
            of = {scope.agent_id for scope in asked if scope.window == window}
            everything = history_of(window)
            before = replace(everything, end=window.start or window.end)
            spans = [window] if window.start is None else [window, before]
            own = {name: inputs.messages.within(everything, agent_id=name) for name in of}
            now = [m for name in of for m in inputs.messages.within(window, agent_id=name)[-_MOST_EACH:]]
            like = [m for m in read_alike(store, everything, now) if m.agent_id in fleet]
            least = {window: FEWEST_NOW, before: FEWEST_BEFORE}
            talkative = said_most(store, least, of, 1) and said_most(store, least, fleet, MOST_VOICES + 1)
            voiced = talkative if window.start and len(talkative) <= MOST_VOICES else []
            talk = [m for span in spans for m in read_newest(store, span, voiced, _MOST_EACH)]
            spoken_in = {m.channel for said in own.values() for m in said if m.channel is not None}
            around = inputs.messages.within(everything, channels=spoken_in)
            log = MessageLog.of([*like, *talk, *around, *(m for said in own.values() for m in said)])
            said, earlier = log.within(window), log.within(before) if window.start else []
            heard = (everyday([m.text for m in now if m.agent_id == name], self.world.rules_root) for name in of)
            nobodys = [line for lines in dict(heard).values() for _, line in lines]
            alike = fleet_likeness(said, earlier, fleet, of=of, everyday=nobodys, voiced=voiced)
            found |= {name: tuple(items) for name, items in alike.items()}
        return found

    def names_of(self, request: EvaluationRequest) -> NameMatch:
        """Return the match of speakers and personas, for the requested agents."""
        match = stored_names(self.world)
        return match if request.agents is None else match.of(request.agents)

    @property
    def known(self) -> KnownVerdicts:
        """The verdicts of all judges on the world's judgments."""
        world = self.world
        return KnownVerdicts(world.root / RECORDINGS, world.settings.signing_secret, JudgmentCache(world.store))

    def label_counts(self) -> tuple[int, int]:
        """Return the numbers of messages and of judgments that people labelled."""
        folder = self.world.rules_root / LABELS
        messages = {label.key for label in load_message_labels(folder) if label.source is MarkSource.PERSON}
        judgments = {label.key for label in load_labels(folder) if label.is_persons}
        return len(messages), len(judgments)

    def anchors(
        self, inputs: Inputs, baselines: Mapping[str, Baseline], request: EvaluationRequest, size: int | None = None
    ) -> list[AnchoredAgent]:
        """Return the messages with a known verdict that check the judge.

        They are those of the world's file, or drawn where there is no file. A baseline draws again where people labelled more.
        ``size``: default from the settings; 0: none.
        """
        size = self.world.settings.anchors if size is None else size
        known = load_anchors(self.world.rules_root / BASELINES / ANCHORS_FILE) if size else []
        if not size or (known and not request.update_baseline):
            return known
        drawn = self.drawn_anchors(inputs, baselines, size, taking=request.update_baseline)
        of_people = [sum(item.by_people for own in agents for item in own.anchors) for agents in (known, drawn)]
        return drawn if of_people[1] > of_people[0] or not known else known

    def newest_anchors(self, size: int) -> list[AnchoredAgent]:
        """Return ``size`` anchors for a check outside a run; those of the world's file where none can be drawn."""
        request = EvaluationRequest()
        inputs = self.inputs(self.world.settled(request))
        baselines, broken = self.baselines(scope.agent_id for scope in inputs.scopes)
        inputs = inputs.without(broken)
        return self.drawn_anchors(inputs, baselines, size) or self.anchors(inputs, baselines, request, size)

    def drawn_anchors(
        self, inputs: Inputs, baselines: Mapping[str, Baseline], size: int, *, taking: bool = False
    ) -> list[AnchoredAgent]:
        """Return anchors from the windows of agents' baselines; other windows may have drifted.

        ``taking``: a baseline is taken now, so the current windows are used.
        """
        characters, said = dict[str, Character](), dict[str, list[str]]()
        for scope in sorted(inputs.agents, key=lambda item: item.agent_id):
            claims = inputs.claims.get(scope.agent_id, {}).get(ADHERENCE.name)
            if scope.synthetic or claims is None or claims.propositions is None or len(said) == MOST_AGENTS:
                continue
            characters[scope.agent_id] = character_of(scope.persona, claims.propositions)
            baseline = baselines.get(scope.agent_id)
            now = {item.window for item in (scope, *inputs.earlier) if taking and item.agent_id == scope.agent_id}
            spans = windows_taken(baseline) if baseline else now
            taken = [
                message
                for span in sorted(spans, key=lambda window: window.end)
                for message in read_messages(self.world.store, span, agent_id=scope.agent_id, limit=_MOST_EACH)
            ]
            said[scope.agent_id] = [message.text for message in {item.id: item for item in taken}.values()]
        labels = load_message_labels(self.world.rules_root / LABELS)
        return draw_anchors(characters, said, labels, size)

    def window(self, length: str, as_of: datetime | None = None, since: datetime | None = None) -> Window:
        """Return the window that ends at ``as_of`` (default: the newest message in the store that is not in the future).

        Args:
            length: a length of time, or ``all``.
            since: its start instead.

        Raises:
            ConfigError: ``length`` is neither, ``as_of`` has no offset, ``since`` is not before the end, or messages are missing.
        """
        span = None if length == ALL_TIME else parse_window(length)
        if as_of is not None and as_of.tzinfo is None:
            raise ConfigError(f"as-of {as_of.isoformat()} has no offset; add Z or +02:00")
        end = as_of or self.world.newest_message_time()
        if end is None:
            raise NothingError("there are no messages; put them into messages/ or run persona-pipeline ingest FILE")
        try:
            window = Window.ending(end, span)
        except OverflowError as error:
            raise ConfigError(f"window {length!r} reaches before year 1; shorten it or use 'all'") from error
        if since is not None and since >= end:
            raise ConfigError(f"since {since.isoformat()} is not before the window's end {end.isoformat()}")
        return window if since is None else replace(window, start=since)

    def reports(
        self, agent_ids: Collection[str], since: datetime | None = None, *, whole: int | None = None
    ) -> dict[str, AgentReport]:
        """Return the reports of agents' newest runs of any status, by agent; agents without a run are left out.

        Windows that end before ``since`` are left out. ``whole``: number of agents whose claims and reasons are read, those with
        findings first; None: all.
        """
        known = outlines(runs.newest_rows(self.world.store, OUTLINE, since))
        found = {agent_id: known[agent_id] for agent_id in agent_ids if agent_id in known}
        for agent_id in by_need(found)[:whole]:
            if run := saved_run(runs.find_run(self.world.store, found[agent_id].evaluation.run_id)):
                found[agent_id] = run
        return found

    def _voices(
        self, scopes: Sequence[AgentScope], *, learn: bool
    ) -> tuple[dict[str, VoiceState], dict[str, list[KnownDrift]], Broken]:
        """Return the states of voices that may raise an alarm, the known drifts up to now, and problems of files of drifts."""
        folder, newest = self.world.rules_root / BASELINES, self.world.newest_message_time()
        stored = stored_voices(self.world.store, {scope.agent_id for scope in scopes})
        states, drifts, broken = dict[str, VoiceState](), dict[str, list[KnownDrift]](), Broken()
        for scope in (scope for scope in scopes if not scope.synthetic):
            agent_id, voice, state = scope.agent_id, stored.get(scope.agent_id), None
            try:
                told = load_drift(drift_path(folder, agent_id))
            except ConfigError as error:
                broken[agent_id] = error.problems
                continue
            is_learnt = voice is not None and voice.model is not None
            # A voice that was never learnt raises no alarm.
            if not scope.past and (learn or is_learnt or (voice and voice.persona_hash != scope.persona.hash)):
                state = states[agent_id] = voice_at(self.world, scope.persona, voice, scope.window, learn=learn)
            known = list(state.drifts if state else ())
            if voice and is_learnt and newest and (state is None or scope.window.end < newest):
                # Messages after the window may show a drift that begins in it.
                said = messages_to_follow(self.world, voice, newest)
                known = list(followed(voice, said, scope.window).drifts)
            if told or known:
                drifts[agent_id] = [*filter(None, [told]), *known]
        return states, drifts, broken

    def _earlier(self, request: EvaluationRequest, scopes: Sequence[AgentScope]) -> list[AgentScope]:
        """Return the windows before that ``history`` or a baseline requests; windows without messages are left out."""
        windows_back = max(request.history, request.baseline_windows - 1)
        # A baseline of all time has one window.
        if not windows_back or (request.window == ALL_TIME and not request.history):
            return []
        if request.window == ALL_TIME:
            raise ConfigError("windows before need a window of some length; write --window 7d")
        length = parse_window(request.window)
        found = []
        for back in range(windows_back, 0, -1):
            windows = {scope.agent_id: Window.ending(scope.window.end - length * back, length) for scope in scopes}
            ends = {window: min(window.end, self.world.horizon) for window in windows.values()}
            newest = {window: newest_message_time(self.world.store, until=end) for window, end in ends.items()}
            if any(said is not None and said in window for window, said in newest.items()):
                found += [replace(scope, window=windows[scope.agent_id], past=True) for scope in scopes]
        return found

    def _touched(self, request: EvaluationRequest, scopes: Sequence[AgentScope]) -> list[AgentScope]:
        now = {scope.agent_id: scope for scope in scopes} if request.touched else {}
        return [
            replace(now[agent_id], window=window, past=True)
            for agent_id, window in (runs.touched_windows(self.world.store, list(now)) if now else ())
            if window != now[agent_id].window
        ]


def coverage_of(settings: Settings) -> tuple[float, float]:
    """Return the share of judgments (0-1) that must be scored in a replay, and with a live judge."""
    return settings.min_coverage_replay, settings.min_coverage_live


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
