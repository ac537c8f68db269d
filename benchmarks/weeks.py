"""Weeks whose truth is known: how often the guard and its trend are right, under weeks of many kinds.

Everything is decided by the package's own functions.

**guard**

How often a run without any change is called a fall, and how often a real fall is seen.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py guard [--runs 300] [--agents 20] [--windows 4] [--process claims ...]
     OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py tables [--runs 300]     the tables of docs/explanation/guard.md

Agents of 5 dimensions with 5 claims. A claim's true level is between 6 and 8.5; each window moves it by a draw of sd c; the judge
adds noise (sd 0.5-1.5, another for each claim), rounds, and stays within 0-9. Of its verdicts 5 % are outliers (any score) and 5 %
"not applicable". The baseline is of m windows with as many judgments a claim as the run, which is of the window after them; what
fell is judged five times more, as far as that could change the answer. What a week moves (--process):

    claims, dimension, agent, world   each claim by itself; all of a dimension, of an agent, of the fleet alike
    mood                              each claim by itself, and the judge's mood (sd 0.5) everything alike
    ar5, ar8                          each claim by itself, .5 or .8 of the week before kept (AR(1))
    heavy, skewed                     each claim by itself, by Student's t with 3 degrees; by an exponential, downwards
    ceiling                           each claim by itself, at levels between 8 and 9
    apart                             one claim of five by sd 2, the others by 0.2, whatever c is
    missing, unequal                  each claim by itself; 30 % of a baseline's windows lack a dimension; 1 to 5 judgments a claim

    A/A         up to 20 agents: share of runs without any change that report an agent (aim: at most .05);
                beyond: false discoveries, the mean share of unchanged agents among those reported
    cannot tell share of runs without any change that end with 3: nothing fell, a dimension is undecided (aim: at most .05)
    collapse    share of agents reported for the dimension in which one claim fell to 0
    down by 2   ... in which all five claims fell by 2
    down by 4   share of runs in which one dimension down by 4 is reported or undecided: never green
    cover       share of the printed 95 % intervals that hold the true change, over dimensions and claims (aim: at least .93)
    sees        median over dimensions of the smallest fall that is printed
    power       share of agents reported for a dimension that fell by the very figure printed for it (aim: .75 to .9)

In a fleet up to 20 one agent changes in a run, beyond it one in ten. In brackets: Wilson's 95 % interval.

**beside**

What one agent's collapse does to the answers on the others: the last agent drops by 8 in all dimensions.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py beside [--runs 300] [--agents 3 6] [--windows 1 3] [--process claims ...]

    A/A         share of runs without any change, nobody's collapse either, that report an agent
    false       share of runs that report an agent that did not change, beside the one that collapsed
    cannot tell share of runs in which a dimension of such an agent is undecided
    down by 1, 2, 3   share of runs that report the first agent's dimension in which all claims fell so far
    sees        median over the first agent's dimensions of the smallest fall that is printed; in brackets: nobody collapsed

**year**

How often 26 weekly runs beside one baseline report anything though nothing changed, and how soon they see what did.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py year [--runs 300]

    red      some run reports an agent (aim: at most .05 a year).
    moved    the e-process of a dimension's windows crosses its limit (aim: at most .05 a year)

**trend**

How soon a slow drift is seen, and how often a steady series is taken for one.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py trend [--runs 300]

Scores of 20 agents, made as those of the guard and judged 3 times a claim, over 8 steady weeks and then 6 more. ``drift``: all
claims of one dimension fall by 0.3 a week. ``one of four``: one dimension of four falls by 2 at once, which the overall score
hides (0.5). ``steady``: nothing happens. The rules:

    CUSUM          this package's, over each dimension's windows
    moved          its e-process
    textbook       CUSUM with each series' own sd and the textbook limit of 4, allowance 0.5
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.guard.baselines.drift import CERTAIN, FEWEST_WINDOWS, LIMIT, cusum, winnings
from persona_pipeline.guard.baselines.falls import (
    CONFIRMATIONS,
    TOLERANCE,
    UNDECIDED_DELTA,
    TestedDrops,
    tested,
    worth_asking,
)
from persona_pipeline.guard.baselines.sight import detectable, interval
from persona_pipeline.guard.baselines.statistics import LEVEL, MOST_TOGETHER
from persona_pipeline.guard.baselines.variance import Fleet, Level, Repeats, means, medians, repeats

DIMENSIONS, CLAIMS = 5, 5
OUTLIERS, NOT_APPLICABLE = 0.05, 0.05
MISSING, MOOD = 0.3, 0.5
PROCESSES = (
    *("claims", "dimension", "agent", "world", "mood", "ar5", "ar8", "heavy", "skewed", "ceiling", "apart"),
    *("missing", "unequal"),
)
UNCHANGED, COLLAPSE, DOWN, FAR, PRINTED = "A/A", "collapse", "down by 2", "down by 4", "power"
SCENARIOS = (UNCHANGED, COLLAPSE, DOWN, FAR, PRINTED)


@dataclass(frozen=True)
class Cell:
    """One cell of the grid."""

    agents: int
    week: float
    samples: int
    windows: int
    process: str = PROCESSES[0]

    @property
    def units(self) -> int:
        return self.agents * DIMENSIONS

    @property
    def changed(self) -> np.ndarray:
        """The agents that change where any do: of each the first dimension."""
        return np.arange(max(1, self.agents // 10) if self.agents > MOST_TOGETHER else 1)


@dataclass
class Tally:
    """What the runs of a cell came to."""

    runs: int = 0
    hits: int = 0
    tries: int = 0
    false_shares: float = 0.0
    covered: int = 0
    intervals: int = 0
    sees: list[float] = field(default_factory=list)
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


def moves(generator: np.random.Generator, cell: Cell, windows: int) -> np.ndarray:
    """Return (dimensions, claims, windows) of what consecutive weeks do, in points."""
    whole = (cell.units, CLAIMS, windows)
    if cell.process in ("dimension", "agent", "world"):
        count = {"dimension": cell.units, "agent": cell.agents, "world": 1}[cell.process]
        drawn = np.repeat(generator.standard_normal((count, 1, windows)), cell.units // count, axis=0)
        return cell.week * np.broadcast_to(drawn, whole)
    drawn = generator.standard_normal(whole)
    if cell.process == "heavy":
        drawn = generator.standard_t(3, whole) / math.sqrt(3)
    elif cell.process == "skewed":
        drawn = 1 - generator.exponential(size=whole)
    elif cell.process in ("ar5", "ar8"):
        kept = int(cell.process[-1]) / 10
        for window in range(1, windows):
            drawn[..., window] = kept * drawn[..., window - 1] + math.sqrt(1 - kept**2) * drawn[..., window]
    elif cell.process == "apart":
        return drawn * np.where(np.arange(CLAIMS) == 0, 2.0, 0.2)[None, :, None]
    moved = cell.week * drawn
    return moved + MOOD * generator.standard_normal(windows) if cell.process == "mood" else moved


@dataclass(frozen=True)
class Drawn:
    """A fleet with its baseline.

    Attributes:
        truth, spreads: (dimensions, claims): level, and sd of the judge.
        weeks: (dimensions, claims, windows): what weeks do, those after the baseline's too.
        before: the levels of the baseline.
        series: (dimensions, windows): the scores of its windows.
    """

    cell: Cell
    truth: np.ndarray
    spreads: np.ndarray
    weeks: np.ndarray
    before: tuple[Level, Level]
    series: np.ndarray

    def judged(self, generator: np.random.Generator, after: np.ndarray, window: int, count: int) -> np.ndarray:
        """Return (dimensions, claims, count) verdicts on a window, the baseline's last being 0."""
        truth = after + self.weeks[..., self.cell.windows - 1 + window]
        found = judged(generator, truth, self.spreads, count)
        return thinned(generator, found) if self.cell.process == "unequal" else found

    def fleet(self, now: np.ndarray, week: int = 1) -> Fleet:
        claims_now, dimensions_now = level(now[:, :, None, :])
        cell, claims = self.cell, self.cell.units * CLAIMS
        return Fleet(
            claims_before=self.before[0],
            claims_now=claims_now,
            dimensions_before=self.before[1],
            dimensions_now=dimensions_now,
            dimension_of=np.repeat(np.arange(cell.units), CLAIMS),
            agent_of=np.repeat(np.arange(cell.agents), DIMENSIONS),
            weight=np.full(claims, 1 / CLAIMS),
            weight_before=np.full(claims, 1 / CLAIMS),
            same=np.zeros(cell.units, bool),
            week=np.full(cell.units, float(week)),
        )


