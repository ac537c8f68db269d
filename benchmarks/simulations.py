"""Worlds whose truth is known: how often guard, trend and tests of claims are right.

**guard**

How often the guard raises a false alarm, and how often it sees a real fall: a grid of fleets, weeks and ways to judge.

Run: python benchmarks/simulations.py guard [--runs 300] [--agents 4 20 100] [--process claims]

Agents of 5 dimensions with 5 claims. A claim's true level is between 6 and 8.5; each window moves it by a normal of sd c;
the judge adds noise (sd 0.5-1.5, another for each claim), rounds, and stays within 0-9. Of its verdicts 5 % are outliers
(any score) and 5 % "not applicable". The baseline is of m windows with as many judgments a claim as the run; what fell is
judged five times more, as far as that could change the answer. Everything is decided by the package's own functions.
A week moves each of the ``claims`` by itself, all of a ``dimension`` alike, all of an ``agent`` alike, or each by itself with
``heavy`` tails (Student's t with 3 degrees of freedom, of the same sd): --process.

    A/A         up to 20 agents: share of runs without any change that report an agent (aim: at most 5 %);
                beyond: false discoveries, the mean share of unchanged agents among those reported
    cannot tell share of runs without any change that end with 3: nothing fell, a dimension is undecided (aim: at most 5 %)
    drop of 4   share of runs in which one dimension down by 4 is reported or undecided: never green
    collapse    share of agents reported for the dimension in which one claim fell to 0
    down by 2   ... in which all five claims fell by 2
    cover       share of the printed 95 % intervals that hold the true change, over dimensions and claims
    asked       judgments a run asks, for each that it would ask without confirming
    sees        median over dimensions of the smallest fall seen in 80 % of runs

In a fleet up to 20 one agent changes in a run, beyond it one in ten. In brackets: Wilson's 95 % interval. Aims hold for a
baseline of at least 4 windows judged 3 times; ``!`` marks where one is missed.

**trend**

How soon a slow drift is seen, and how often a steady series is taken for one.

Run: python benchmarks/simulations.py trend [--runs 300]

Scores of 20 agents with 5 dimensions of 5 claims, made as those of the guard and judged 3 times a claim, over 8 steady weeks
and then 6 more. ``drift``: all claims of one dimension fall by 0.3 a week. ``one of four``: one dimension of four falls by 2
at once, which the overall score hides (0.5). ``steady``: nothing happens. The rules:

    CUSUM          this package's, over each dimension's windows
    textbook       the same with each series' own sd and the textbook limit of 4, allowance 0.5
    change point   the best split of the overall score into two levels a point apart (what reports showed before)

**claims**

How often a test of claims sees a kill that is the judge's noise alone, and how often it sees a real one.

Run: python benchmarks/simulations.py claims [--runs 100]

The sample world's michael with 20 claims, six faults and two other agents, planned and evaluated by the package's own
functions. A judge gives each claim its true level plus a normal of sd, rounds, and stays within 0-9; with outliers 5 % of its
verdicts are any score.

    false kills   share of tests in which noise alone catches something, where no claim catches anything (aim: at most 5 %
                  judged 3 times and without outliers)
    seen          share of real kills that are seen, by how far the claim falls from 8
"""

import argparse
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.guard.baselines.falls import (
    CONFIRMATIONS,
    TOLERANCE,
    UNDECIDED_DELTA,
    TestedDrops,
    levels_of,
    tested,
    worth_asking,
)
from persona_pipeline.guard.baselines.noise import detectable, interval
from persona_pipeline.guard.baselines.spread import FEWEST_WINDOWS, LIMIT, cusum
from persona_pipeline.guard.baselines.statistics import DIMENSIONS_SHARE, MOST_TOGETHER
from persona_pipeline.guard.baselines.statistics import LEVEL as SIGNIFICANCE
from persona_pipeline.guard.baselines.variance import Fleet, Level, Repeats, means, medians, repeats
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.lab.claims.trial import Trial, TrialRequest, plan_trial, run_trial
from persona_pipeline.world import World
from tests.claims.test_trial import windows_of, write_claims

DIMENSIONS, GUARD_CLAIMS = 5, 5
OUTLIERS, NOT_APPLICABLE = 0.05, 0.05
PROCESSES = ("claims", "dimension", "agent", "heavy")
UNCHANGED, COLLAPSE, DOWN, FAR = "A/A", "collapse", "down by 2", "down by 4"


