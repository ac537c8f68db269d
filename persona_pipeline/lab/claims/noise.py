"""What the store already knows of claims: how much each varies, and whether it says anything. No call is made."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

from pydantic import BaseModel

from persona_pipeline.base.errors import NothingError
from persona_pipeline.evaluation.history import SavedRun, saved_runs
from persona_pipeline.judging.verdict import MOST_FAILING_QUOTES, Unscored
from persona_pipeline.lab.claims.matrix import good, pooled_sd
from persona_pipeline.scoring.results import PropositionResult
from persona_pipeline.world.propositions.loading import stored_proposition_sets
from persona_pipeline.world.propositions.models import Proposition, select_dimensions
from persona_pipeline.world.runs import runs_by_window
from persona_pipeline.world.world import World

# Windows from which on "always" and "from window to window" mean something.
FEWEST_WINDOWS = 4
_FEWEST_QUOTES = 10
_FEWEST_REPEATS = 4
# Points. Judges were measured at 0.5-1.5; weeks that move a claim by more than 1.0 hide a fall of 2 in every second case.
_UNSTEADY_JUDGE, _UNSTEADY_WEEKS = 1.5, 1.0
_MOST_NOT_APPLICABLE = 0.5
# A mean so near the end of the scale that hardly a judgment differs from it.
_AT_AN_END = 0.25
REWRITE = 5


class ClaimNoise(BaseModel, extra="forbid", frozen=True):
    """One claim of one agent over its windows, the newest wording only.

    Attributes:
        windows: in which it was judged. scored: in which it has a score.
        mean: of the scores, 0-9, high is good whichever way the claim is written.
        window_sd: between windows in which nothing had fallen, the judge's part taken off, in points; None below two.
        judge_sd: of repeated judgments of the same window; None where none was repeated.
        nines, zeros: share (0-1) of scored windows at either end of the scale.
        not_applicable: share (0-1) of the windows. unverified: share (0-1) of the quotes; None without quotes.
        reasons: why it should be written anew, the worst first; none for a claim that is as it should be.
        trouble: how bad it is, to rank claims by.
    """

    agent_id: str
    dimension: str
    id: str
    inverted: bool = False
    windows: int = 0
    scored: int = 0
    mean: float | None = None
    window_sd: float | None = None
    judge_sd: float | None = None
    nines: float = 0.0
    zeros: float = 0.0
    not_applicable: float = 0.0
    unverified: float | None = None
    quotes: int = 0
    reasons: tuple[str, ...] = ()
    trouble: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.dimension}/{self.id}"


class NoiseReport(BaseModel, extra="forbid", frozen=True):
    """The claims of some agents, worst first."""

    claims: tuple[ClaimNoise, ...]

    @property
    def rewrite(self) -> tuple[ClaimNoise, ...]:
        """The claims to write anew, at most five."""
        return tuple(item for item in self.claims if item.reasons)[:REWRITE]

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json") | {
            "rewrite": [{"agent_id": i.agent_id, "claim": i.name, "reasons": list(i.reasons)} for i in self.rewrite]
        }


def measure_noise(
    world: World, agents: Sequence[str] | None = None, dimensions: Sequence[str] | None = None
) -> NoiseReport:
    """Return what the saved evaluations say of the agents' claims, worst first; ConfigError: nothing was evaluated."""
    wanted = select_dimensions(dimensions)
    found = []
    for agent_id in world.chosen(agents):
        runs = saved_runs(runs_by_window(world.store, agent_id))
        for dimension, stored in stored_proposition_sets(world.store, agent_id).items():
            if stored.propositions is None or dimension not in wanted:
                continue
            for claim in stored.propositions.propositions:
                rows = list(_rows(runs, dimension, claim))
                if rows:
                    found.append(_noise_of(agent_id, dimension, claim, rows))
    if not found:
        raise NothingError("the store holds no evaluation of these claims; run persona-pipeline evaluate")
    return NoiseReport(claims=tuple(sorted(found, key=lambda item: (-item.trouble, item.agent_id, item.name))))


def _rows(runs: Sequence[SavedRun], dimension: str, claim: Proposition) -> Iterator[tuple[PropositionResult, bool]]:
    """Yield the claim's results, oldest first, and whether nothing had fallen then; of an older wording there are none."""
    wording = _wording(claim.claim)
    for run in runs:
        evaluation = run.evaluation.dimensions.get(dimension)
        result = evaluation.propositions.get(claim.id) if evaluation else None
        if result is not None and wording.fullmatch(result.claim) and result.inverted == claim.inverted:
            yield result, not (run.comparison and run.comparison.regressed)