def drawn(generator: np.random.Generator, cell: Cell, weeks: int = 1) -> Drawn:
    """Return a fleet with its baseline and what the weeks after it do."""
    low, high = (8.0, 9.0) if cell.process == "ceiling" else (6.0, 8.5)
    truth = generator.uniform(low, high, (cell.units, CLAIMS))
    spreads = generator.uniform(0.5, 1.5, truth.shape)
    moved = moves(generator, cell, cell.windows + weeks)
    golden = judged(
        generator,
        truth[..., None] + moved[..., : cell.windows],
        np.repeat(spreads[..., None], cell.windows, axis=-1),
        cell.samples,
    )
    if cell.process == "unequal":
        golden = thinned(generator, golden)
    if cell.process == "missing":
        # The newest window is whole, or the dimension would not be in the baseline.
        lacks = generator.random((cell.units, cell.windows)) < MISSING
        lacks[:, -1] = False
        golden = np.where(lacks[:, None, :, None], np.nan, golden)
    series = means(np.swapaxes(means(golden), 1, 2))
    return Drawn(cell, truth, spreads, moved, level(golden), series)


def thinned(generator: np.random.Generator, samples: np.ndarray) -> np.ndarray:
    """Return verdicts of which each claim keeps some in each window, at least one."""
    kept = generator.integers(1, samples.shape[-1] + 1, samples.shape[:-1])
    return np.where(np.arange(samples.shape[-1]) < kept[..., None], samples, np.nan)


