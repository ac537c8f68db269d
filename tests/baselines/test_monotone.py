"""Damage is monotone: a worse or missing score, claim, message or dimension never makes a verdict better."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from persona_pipeline.base.options import AcceptedDrop
from persona_pipeline.base.status import Result
from persona_pipeline.evaluation.decide import compared
from persona_pipeline.evaluation.snapshot import Reference
from persona_pipeline.guard.anchors import AnchorAnswers
from persona_pipeline.guard.baselines.golden import Watched
from persona_pipeline.guard.baselines.models import Baseline
from persona_pipeline.guard.gate import GateRules, exit_code_of, nothing_evaluated, run_coverage
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, doubt_of
from persona_pipeline.scoring.results import (
    DimensionEvaluation,
    PropositionResult,
    QuotedEvidence,
    weighted_mean,
)

END = datetime(2026, 6, 1, tzinfo=UTC)
NAMES = ("adherence", "consistency", "fluency", "convergence")
ORDER = {Result.FELL: 0, Result.CANNOT_TELL: 1, Result.HELD: 2, None: 2}
CODES = {1: 0, 3: 1, 0: 2}
OLD, NEW = "old", "new"

# To shrink such a world takes minutes, and the message names what became better.
unshrunk = settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])

# Scores by agent, dimension and claim; None: every judgment of the claim failed.
Scores = dict[str, dict[str, dict[str, float | None]]]


@dataclass(frozen=True)
class DrawnWorld:
    """Baselines, scores of a run, and the rules that decide about them."""

    baselines: Mapping[str, Baseline]
    scores: Scores
    rules: GateRules
    reference: Reference
    judge: str = OLD
    check: AnchorAnswers | None = None
    quoted: Mapping[str, bool] = field(default_factory=dict)

    def report(self, agent_id: str, scores: Mapping[str, Mapping[str, float | None]]) -> AgentReport:
        dimensions = {name: self._dimension(name, claims) for name, claims in scores.items()}
        evaluation = AgentEvaluation(
            run_id="r", agent_id=agent_id, display_name=agent_id, window_start=END - timedelta(days=7), window_end=END,
            sample_size=9, provenance={
                "judge_model": self.judge, "judge_models": [self.judge], "prompt_version": "v1",
                "prompt_versions": ["v1"], "messages_hash": "now",
                **({"anchors": self.check.model_dump(mode="json")} if self.check else {}),
            },
        ).with_dimensions(dimensions)  # fmt: skip
        return compared(evaluation, self.baselines.get(agent_id), self.rules, self.reference, NAMES)

    def _dimension(self, name: str, claims: Mapping[str, float | None]) -> DimensionEvaluation:
        rows = {
            key: PropositionResult(
                id=key, claim=key, raw=score, score=score, unscored=None if score is not None else "refusal",
                failed={} if score is not None else {"refusal": 1}, samples=[] if score is None else [score],
                evidence=[QuotedEvidence(quote="x", verified=self.quoted.get(key, True))],
            )
            for key, score in claims.items()
        }  # fmt: skip
        known = [score for score in claims.values() if score is not None]
        return DimensionEvaluation(
            dimension=name, propositions=rows, n_scored=len(known), n_expected=len(rows),
            score=weighted_mean((score, 1.0) for score in known) if known else None,
            unscored=None if known else "refusal",
        )  # fmt: skip


@dataclass(frozen=True)
class Verdicts:
    """What is said of a run, of each agent and each dimension: 0 for a regression, 1 for inconclusive, 2 for held."""

    run: int
    agents: Mapping[str, int]
    dimensions: Mapping[tuple[str, str], int]
    reports: Mapping[str, AgentReport]

    @classmethod
    def of(cls, world: DrawnWorld, scores: Scores) -> "Verdicts":
        reports = {agent_id: world.report(agent_id, own) for agent_id, own in scores.items()}
        rules = world.rules
        findings = [item for report in reports.values() for item in report.findings]
        findings += [*nothing_evaluated([*reports.values()]), *run_coverage([*reports.values()], rules)]
        return cls(
            CODES[exit_code_of(findings, rules)],
            {agent_id: ORDER[report.conclusion.verdict] for agent_id, report in reports.items()},
            {(a, name): ORDER[told.verdict] for a, r in reports.items() for name, told in r.conclusions.items()},
            reports,
        )


def checks() -> st.SearchStrategy[AnchorAnswers | None]:
    """Return whether the judge was asked about anchors, and gave random answers to them."""
    return st.sampled_from([None, AnchorAnswers(day=END.date(), right={str(n): n < 10 for n in range(20)})])


@st.composite
def worlds(draw: st.DrawFn) -> DrawnWorld:
    """Return up to 3 agents of up to 3 dimensions and 5 claims, baselines of 1 to 8 windows and any variation between them."""
    count, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    names, agents = NAMES[: draw(st.integers(1, 3))], [f"a{number}" for number in range(count)]
    level, usual = draw(st.floats(5, 9)), st.floats(0, 9)
    baselines, scores = {}, Scores()
    for agent_id in agents:
        windows, between = draw(st.sampled_from([1, 1, 2, 4, 8])), draw(st.sampled_from([0.1, 0.5, 1.5, 6.0]))
        golden = {name: {f"c{n}": level for n in range(size)} for name in names}
        spread = {"windows": windows, **({"between": between} if windows > 1 else {})}
        known = {
            "judge_model": "old", "prompt_version": "v1", "messages_hash": "then",
            "window_end": (END - timedelta(days=7 * draw(st.integers(1, 3)))).isoformat(),
            **spread, "claims": dict.fromkeys(golden[names[0]], spread),
        }  # fmt: skip
        baselines[agent_id] = Baseline(
            agent_id=agent_id, captured_at=END, dimensions=dict.fromkeys(names, level), proposition_scores=golden,
            provenance={"dimensions": dict.fromkeys(names, known)},
        )  # fmt: skip
        # A claim that the baseline does not have counts for the mean alone.
        keys = [f"c{n}" for n in range(size + draw(st.integers(0, 1)))]
        scores[agent_id] = {
            name: {key: draw(st.one_of(st.just(level), st.just(level), usual, st.just(0.0))) for key in keys}
            for name in names
        }
    accepted = [
        AcceptedDrop(
            agent="a0", dimension=names[0], claim=draw(st.sampled_from([None, "c0"])), until=date(2026, 6, 2), why="x"
        )
    ]
    rules = GateRules(
        min_coverage=draw(st.sampled_from([0.95, 1.0])), threshold=draw(st.sampled_from([None, 6.0])),
        accepted_drops=draw(st.sampled_from([[], accepted])), today=date(2026, 6, 1),
    )  # fmt: skip
    reference = Reference(watched=Watched(draw(st.integers(count, 30)), baselines))
    judge = draw(st.sampled_from([OLD, OLD, NEW]))
    return DrawnWorld(baselines, scores, rules, reference, judge, draw(checks()), {"c1": draw(st.booleans())})


@st.composite
def damaged(draw: st.DrawFn, *, losing: bool) -> tuple[DrawnWorld, Scores, set[str]]:
    """Return a world, its scores after some damage, and the agents that were damaged."""
    world = draw(worlds())
    scores = {agent: {name: dict(claims) for name, claims in own.items()} for agent, own in world.scores.items()}
    agents = draw(st.lists(st.sampled_from([*scores]), min_size=1, unique=True))
    for agent_id in agents:
        for name in draw(st.lists(st.sampled_from([*scores[agent_id]]), min_size=1, unique=True)):
            claims = scores[agent_id][name]
            for key in draw(st.lists(st.sampled_from([*claims]), min_size=1, unique=True)):
                low = draw(st.sampled_from([0.0, 0.5, 0.9]))
                claims[key] = None if losing and draw(st.booleans()) else (claims[key] or 0.0) * low
        if losing and draw(st.booleans()):
            del scores[agent_id][draw(st.sampled_from([*scores[agent_id]]))]
    return world, scores, set(agents)


def never_better(before: Verdicts, after: Verdicts, *, lost: bool) -> None:
    """Check the order of verdicts. ``lost``: judgments are gone, so that a regression may become inconclusive."""
    pairs = [("run", before.run, after.run)]
    pairs += [(agent, known, after.agents[agent]) for agent, known in before.agents.items()]
    # A judge that quotes badly makes all dimensions inconclusive. Without its bad quotes, the dimensions that are left count again.
    doubted = {agent for agent, report in before.reports.items() if lost and doubt_of(report.findings)}
    pairs += [
        (str(key), known, after.dimensions.get(key, 1))
        for key, known in before.dimensions.items()
        if key[0] not in doubted
    ]
    for what, first, second in pairs:
        assert second <= (max(first, 1) if lost and first < 2 else first), (what, first, second)


@unshrunk
@given(damaged(losing=False))
def test_lower_scores_never_make_a_verdict_better(drawn: tuple[DrawnWorld, Scores, set[str]]) -> None:
    world, scores, agents = drawn
    before, after = Verdicts.of(world, world.scores), Verdicts.of(world, scores)
    never_better(before, after, lost=False)
    for agent_id in scores.keys() - agents:
        assert after.reports[agent_id] == before.reports[agent_id], "what others did is no part of an agent's verdict"


@unshrunk
@given(damaged(losing=True))
def test_lost_judgments_never_turn_a_drop_green(drawn: tuple[DrawnWorld, Scores, set[str]]) -> None:
    world, scores, _ = drawn
    never_better(Verdicts.of(world, world.scores), Verdicts.of(world, scores), lost=True)
