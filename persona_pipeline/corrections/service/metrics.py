"""Prometheus metrics of the service, in a registry of their own. No agent ids: labels stay few."""

from persona_pipeline.corrections.decision import Action, GateDecision, Outcome
from persona_pipeline.corrections.interventions import Guidance
from persona_pipeline.scoring.voice_alarm import VoiceAlarm

_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 5.05, 6.0)


class ServiceMetrics:
    """Counts decisions, time, tokens and money of the gate, nudges by kind, and voice alarms."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        self._checks = Counter(
            "persona_gate_checks",
            "Gate checks by outcome and, for those that failed open, reason.",
            ("outcome", "reason"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "persona_gate_check_seconds", "Wall-clock time of a gate check.", buckets=_BUCKETS, registry=self.registry
        )
        self._tokens = Counter("persona_gate_tokens", "Tokens of gate checks.", ("kind",), registry=self.registry)
        self._usd = Counter("persona_gate_usd", "Known price of gate checks in US dollars.", registry=self.registry)
        self._unchecked = Counter(
            "gate_unchecked", "Texts that went out unchecked, by reason.", ("reason",), registry=self.registry
        )
        self._nudges = Counter("persona_nudges", "Nudges given before a turn.", ("kind",), registry=self.registry)
        self._shadow_held = Counter(
            "persona_gate_shadow_held",
            "Texts that a gate that only watches would have sent back.",
            registry=self.registry,
        )
        self._shadow_nudges = Counter(
            "persona_shadow_nudges",
            "Nudges found and not given, as the agent's corrections only watch.",
            ("kind",),
            registry=self.registry,
        )
        self._lookups = Counter(
            "persona_interventions", "Turns looked at for nudges.", ("result",), registry=self.registry
        )

        self._voices = Counter(
            "persona_voice_alarms", "Agents that lost their voice, each alarm once.", registry=self.registry
        )
        self._standing = Gauge(
            "persona_voice_alarms_standing",
            "Agents that do not sound like themselves, of those asked about.",
            registry=self.registry,
        )
        self._alarmed: dict[str, str] = {}

    def decided(self, _agent_id: str, decision: GateDecision) -> None:
        """Count a decision; fits ``ActionGate(observer=...)``."""
        self._checks.labels(decision.outcome.value, decision.reason or "").inc()
        if decision.would not in (None, Action.COMMIT):
            self._shadow_held.inc()
        if decision.outcome is Outcome.FAIL_OPEN:
            self._unchecked.labels(decision.reason or "").inc()
        self._seconds.observe(decision.latency_ms / 1000)
        self._tokens.labels("input").inc(decision.usage.input_tokens)
        self._tokens.labels("output").inc(decision.usage.output_tokens)
        self._tokens.labels("cached").inc(decision.usage.cache_creation_tokens + decision.usage.cache_read_tokens)
        self._usd.inc(decision.usage.usd or 0.0)

    def bypassed(self, reason: str) -> None:
        """Count a text that went out without any check; fits ``Bypasses(observer=...)``."""
        self._unchecked.labels(reason).inc()

    def guided(self, guidance: Guidance) -> None:
        """Count a look before a turn."""
        self._lookups.labels("failed" if guidance.failed else "no_lexicon" if guidance.unread else "ok").inc()
        for nudge in guidance.nudges:
            self._nudges.labels(nudge.kind.value).inc()
        for nudge in guidance.withheld:
            self._shadow_nudges.labels(nudge.kind.value).inc()

    def heard(self, agent_id: str, alarm: VoiceAlarm | None) -> None:
        """Count an agent's voice alarm the first time that it is seen; None: it sounds like itself."""
        if alarm is None:
            self._alarmed.pop(agent_id, None)
        elif self._alarmed.get(agent_id) != alarm.raised_at.id:
            self._alarmed[agent_id] = alarm.raised_at.id
            self._voices.inc()
        self._standing.set(len(self._alarmed))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