def decided(
    generator: np.random.Generator, made: Drawn, after: np.ndarray, window: int = 1, week: int = 1
) -> TestedDrops:
    """Return what is decided of a window, what fell judged again."""
    cell = made.cell
    samples = 5 if cell.process == "unequal" else cell.samples
    now = made.judged(generator, after, window, samples)
    fleet = made.fleet(now, week)
    found = tested(fleet, watched=cell.agents)
    again = worth_asking(fleet, found, watched=cell.agents)
    if not again.any():
        return found
    more = made.judged(generator, after, window, CONFIRMATIONS)
    more[~again.reshape(cell.units, CLAIMS)] = np.nan
    return tested(made.fleet(np.concatenate([now, more], axis=-1), week), watched=cell.agents)


def simulate(cell: Cell, scenario: str, runs: int, seed: int) -> Tally:
    """Return what a cell's runs come to under a scenario."""
    key = [seed, cell.agents, round(10 * cell.week), cell.samples, cell.windows, PROCESSES.index(cell.process)]
    generator, tally = np.random.default_rng(key), Tally()
    for _ in range(runs):
        _one(generator, cell, scenario, tally)
    return tally


def _one(generator: np.random.Generator, cell: Cell, scenario: str, tally: Tally) -> None:
    made = drawn(generator, cell, 2 if scenario == PRINTED else 1)
    after, rows = made.truth.copy(), cell.changed * DIMENSIONS
    if scenario == COLLAPSE:
        after[rows, 0] = 0.0
    elif scenario in (DOWN, FAR):
        after[rows] -= 2.0 if scenario == DOWN else 4.0
    elif scenario == PRINTED:
        steady = decided(generator, made, made.truth)
        after[rows] -= detectable(steady.dimensions, steady.levels, steady.delta)[rows][:, None]
    found = decided(generator, made, after, 2 if scenario == PRINTED else 1)
    units, undecided = reported(found)
    _count(units, undecided, cell, scenario, tally)
    tally.sees.append(float(np.nanmedian(found.sees)))
    _cover(found, made.truth, after, tally)


def reported(found: TestedDrops) -> tuple[np.ndarray, np.ndarray]:
    """Return which dimensions are reported, and which are undecided."""
    chance = found.p_values.dimensions >= LEVEL
    fell_claims = found.beyond_claims & ~(found.p_values.claims >= LEVEL)
    undecided = found.beyond_dimensions & chance & (found.dimensions.fallen > UNDECIDED_DELTA + TOLERANCE)
    return (found.beyond_dimensions & ~chance) | fell_claims.reshape(-1, CLAIMS).any(axis=1), undecided