def _wording(claim: str) -> "re.Pattern[str]":
    """Return what a claim looks like filled in, whatever its variables stand for."""
    parts = re.split(r"(\{\{[A-Za-z0-9_]+\}\})", claim)
    return re.compile(
        "".join(".+?" if part.startswith("{{") and part.endswith("}}") else re.escape(part) for part in parts),
        re.DOTALL,
    )


def _noise_of(
    agent_id: str, dimension: str, claim: Proposition, rows: Sequence[tuple[PropositionResult, bool]]
) -> ClaimNoise:
    results = [result for result, _ in rows]
    scores = {n: good(result, result.raw) for n, result in enumerate(results) if result.raw is not None}
    steady = [scores[place] for place, (_, whole) in enumerate(rows) if place in scores and whole]
    judge = pooled_sd(results)
    quotes = [quote.verified for result in results for quote in result.evidence]
    absent = sum(result.unscored == Unscored.NOT_APPLICABLE for result in results)
    values = list(scores.values())
    noise = ClaimNoise(
        agent_id=agent_id,
        dimension=dimension,
        id=claim.id,
        inverted=claim.inverted,
        windows=len(results),
        scored=len(values),
        mean=fmean(values) if values else None,
        window_sd=_between(steady, judge, results) if len(steady) > 1 else None,
        judge_sd=judge[0] if judge else None,
        nines=_share(values, lambda score: score >= 9 - _AT_AN_END),
        zeros=_share(values, lambda score: score <= _AT_AN_END),
        not_applicable=absent / len(results),
        unverified=1 - fmean(quotes) if quotes else None,
        quotes=len(quotes),
    )
    reasons = sorted(_reasons(noise, judge[1] if judge else 0, len(steady)), reverse=True)
    return noise.model_copy(
        update={"reasons": tuple(text for _, text in reasons), "trouble": sum(bad for bad, _ in reasons)}
    )


def _reasons(noise: ClaimNoise, repeats: int, steady: int) -> Iterator[tuple[float, str]]:
    """Yield what is wrong with a claim, and how bad it is: 1 where it just begins to be."""
    if noise.scored >= FEWEST_WINDOWS and noise.nines == 1:
        yield 2.0, f"9 in each of {noise.scored} windows: it asks for nothing that could go wrong"
    if noise.scored >= FEWEST_WINDOWS and noise.zeros == 1:
        yield 3.0, f"0 in each of {noise.scored} windows: it cannot drop any further, and is not what the agent does"
    if noise.windows >= FEWEST_WINDOWS and noise.not_applicable >= _MOST_NOT_APPLICABLE:
        said = f"not applicable in {noise.not_applicable:.0%} of windows: its situation hardly comes up"
        yield 2 * noise.not_applicable, said
    if noise.unverified is not None and noise.quotes >= _FEWEST_QUOTES and noise.unverified > MOST_FAILING_QUOTES:
        share = f"{noise.unverified:.0%} of {noise.quotes} quotes"
        said = f"{share} do not stand in the messages: the judge finds no evidence for it"
        yield noise.unverified / MOST_FAILING_QUOTES, said
    if noise.judge_sd is not None and repeats >= _FEWEST_REPEATS and noise.judge_sd > _UNSTEADY_JUDGE:
        said = f"judged again, the same window differs by {noise.judge_sd:.1f}: it can be read in two ways"
        yield noise.judge_sd / _UNSTEADY_JUDGE, said
    if noise.window_sd is not None and steady >= FEWEST_WINDOWS and noise.window_sd > _UNSTEADY_WEEKS:
        said = (
            f"moves by {noise.window_sd:.1f} from window to window while nothing dropped: it judges the week's subject"
        )
        yield noise.window_sd / _UNSTEADY_WEEKS, said


def _between(scores: Sequence[float], judge: tuple[float, int] | None, results: Sequence[PropositionResult]) -> float:
    """Return the deviation between windows without what the judge alone makes of it."""
    judgments = [len(result.samples) for result in results if result.samples]
    noise = judge[0] ** 2 * fmean(1 / count for count in judgments) if judge else 0.0
    return math.sqrt(max(0.0, stdev(scores) ** 2 - noise))


def _share(values: Sequence[float], holds: Callable[[float], bool]) -> float:
    return sum(map(holds, values)) / len(values) if values else 0.0