@dataclass(frozen=True)
class Cell:
    """One cell of the grid."""

    agents: int
    week: float
    samples: int
    windows: int
    process: str = PROCESSES[0]

    @property
    def has_aims(self) -> bool:
        return self.windows >= 4 and self.samples >= 3

    def aim(self, scenario: str) -> float:
        if scenario == UNCHANGED:
            return 0.05
        return {COLLAPSE: (0.95, 0.85), DOWN: (0.85, 0.45)}[scenario][self.week > 0.5]


@dataclass
class Tally:
    """What the runs of a cell came to."""

    runs: int = 0
    hits: int = 0
    tries: int = 0
    false_shares: float = 0.0
    covered: int = 0
    intervals: int = 0
    asked: float = 0.0
    sees: float = 0.0
    untold: int = 0
    seen_or_untold: int = 0


def judged(generator: np.random.Generator, truth: np.ndarray, spreads: np.ndarray, count: int) -> np.ndarray:
    """Return (..., count) verdicts on claims whose true scores are ``truth``; NaN: not applicable."""
    shape = (*truth.shape, count)
    noisy = truth[..., None] + generator.standard_normal(shape) * spreads[..., None]
    scores = np.clip(np.rint(noisy), 0, 9)
    odd = generator.random(shape)
    scores = np.where(odd < OUTLIERS, generator.integers(0, 10, shape), scores)
    return np.where(odd > 1 - NOT_APPLICABLE, np.nan, scores)


def level(samples: np.ndarray) -> tuple[Level, Level]:
    """Return the level of every claim and of every dimension from verdicts (dimensions, claims, windows, count)."""
    window_means, window_medians = means(samples), medians(samples)
    counts = np.isfinite(samples).sum(axis=-1).astype(float)
    flat = samples.shape[0] * samples.shape[1]
    claims = Level.over_windows(
        window_means.reshape(flat, -1),
        window_medians.reshape(flat, -1),
        counts.reshape(flat, -1),
        Repeats(*(part.sum(axis=-1) for part in vars(repeats(samples.reshape(flat, *samples.shape[2:]))).values())),
    )
    nothing = Repeats(*[np.zeros(len(samples))] * 5)
    whole = means(np.swapaxes(window_means, 1, 2))
    whole_medians = means(np.swapaxes(window_medians, 1, 2))
    counted = counts.mean(axis=1)
    return claims, Level.over_windows(whole, whole_medians, counted, nothing)


def simulate(cell: Cell, scenario: str, runs: int, seed: int) -> Tally:
    """Return what a cell's runs come to under a scenario."""
    generator = np.random.default_rng([seed, cell.agents, round(10 * cell.week), cell.samples, cell.windows])
    tally = Tally()
    for _ in range(runs):
        _one(generator, cell, scenario, tally)
    return tally