def _count(units: np.ndarray, undecided: np.ndarray, cell: Cell, scenario: str, tally: Tally) -> None:
    agents = units.reshape(cell.agents, DIMENSIONS).any(axis=1)
    changed = np.arange(0) if scenario == UNCHANGED else cell.changed
    tally.runs += 1
    tally.untold += bool(not agents.any() and undecided.any())
    tally.seen_or_untold += bool((units | undecided)[changed * DIMENSIONS].any())
    tally.false_shares += (np.delete(agents, changed).sum() / agents.sum()) if agents.any() else 0.0
    tally.hits += int(units[changed * DIMENSIONS].sum()) if len(changed) else bool(agents.any())
    tally.tries += len(changed) or 1


def _cover(found: TestedDrops, truth: np.ndarray, after: np.ndarray, tally: Tally) -> None:
    # Where the truth did not change, so that no edge of the scale bends it.
    for drops, still in (
        (found.claims, (truth == after).ravel()),
        (found.dimensions, (truth == after).all(axis=1)),
    ):
        low, high = interval(drops)
        known = still & np.isfinite(low)
        tally.covered += int(((low <= 0) & (high >= 0) & known).sum())
        tally.intervals += int(known.sum())


def share(hits: float, tries: int) -> str:
    """Return a share with Wilson's 95 % interval."""
    if not tries:
        return "–"
    low, high = binomtest(round(hits), tries).proportion_ci(method="wilson")
    return f"{hits / tries:.3f} ({low:.2f}-{high:.2f})"


HEADER = (
    "| what a week moves | agents | c | judgments | windows | A/A or false discoveries | cannot tell | collapse | down by 2 "
    "| down by 4 | cover | sees | power |\n|:--|--:|--:|--:|--:|:--|:--|:--|:--|--:|--:|--:|:--|"
)


def line(cell: Cell, runs: int, seed: int, scenarios: Sequence[str] = SCENARIOS) -> str:
    """Return one line of the grid."""
    found = {name: simulate(cell, name, runs, seed) for name in scenarios}
    same = found[UNCHANGED]
    wrong = share(same.hits, same.tries)
    if cell.agents > MOST_TOGETHER:
        worst = max(tally.false_shares / tally.runs for name, tally in found.items() if name in (COLLAPSE, DOWN))
        wrong = f"{wrong}; {worst:.3f}"
    told = {name: share(tally.hits, tally.tries) for name, tally in found.items()}
    far = f"{found[FAR].seen_or_untold / runs:.3f}" if FAR in found else ""
    return (
        f"| {cell.process} | {cell.agents} | {cell.week:g} | {cell.samples} | {cell.windows} | {wrong} "
        f"| {share(same.untold, same.runs)} | {told.get(COLLAPSE, '')} | {told.get(DOWN, '')} | {far} "
        f"| {same.covered / max(1, same.intervals):.3f} | {np.mean(same.sees):.1f} | {told.get(PRINTED, '')} |"
    )


