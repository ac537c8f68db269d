"""How often the guard raises a false alarm, and how often it sees a real fall: a grid of fleets, weeks and ways to judge.

Run: python benchmarks/guard_simulation.py [--runs 300] [--agents 4 20 100] [--process claims]

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
"""

import argparse
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from persona_pipeline.baselines.detectable import detectable, interval
from persona_pipeline.baselines.falls import CONFIRMATIONS, Decided, decide, levels_of, worth_asking
from persona_pipeline.baselines.families import DIMENSIONS_SHARE, MOST_TOGETHER
from persona_pipeline.baselines.level import Fleet, Level
from persona_pipeline.baselines.variance import Repeats, means, medians, repeats

DIMENSIONS, CLAIMS = 5, 5
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
        repeats(samples.reshape(flat, *samples.shape[2:])).summed(),
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
    truth = generator.uniform(6.0, 8.5, (units, CLAIMS))
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
        dimension_of=np.repeat(np.arange(units), CLAIMS),
        agent_of=np.repeat(np.arange(cell.agents), DIMENSIONS),
        weight=np.full(units * CLAIMS, 1 / CLAIMS),
        weight_before=np.full(units * CLAIMS, 1 / CLAIMS),
        same=np.zeros(units, bool),
    )
    decided = decide(fleet, agents=cell.agents, watched=cell.agents)
    again = worth_asking(fleet, decided, watched=cell.agents)
    if again.any():
        more = judged(generator, week, spreads, CONFIRMATIONS)
        more[~again.reshape(units, CLAIMS)] = np.nan
        claims_now, dimensions_now = level(np.concatenate([now, more], axis=-1)[:, :, None, :])
        fleet = replace(fleet, claims_now=claims_now, dimensions_now=dimensions_now)
        decided = decide(fleet, agents=cell.agents, watched=cell.agents)
    _count(decided, cell, changed, tally)
    tally.asked += 1 + again.mean() * CONFIRMATIONS / cell.samples
    levels = levels_of(decided.dimensions, fleet.agent_of, watched=cell.agents, share=DIMENSIONS_SHARE)
    tally.sees += float(np.nanmedian(detectable(decided.dimensions, levels)))
    _cover(decided, truth, after, tally)


def moves(generator: np.random.Generator, cell: Cell, windows: int) -> np.ndarray:
    """Return (dimensions, claims, windows) of what weeks do, in standard deviations."""
    units = cell.agents * DIMENSIONS
    if cell.process == "heavy":
        return generator.standard_t(3, (units, CLAIMS, windows)) / math.sqrt(3)
    shape = {"claims": (units, CLAIMS), "dimension": (units, 1), "agent": (cell.agents, 1)}[cell.process]
    drawn = generator.standard_normal((*shape, windows))
    return np.broadcast_to(np.repeat(drawn, units // shape[0], axis=0), (units, CLAIMS, windows))


def _count(decided: Decided, cell: Cell, changed: np.ndarray, tally: Tally) -> None:
    units = decided.fell_dimensions | decided.fell_claims.reshape(-1, CLAIMS).any(axis=1)
    reported = units.reshape(cell.agents, DIMENSIONS).any(axis=1)
    tally.runs += 1
    false = np.delete(reported, changed).sum()
    tally.untold += bool(not reported.any() and decided.undecided.any())
    tally.seen_or_untold += bool((units | decided.undecided)[changed * DIMENSIONS].any())
    tally.false_shares += (false / reported.sum()) if reported.any() else 0.0
    if len(changed):
        tally.hits += int(units[changed * DIMENSIONS].sum())
        tally.tries += len(changed)
    else:
        tally.hits += bool(reported.any())
        tally.tries += 1


def _cover(decided: Decided, truth: np.ndarray, after: np.ndarray, tally: Tally) -> None:
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


def main() -> None:
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


if __name__ == "__main__":
    main()