def _one(generator: np.random.Generator, cell: Cell, scenario: str, tally: Tally) -> None:
    units = cell.agents * DIMENSIONS
    truth = generator.uniform(6.0, 8.5, (units, GUARD_CLAIMS))
    spreads = generator.uniform(0.5, 1.5, truth.shape)
    after = truth.copy()
    # One changed dimension an agent, its first.
    changed = np.arange(0 if scenario == UNCHANGED else max(1, cell.agents // 10) if cell.agents > MOST_TOGETHER else 1)
    if scenario == COLLAPSE:
        after[changed * DIMENSIONS, 0] = 0.0
    elif scenario in (DOWN, FAR):
        after[changed * DIMENSIONS] -= 2.0 if scenario == DOWN else 4.0
    weeks = truth[..., None] + cell.week * moves(generator, cell, cell.windows)
    golden = judged(generator, weeks, np.repeat(spreads[..., None], cell.windows, axis=-1), cell.samples)
    week = after + cell.week * moves(generator, cell, 1)[..., 0]
    now = judged(generator, week, spreads, cell.samples)
    before_claims, before_dimensions = level(golden)
    claims_now, dimensions_now = level(now[:, :, None, :])
    fleet = Fleet(
        claims_before=before_claims,
        claims_now=claims_now,
        dimensions_before=before_dimensions,
        dimensions_now=dimensions_now,
        dimension_of=np.repeat(np.arange(units), GUARD_CLAIMS),
        agent_of=np.repeat(np.arange(cell.agents), DIMENSIONS),
        weight=np.full(units * GUARD_CLAIMS, 1 / GUARD_CLAIMS),
        weight_before=np.full(units * GUARD_CLAIMS, 1 / GUARD_CLAIMS),
        same=np.zeros(units, bool),
    )
    decided = tested(fleet, watched=cell.agents)
    again = worth_asking(fleet, decided, watched=cell.agents)
    if again.any():
        more = judged(generator, week, spreads, CONFIRMATIONS)
        more[~again.reshape(units, GUARD_CLAIMS)] = np.nan
        claims_now, dimensions_now = level(np.concatenate([now, more], axis=-1)[:, :, None, :])
        fleet = replace(fleet, claims_now=claims_now, dimensions_now=dimensions_now)
        decided = tested(fleet, watched=cell.agents)
    _count(decided, cell, changed, tally)
    tally.asked += 1 + again.mean() * CONFIRMATIONS / cell.samples
    levels = levels_of(decided.dimensions, fleet.agent_of, watched=cell.agents, share=DIMENSIONS_SHARE)
    tally.sees += float(np.nanmedian(detectable(decided.dimensions, levels)))
    _cover(decided, truth, after, tally)


def moves(generator: np.random.Generator, cell: Cell, windows: int) -> np.ndarray:
    """Return (dimensions, claims, windows) of what weeks do, in standard deviations."""
    units = cell.agents * DIMENSIONS
    if cell.process == "heavy":
        return generator.standard_t(3, (units, GUARD_CLAIMS, windows)) / math.sqrt(3)
    shape = {"claims": (units, GUARD_CLAIMS), "dimension": (units, 1), "agent": (cell.agents, 1)}[cell.process]
    drawn = generator.standard_normal((*shape, windows))
    return np.broadcast_to(np.repeat(drawn, units // shape[0], axis=0), (units, GUARD_CLAIMS, windows))


def _count(decided: TestedDrops, cell: Cell, changed: np.ndarray, tally: Tally) -> None:
    chance = decided.p_values.dimensions >= SIGNIFICANCE
    fell_claims = decided.beyond_claims & ~(decided.p_values.claims >= SIGNIFICANCE)
    undecided = decided.beyond_dimensions & chance & (decided.dimensions.fallen > UNDECIDED_DELTA + TOLERANCE)
    units = (decided.beyond_dimensions & ~chance) | fell_claims.reshape(-1, GUARD_CLAIMS).any(axis=1)
    reported = units.reshape(cell.agents, DIMENSIONS).any(axis=1)
    tally.runs += 1
    false = np.delete(reported, changed).sum()
    tally.untold += bool(not reported.any() and undecided.any())
    tally.seen_or_untold += bool((units | undecided)[changed * DIMENSIONS].any())
    tally.false_shares += (false / reported.sum()) if reported.any() else 0.0
    if len(changed):
        tally.hits += int(units[changed * DIMENSIONS].sum())
        tally.tries += len(changed)
    else:
        tally.hits += bool(reported.any())
        tally.tries += 1


def _cover(decided: TestedDrops, truth: np.ndarray, after: np.ndarray, tally: Tally) -> None:
    # Where the truth did not change, so that no edge of the scale bends it.
    for drops, still in (
        (decided.claims, (truth == after).ravel()),
        (decided.dimensions, (truth == after).all(axis=1)),
    ):
        low, high = interval(drops)
        known = still & np.isfinite(low)
        tally.covered += int(((low <= 0) & (high >= 0) & known).sum())
        tally.intervals += int(known.sum())


def wilson(hits: float, tries: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    if not tries:
        return 0.0, 1.0
    z, share = 1.96, hits / tries
    centre = (share + z**2 / (2 * tries)) / (1 + z**2 / tries)
    reach = z * math.sqrt(share * (1 - share) / tries + z**2 / (4 * tries**2)) / (1 + z**2 / tries)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def shown(cell: Cell, scenario: str, tally: Tally) -> str:
    """Return one figure with its interval and, where an aim is missed, a mark."""
    share = tally.hits / tally.tries
    low, high = wilson(tally.hits, tally.tries)
    missed = share > cell.aim(scenario) if scenario == UNCHANGED else share < cell.aim(scenario)
    mark = " !" if cell.has_aims and missed else ""
    return f"{share:.3f} ({low:.2f}-{high:.2f}){mark}"


def run_guard() -> None:
    """Print the grid as Markdown."""
    parser = argparse.ArgumentParser(description="False alarms and detection of the guard.")
    parser.add_argument("--runs", type=int, default=300, help="simulated runs a cell and scenario")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, nargs="+", default=[4, 20, 100])
    parser.add_argument("--weeks", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--process", choices=PROCESSES, default=PROCESSES[0], help="what a week moves alike")
    options = parser.parse_args()
    print(f"{options.runs} runs a cell and scenario, seed {options.seed}\n")
    print(
        "| agents | c | judgments | windows | A/A or false discoveries | cannot tell | collapse | down by 2 | drop of 4 | cover "
        "| asked | sees |"
    )
    print("|--:|--:|--:|--:|:--|:--|:--|:--|:--|--:|--:|--:|")
    for agents in options.agents:
        for week in options.weeks:
            for samples in options.samples:
                for windows in options.windows:
                    cell = Cell(agents, week, samples, windows, options.process)
                    same, collapse, down, far = (
                        simulate(cell, name, options.runs, options.seed) for name in (UNCHANGED, COLLAPSE, DOWN, FAR)
                    )
                    low, high = wilson(same.untold, same.runs)
                    untold = f"{same.untold / same.runs:.3f} ({low:.2f}-{high:.2f})"
                    print(
                        f"| {agents} | {week:g} | {samples} | {windows} | {false_alarms(cell, same, collapse, down)} "
                        f"| {untold} | {shown(cell, COLLAPSE, collapse)} | {shown(cell, DOWN, down)} "
                        f"| {far.seen_or_untold / far.runs:.3f} "
                        f"| {same.covered / max(1, same.intervals):.3f} | {same.asked / same.runs:.2f} "
                        f"| {same.sees / same.runs:.1f} |",
                        flush=True,
                    )


def false_alarms(cell: Cell, same: Tally, *changed: Tally) -> str:
    """Return the share of runs with a false alarm, and for a large fleet the share of false discoveries too."""
    text = shown(cell, UNCHANGED, same)
    if cell.agents <= MOST_TOGETHER:
        return text
    shares = [tally.false_shares / tally.runs for tally in changed]
    mark = " !" if cell.has_aims and max(shares) > 0.05 else ""
    return f"{text}; of changed fleets {' / '.join(f'{share:.3f}' for share in shares)}{mark}"


TREND_AGENTS, TREND_DIMENSIONS, TREND_CLAIMS, WEEKS = 20, 5, 5, 6
TEXTBOOK_LIMIT, ALLOWANCE = 4.0, 0.5


def scores(generator: np.random.Generator, week: float, samples: int, weeks: int, scenario: str) -> np.ndarray:
    """Return scores (agents, dimensions, windows); the first agent's first dimension is the one that changes."""
    windows = FEWEST_WINDOWS + weeks
    truth = generator.uniform(6.0, 8.5, (TREND_AGENTS, TREND_DIMENSIONS, TREND_CLAIMS))
    spreads = np.repeat(generator.uniform(0.5, 1.5, truth.shape)[..., None], windows, axis=-1)
    level = truth[..., None] + week * generator.standard_normal((*truth.shape, windows))
    if scenario == "drift":
        level[0, 0, :, FEWEST_WINDOWS:] -= 0.3 * np.arange(1, weeks + 1)
    elif scenario == "one of four":
        level[0, 0, :, FEWEST_WINDOWS:] -= 2.0
    by_claim: np.ndarray = means(judged(generator, level, spreads, samples))
    return means(np.swapaxes(by_claim, 2, 3))


def alarms(series: np.ndarray, rule: str) -> np.ndarray:
    """Return whether each series (series x windows) alarms at any time after its first windows."""
    if rule == "CUSUM":
        return np.asarray((cusum(series)[0] > LIMIT).any(axis=1))
    first = series[:, :FEWEST_WINDOWS]
    level, deviation = first.mean(axis=1), first.std(axis=1, ddof=1)
    value, seen = np.zeros(len(series)), np.zeros(len(series), bool)
    for window in range(FEWEST_WINDOWS, series.shape[1]):
        value = np.maximum(0, value + (level - series[:, window]) / deviation - ALLOWANCE)
        seen |= value > TEXTBOOK_LIMIT
    return seen


def change_points(overall: np.ndarray) -> np.ndarray:
    """Return whether each overall series has a split a point apart that explains half of its variation."""
    centred = overall - overall.mean(axis=1, keepdims=True)
    found = np.zeros(len(overall), bool)
    for cut in range(1, overall.shape[1]):
        before, after = overall[:, :cut].mean(axis=1), overall[:, cut:].mean(axis=1)
        gain = cut * (overall.shape[1] - cut) / overall.shape[1] * (after - before) ** 2
        found |= (np.abs(after - before) >= 1) & (gain >= (centred**2).sum(axis=1) / 2)
    return found


def trend_simulate(
    week: float, samples: int, weeks: int, scenario: str, runs: int, seed: int
) -> dict[str, tuple[int, int]]:
    """Return hits and tries by rule: of the changed series, or for steady ones of all."""
    generator = np.random.default_rng([seed, round(week * 10), samples, weeks])
    found = {rule: [0, 0] for rule in ("CUSUM", "textbook", "change point")}
    for _ in range(runs):
        values = scores(generator, week, samples, weeks, scenario)
        flat = values.reshape(TREND_AGENTS * TREND_DIMENSIONS, -1)
        steady = scenario == "steady"
        seen = {rule: alarms(flat, rule) for rule in ("CUSUM", "textbook")}
        seen["change point"] = change_points(values[:, :4].mean(axis=1))
        for rule, hits in seen.items():
            found[rule][0] += int(hits.sum() if steady else hits[0])
            found[rule][1] += len(hits) if steady else 1
    return {rule: (hits, tries) for rule, (hits, tries) in found.items()}


def run_trend() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Slow drift, seen and imagined.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--weeks", type=int, default=WEEKS, help="weeks after the first eight")
    options = parser.parse_args()
    print(f"{options.runs} fleets a line, seed {options.seed}, {options.samples} judgments, {options.weeks} weeks\n")
    print("| c | scenario | CUSUM | textbook | change point of the overall score |")
    print("|--:|:--|:--|:--|:--|")
    for week in (0.0, 0.5, 1.0):
        for scenario in ("steady", "drift", "one of four"):
            found = trend_simulate(week, options.samples, options.weeks, scenario, options.runs, options.seed)
            cells = []
            for hits, tries in found.values():
                low, high = wilson(hits, tries)
                cells.append(f"{hits / tries:.3f} ({low:.3f}-{high:.3f})")
            print(f"| {week:g} | {scenario} | {' | '.join(cells)} |", flush=True)


CLAIMS_CLAIMS, LEVEL = 20, 8
FALLS = (4, 5, 6, 8)
FAULT = "boilerplate"


@dataclass
class Judge:
    """Attributes: falls: by claim, how far it falls under the fault; outliers: share of verdicts that are any score."""

    windows: dict[str, str]
    sd: float
    outliers: float
    seed: int
    falls: dict[str, int]
    name: str = "simulated"
    live: bool = True

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return [self._verdict(request) for request in requests]

    def _verdict(self, request: JudgeRequest) -> Verdict:
        draw = random.Random(f"{self.seed}/{request.key}")
        broken = self.windows[request.subject["trajectory"]] == FAULT
        level = LEVEL - (self.falls.get(request.proposition_id, 0) if broken else 0)
        score = draw.randrange(10) if draw.random() < self.outliers else round(draw.gauss(level, self.sd))
        return Verdict(request.proposition_id, score=max(0, min(9, score)))


def measure(trial: Trial, sd: float, outliers: float, runs: int) -> str:
    windows = windows_of(trial)
    false = 0
    seen = dict.fromkeys(FALLS, 0)
    falls = {f"claim-{n}": fall for n, fall in enumerate(FALLS)}
    for seed in range(runs):
        idle = run_trial(trial, Judge(windows, sd, outliers, seed, {}))
        false += any(row.kills for row in idle.claims)
        working = run_trial(trial, Judge(windows, sd, outliers, seed, falls))
        for row in working.claims:
            if row.id in falls and FAULT in row.kills:
                seen[falls[row.id]] += 1
    told = "  ".join(f"{fall}: {count / runs:4.0%}" for fall, count in seen.items())
    return f"{sd:>4} {outliers:>9.0%} {trial.request.samples:>8}   {false / runs:>11.0%}   {told}"


def run_claims() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    request = TrialRequest("michael", as_of=datetime(2026, 6, 14, 23, 59, 59, tzinfo=UTC))
    sample = Path(__file__).resolve().parents[1]
    with TemporaryDirectory() as folder, patch("persona_pipeline.lab.claims.trial.read_signals", lambda *_: {}):
        root = Path(folder)
        for name in ("personas", "messages"):
            (root / name).symlink_to(sample / name)
        write_claims(root, {"adherence": {f"claim-{n}": {} for n in range(CLAIMS_CLAIMS)}})
        world = World.open(root)
        print("  sd  outliers  samples   false kills   seen, by the fall")
        for samples in (1, 3, 5):
            trial = plan_trial(world, replace(request, samples=samples))
            for sd in (0.5, 1.0, 1.5):
                for outliers in (0.0, 0.05):
                    print(measure(trial, sd, outliers, runs), flush=True)
        world.store.close()


COMMANDS = {
    "guard": run_guard,
    "trend": run_trend,
    "claims": run_claims,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