def run_guard() -> None:
    """Print the grid as Markdown."""
    parser = argparse.ArgumentParser(description="False alarms and detection of the guard.")
    parser.add_argument("--runs", type=int, default=300, help="simulated runs a cell and scenario")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, nargs="+", default=[20])
    parser.add_argument("--weeks", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--samples", type=int, nargs="+", default=[3])
    parser.add_argument("--windows", type=int, nargs="+", default=[4])
    parser.add_argument(
        "--process", choices=PROCESSES, nargs="+", default=PROCESSES[:1], help="what a week moves alike"
    )
    parser.add_argument("--scenarios", choices=SCENARIOS, nargs="+", default=SCENARIOS)
    options = parser.parse_args()
    print(f"{options.runs} runs a cell and scenario, seed {options.seed}\n\n{HEADER}")
    for process in options.process:
        for agents in options.agents:
            for week in options.weeks:
                for samples in options.samples:
                    for windows in options.windows:
                        cell = Cell(agents, week, samples, windows, process)
                        print(line(cell, options.runs, options.seed, options.scenarios), flush=True)


# The cells of docs/explanation/guard.md beside every kind of week at 20 agents and 4 windows: one factor at a time, and where
# it is hardest.
BESIDE = (
    *(
        (process, agents, windows)
        for process in ("claims", "dimension")
        for agents, windows in ((4, 4), (20, 2), (20, 8))
    ),
    *((process, agents, 1) for process in ("claims", "dimension", "agent", "mood") for agents in (4, 20)),
    *((process, 100, 4) for process in ("claims", "heavy")),
    *(("apart", agents, 8) for agents in (4, 20)),
)


def run_tables() -> None:
    """Print the tables of docs/explanation/guard.md as Markdown."""
    parser = argparse.ArgumentParser(description="The tables of docs/explanation/guard.md.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.runs} runs a cell and scenario, seed {options.seed}\n\n{HEADER}")
    for process, agents, windows in (*BESIDE, *((name, 20, 4) for name in PROCESSES)):
        scenarios = SCENARIOS if windows == 4 and agents == 20 else SCENARIOS[:3]
        for week in (0.5, 1.0):
            print(line(Cell(agents, week, 3, windows, process), options.runs, options.seed, scenarios), flush=True)


COLLAPSED, FALLS = 8.0, (1.0, 2.0, 3.0)


def beside(cell: Cell, runs: int, seed: int) -> str:
    """Return one line of what a neighbour's collapse does."""
    key = [seed, cell.agents, round(10 * cell.week), cell.windows, PROCESSES.index(cell.process)]
    generator, sees, alone = np.random.default_rng(key), [], []
    same, false, untold, seen = 0, 0, 0, dict.fromkeys(FALLS, 0)
    for _ in range(runs):
        made = drawn(generator, cell)
        steady = decided(generator, made, made.truth)
        same += reported(steady)[0].any()
        alone.append(np.median(steady.sees[:DIMENSIONS]))
        after = made.truth.copy()
        after[-DIMENSIONS:] = np.maximum(after[-DIMENSIONS:] - COLLAPSED, 0.0)
        found = decided(generator, made, after)
        units, undecided = (part[:-DIMENSIONS] for part in reported(found))
        false, untold = false + units.any(), untold + undecided.any()
        sees.append(np.median(found.sees[:DIMENSIONS]))
        for fall in FALLS:
            lower = after.copy()
            lower[0] -= fall
            seen[fall] += reported(decided(generator, made, lower))[0][0]
    told = " | ".join(share(hits, runs) for hits in (same, false, untold, *seen.values()))
    return (
        f"| {cell.process} | {cell.agents} | {cell.week:g} | {cell.windows} | {told} "
        f"| {np.median(sees):.1f} ({np.median(alone):.1f}) |"
    )


def run_beside() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="What a neighbour's collapse does to the answers on others.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, nargs="+", default=[3, 6])
    parser.add_argument("--weeks", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--process", choices=PROCESSES, nargs="+", default=("claims", "dimension", "ar5", "ar8"))
    options = parser.parse_args()
    print(f"{options.runs} runs a line, seed {options.seed}\n")
    print(
        "| what a week moves | agents | c | windows | A/A | false | cannot tell | down by 1 | down by 2 | down by 3 | sees |"
    )
    print("|:--|--:|--:|--:|:--|:--|:--|:--|:--|:--|:--|")
    for process in options.process:
        for agents in options.agents:
            for week in options.weeks:
                for windows in options.windows:
                    cell = Cell(agents, week, 3, windows, process)
                    print(beside(cell, options.runs, options.seed), flush=True)


YEAR_WEEKS, DOWN_SEEN = 26, (6, 13)


def year(cell: Cell, runs: int, seed: int, fall: float = 0.0) -> dict[str, float]:
    """Return in how many years what is reported: of the fleet without any change, else of the one dimension that fell."""
    key = [seed, cell.agents, round(10 * cell.week), cell.windows, PROCESSES.index(cell.process), round(10 * fall)]
    generator, found = np.random.default_rng(key), dict.fromkeys(("red", "moved", *DOWN_SEEN), 0.0)
    for _ in range(runs):
        made = drawn(generator, cell, YEAR_WEEKS)
        after, series = made.truth.copy(), [made.series]
        after[0] -= fall
        red = []
        for week in range(1, YEAR_WEEKS + 1):
            decisions = decided(generator, made, after, week, week)
            now = made.judged(generator, after, week, cell.samples)
            series.append(means(np.swapaxes(means(now[:, :, None, :]), 1, 2)))
            red.append(reported(decisions)[0][:1] if fall else reported(decisions)[0])
        held = winnings(np.concatenate(series, axis=1)) > math.log(CERTAIN * cell.units)
        moved = held[0] if fall else held.any(axis=0)
        found["red"] += any(item.any() for item in red)
        found["moved"] += moved.any()
        for weeks in DOWN_SEEN:
            found[weeks] += moved[: cell.windows + weeks].any()
    return {name: count / runs for name, count in found.items()}


def run_year() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="A year of weekly runs.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, nargs="+", default=[4, 20])
    parser.add_argument("--windows", type=int, nargs="+", default=[8])
    parser.add_argument("--process", choices=PROCESSES, nargs="+", default=("claims", "dimension", "ar5", "ar8"))
    options = parser.parse_args()
    print(f"{options.runs} years of {YEAR_WEEKS} weeks a line, seed {options.seed}\n")
    print("| what a week moves | agents | c | windows | red | moved | down by 2: red | moved after 6 | after 13 |")
    print("|:--|--:|--:|--:|:--|:--|:--|:--|:--|")
    for process in options.process:
        for agents in options.agents:
            for week in (0.5, 1.0):
                for windows in options.windows:
                    cell = Cell(agents, week, 3, windows, process)
                    same, down = (year(cell, options.runs, options.seed, fall) for fall in (0.0, 2.0))
                    told = [same["red"], same["moved"], down["red"], *(down[n] for n in DOWN_SEEN)]
                    shares = " | ".join(share(value * options.runs, options.runs) for value in told)
                    print(f"| {process} | {agents} | {week:g} | {windows} | {shares} |", flush=True)


TREND_WEEKS = 6
TEXTBOOK_LIMIT, ALLOWANCE = 4.0, 0.5


def trend_scores(generator: np.random.Generator, week: float, weeks: int, scenario: str) -> np.ndarray:
    """Return scores (dimensions, windows); the first agent's first dimension is the one that changes."""
    made = drawn(generator, Cell(20, week, 3, FEWEST_WINDOWS), weeks)
    level = made.truth[..., None] + made.weeks[..., FEWEST_WINDOWS:]
    if scenario == "drift":
        level[0] -= 0.3 * np.arange(1, weeks + 1)
    elif scenario == "one of four":
        level[0] -= 2.0
    now = judged(generator, level, np.repeat(made.spreads[..., None], weeks, axis=-1), 3)
    return np.concatenate([made.series, means(np.swapaxes(means(now), 1, 2))], axis=1)


def alarms(series: np.ndarray, rule: str) -> np.ndarray:
    """Return whether each series (series x windows) alarms at any time after its first windows."""
    if rule == "CUSUM":
        return (cusum(series)[0] > LIMIT).any(axis=1)
    if rule == "moved":
        return (winnings(series) > math.log(CERTAIN * len(series))).any(axis=1)
    first = series[:, :FEWEST_WINDOWS]
    steady, deviation = first.mean(axis=1), first.std(axis=1, ddof=1)
    value, seen = np.zeros(len(series)), np.zeros(len(series), bool)
    for window in range(FEWEST_WINDOWS, series.shape[1]):
        value = np.maximum(0, value + (steady - series[:, window]) / deviation - ALLOWANCE)
        seen |= value > TEXTBOOK_LIMIT
    return seen


def run_trend() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="Slow drift, seen and imagined.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weeks", type=int, default=TREND_WEEKS, help="weeks after the first eight")
    options = parser.parse_args()
    print(f"{options.runs} fleets a line, seed {options.seed}, {options.weeks} weeks\n")
    print("| c | series | CUSUM | moved | textbook |\n|--:|:--|:--|:--|:--|")
    for week in (0.0, 0.5, 1.0):
        for scenario in ("steady", "drift", "one of four"):
            generator = np.random.default_rng([options.seed, round(week * 10), options.weeks])
            found = dict.fromkeys(("CUSUM", "moved", "textbook"), 0)
            tries = 0
            for _ in range(options.runs):
                series = trend_scores(generator, week, options.weeks, scenario)
                counted = slice(None) if scenario == "steady" else slice(1)
                tries += len(series[counted])
                for rule in found:
                    found[rule] += int(alarms(series, rule)[counted].sum())
            print(
                f"| {week:g} | {scenario} | {' | '.join(share(hits, tries) for hits in found.values())} |", flush=True
            )


COMMANDS = {"guard": run_guard, "tables": run_tables, "beside": run_beside, "year": run_year, "trend": run_trend}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
