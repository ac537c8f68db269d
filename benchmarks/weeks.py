"""Weeks whose truth is known: how often the guard and its e-process are right, under weeks of many kinds.

Everything is decided by the package's own functions.

**guard**

How often a run without any change is red or inconclusive, and how often a real drop is red or at least not green.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py guard [--runs 300] [--agents 1 4 20] [--windows 1 4] [--process claims ...]

Agents of 5 dimensions with 5 claims. A claim's true level is between 6 and 8.5; each window moves it by a draw of sd c; the judge
adds noise (sd 0.5-1.5, another for each claim), rounds, and stays within 0-9. Of its verdicts 5 % are outliers (any score) and 5 %
"not applicable". The baseline is of m windows with as many judgments a claim as the run, which is of the window after them; what
drops is judged five times more. What a week moves (--process):

    claims, dimension, agent, world   each claim alone; all of a dimension, of an agent, of the fleet alike
    ar5, ar8                          each claim alone, .5 or .8 of the week before kept (AR(1))
    heavy, skewed                     each claim alone, by Student's t with 3 degrees; by an exponential, downwards
    ceiling                           each claim alone, at levels between 8 and 9
    apart                             one claim of five by sd 2, the others by 0.2, whatever c is
    holiday                           each claim alone; in the run's week each dimension of all agents is .4 to 1.2 lower
    upgrade                           each claim alone; the run's judge gives each claim -.5 (sd .5) more, of all agents alike
    sinking                           each claim alone, and the whole world falls by .15 a week
    few                               each claim alone; two conversations a window

Messages: six conversations of six messages a window (a share of .98 in character, correlation .1 in a conversation; the reader
errs in 3 %).

    healthy     share of unchanged runs that are red, and that are inconclusive (aim: at most .05 each with four windows)
    n claims    of the first agent n claims at 8, each of another dimension, are at 0: share red / not green (aim: .95 not green)
    down by 2   of the first agent all claims of one dimension are 2 lower: share that is red / not green
    half        the same, and half of its messages are out of character: share that is red without and with messages (aim: .95)
    all by 4    all claims of all agents are 4 lower: share of runs that are red / not green, and where "all dropped" is said
    power       median over dimensions of the smallest drop that is printed

**year**

How often 26 weekly runs compared with one baseline are red though nothing changed, and how soon they show what did.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py year [--runs 300]

    red      some run is red (aim: at most .05 a year).
    moved    the e-process of a dimension's windows crosses its limit (aim: at most .05 a year)

**trend**

How soon a slow drift is seen, and how often a steady series is taken for one.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/weeks.py trend [--runs 300]

Scores of 20 agents, made as those of the guard and judged 3 times a claim, over 8 steady weeks and then 6 more. ``drift``: all
claims of one dimension fall by 0.3 a week. ``one of four``: one dimension of four falls by 2 at once, which the overall score
hides (0.5). ``steady``: nothing happens. The rules:

    moved          the e-process over each dimension's windows
    textbook       CUSUM with each series' own sd and the textbook limit of 4, allowance 0.5
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.shares import share_drop
from persona_pipeline.guard.baselines.drift import CERTAIN, FEWEST_WINDOWS, winnings
from persona_pipeline.guard.baselines.golden import Watched, captured
from persona_pipeline.guard.baselines.models import Baseline, BaselineComparison, Compared
from persona_pipeline.guard.baselines.regression import CONFIRMATIONS, Rules, compare, settled, to_confirm
from persona_pipeline.guard.baselines.statistics import LEVEL
from persona_pipeline.guard.gate import all_dropped
from persona_pipeline.lab.statistics import means
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, Role, last_change
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult

DIMENSIONS, CLAIMS = 5, 5
NAMES = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
OUTLIERS, NOT_APPLICABLE = 0.05, 0.05
PROCESSES = (
    *("claims", "dimension", "agent", "world", "ar5", "ar8", "heavy", "skewed", "ceiling", "apart"),
    *("holiday", "upgrade", "sinking", "few"),
)
BASELINE_END = datetime(2026, 6, 1, tzinfo=UTC)


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

    def generator(self, seed: int) -> np.random.Generator:
        place = PROCESSES.index(self.process)
        return np.random.default_rng([seed, self.agents, round(10 * self.week), self.samples, self.windows, place])


def judged(generator: np.random.Generator, truth: np.ndarray, spreads: np.ndarray, count: int) -> np.ndarray:
    """Return (..., count) verdicts on claims whose true scores are ``truth``; NaN: not applicable."""
    shape = (*truth.shape, count)
    noisy = truth[..., None] + generator.standard_normal(shape) * spreads[..., None]
    scores = np.clip(np.rint(noisy), 0, 9)
    odd = generator.random(shape)
    scores = np.where(odd < OUTLIERS, generator.integers(0, 10, shape), scores)
    return np.where(odd > 1 - NOT_APPLICABLE, np.nan, scores)


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
    elif cell.process == "holiday":
        low = generator.uniform(0.4, 1.2, (DIMENSIONS, 1))
        drawn[..., cell.windows :] -= np.tile(low, (cell.agents, 1))[..., None] / cell.week
    elif cell.process == "upgrade":
        other = generator.normal(-0.5, 0.5, (DIMENSIONS, CLAIMS, 1))
        drawn[..., cell.windows :] += np.tile(other, (cell.agents, 1, 1)) / cell.week
    elif cell.process == "sinking":
        drawn -= 0.15 * np.arange(windows) / cell.week
    elif cell.process == "apart":
        return drawn * np.where(np.arange(CLAIMS) == 0, 2.0, 0.2)[None, :, None]
    return cell.week * drawn


def evaluated(name: str, samples: Sequence[np.ndarray]) -> DimensionEvaluation:
    """Return a dimension from the verdicts on each of its claims."""
    rows, known = {}, [(f"c{place}", own[np.isfinite(own)].tolist()) for place, own in enumerate(samples)]
    for key, own in known:
        mean = sum(own) / len(own) if own else None
        why = None if own else "not_applicable"
        rows[key] = PropositionResult(id=key, claim=key, raw=mean, score=mean, samples=own, unscored=why)
    scores = [row.score for row in rows.values() if row.score is not None]
    return DimensionEvaluation(
        dimension=name, propositions=rows, score=sum(scores) / len(scores), n_scored=len(scores), n_expected=len(scores),
        proposition_set_hash="set",
    )  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A fleet with its baselines.

    Attributes:
        truth, spreads: (dimensions, claims): level, and sd of the judge.
        weeks: (dimensions, claims, windows): what weeks do, those after the baseline's too.
        series: (dimensions, windows): the scores of the baseline's windows.
    """

    cell: Cell
    truth: np.ndarray
    spreads: np.ndarray
    weeks: np.ndarray
    series: np.ndarray
    watched: Watched

    def judged(self, generator: np.random.Generator, after: np.ndarray, window: int, count: int) -> np.ndarray:
        """Return (dimensions, claims, count) verdicts on a window, the baseline's last being 0."""
        return judged(generator, after + self.weeks[..., self.cell.windows - 1 + window], self.spreads, count)


def drawn(generator: np.random.Generator, cell: Cell, weeks: int = 1) -> Drawn:
    """Return a fleet with its baselines and what the weeks after them do."""
    low, high = (8.0, 9.0) if cell.process == "ceiling" else (6.0, 8.5)
    truth = generator.uniform(low, high, (cell.units, CLAIMS))
    # The claims that collapse have the level 8.
    truth[:DIMENSIONS, 0] = 8.0
    spreads = generator.uniform(0.5, 1.5, truth.shape)
    moved = moves(generator, cell, cell.windows + weeks)
    golden = judged(
        generator,
        truth[..., None] + moved[..., : cell.windows],
        np.repeat(spreads[..., None], cell.windows, axis=-1),
        cell.samples,
    )
    provenance = {"messages_hash": "then", "window_end": BASELINE_END.isoformat()}
    baselines = {}
    for agent in range(cell.agents):
        own = golden[agent * DIMENSIONS : (agent + 1) * DIMENSIONS]
        windows = [
            {name: evaluated(name, list(own[place, :, window])) for place, name in enumerate(NAMES)}
            for window in range(cell.windows)
        ]
        baselines[f"a{agent}"] = captured(f"a{agent}", windows, provenance, now=BASELINE_END)
    return Drawn(cell, truth, spreads, moved, means(np.swapaxes(means(golden), 1, 2)), Watched(cell.agents, baselines))


def told(
    baseline: Baseline, dimensions: Mapping[str, DimensionEvaluation], watched: Watched, week: int
) -> tuple[BaselineComparison, dict[str, list[str]]]:
    """Return what is said of an agent's window, and what is worth judging again."""
    end = (BASELINE_END + timedelta(weeks=week)).isoformat()
    provenance = {"messages_hash": "now", "window_end": end}
    item = Compared(compare(baseline.agent_id, dimensions, baseline), dimensions, baseline, provenance)
    return settled(item, watched), to_confirm(item)


def decided(
    generator: np.random.Generator, made: Drawn, after: np.ndarray, window: int = 1, agents: Sequence[int] | None = None
) -> list[BaselineComparison]:
    """Return what is said of a window of some agents, what dropped judged again."""
    cell, found = made.cell, []
    now = made.judged(generator, after, window, cell.samples)
    more = made.judged(generator, after, window, CONFIRMATIONS)
    for agent in range(cell.agents) if agents is None else agents:
        rows = slice(agent * DIMENSIONS, (agent + 1) * DIMENSIONS)
        samples = {name: list(own) for name, own in zip(NAMES, now[rows], strict=True)}
        baseline = made.watched.baselines[f"a{agent}"]
        dimensions = {name: evaluated(name, own) for name, own in samples.items()}
        comparison, again = told(baseline, dimensions, made.watched, window)
        if again:
            for name, keys in again.items():
                for place in (int(key[1:]) for key in keys):
                    samples[name][place] = np.concatenate([samples[name][place], more[rows][NAMES.index(name), place]])
            dimensions = {name: evaluated(name, own) for name, own in samples.items()}
            comparison, _ = told(baseline, dimensions, made.watched, window)
        found.append(comparison)
    return found


TALKS, MESSAGES, IN_CHARACTER, CORRELATION, READING_ERROR = 6, 6, 0.98, 0.1, 0.03


def talks(generator: np.random.Generator, share: float, number: int) -> list[tuple[int, int, int]]:
    """Return what a reader says of conversations: numbers of messages in character, out of it, and unclear."""
    spread = (1 - CORRELATION) / CORRELATION
    shares = generator.beta(share * spread, (1 - share) * spread, number)
    read = shares * (1 - READING_ERROR) + (1 - shares) * READING_ERROR
    return [(int(count), MESSAGES - int(count), 0) for count in generator.binomial(MESSAGES, read)]


def messages_fell(generator: np.random.Generator, cell: Cell, share: float) -> bool:
    """Return whether the share of an agent's messages in character fell below that of its baseline."""
    number = 2 if cell.process == "few" else TALKS
    before, now = talks(generator, IN_CHARACTER, number * cell.windows), talks(generator, share, number)
    drop = share_drop(before, now, LEVEL / cell.agents)
    change = last_change(
        [item for place, own in enumerate([*before, *now]) for item in verdicts_of(generator, place, own)]
    )
    return bool(drop and drop.fell) or bool(change and change.is_drift)


def verdicts_of(generator: np.random.Generator, talk: int, counts: tuple[int, int, int]) -> list[MessageVerdict]:
    """Return the verdicts on a conversation, in any order."""
    roles = generator.permutation([Role.IN] * counts[0] + [Role.OUT] * counts[1])
    start = BASELINE_END + timedelta(hours=talk)
    return [
        MessageVerdict(
            message=f"{talk}.{n}", conversation=f"c{talk}", said_at=start + timedelta(minutes=n), verdict=role
        )
        for n, role in enumerate(map(Role, roles))
    ]


def is_grey(comparison: BaselineComparison) -> bool:
    """Return whether something is undecided."""
    return any(item.status == "undecided" or item.undecided_claims for item in comparison.dimensions.values())


COLLAPSES = (1, 2, 3, 5)


def simulate(cell: Cell, runs: int, seed: int) -> tuple[Counter[str], float]:
    """Return how often each scenario of a cell is red and not green, and the median of the smallest drops printed."""
    generator, counts, power = cell.generator(seed), Counter[str](), []
    for _ in range(runs):
        made = drawn(generator, cell)
        same = decided(generator, made, made.truth)
        red = any(item.regressed for item in same) or bool(together(same))
        by_messages = any(messages_fell(generator, cell, IN_CHARACTER) for _ in same)
        counts["healthy red"] += red
        counts["healthy messages"] += by_messages
        counts["healthy grey"] += not red and any(map(is_grey, same))
        power += [row.power.detectable for row in same[0].dimensions.values() if row.power]
        for claims in COLLAPSES:
            after = made.truth.copy()
            after[np.arange(claims), 0] = 0.0
            _count(counts, f"{claims} claims", decided(generator, made, after, agents=[0]))
        after = made.truth.copy()
        after[0] -= 2.0
        found = decided(generator, made, after, agents=[0])
        _count(counts, "down by 2", found)
        counts["half red"] += any(item.regressed for item in found) or messages_fell(generator, cell, 0.5)
        found = decided(generator, made, made.truth - 4.0)
        _count(counts, "all by 4", found)
        counts["all dropped"] += bool(together(found))
    return counts, float(np.median(power))


def together(found: Sequence[BaselineComparison]) -> list[str]:
    """Return the dimensions in which half of the agents dropped."""
    return [item.message for item in all_dropped([Compares(item) for item in found], Rules())]  # pyright: ignore


@dataclass(frozen=True)
class Compares:
    """A report of which only the comparison is looked at."""

    comparison: BaselineComparison


def _count(counts: Counter[str], scenario: str, found: Sequence[BaselineComparison]) -> None:
    counts[f"{scenario} red"] += any(item.regressed for item in found)
    counts[f"{scenario} not green"] += any(item.regressed or is_grey(item) for item in found)


def share(hits: float, tries: int) -> str:
    """Return a share with Wilson's 95 % interval."""
    low, high = binomtest(round(hits), tries).proportion_ci(method="wilson")
    return f"{hits / tries:.3f} ({low:.2f}-{high:.2f})"


SCENARIOS = (*(f"{claims} claims" for claims in COLLAPSES), "down by 2", "all by 4")
HEADER = (
    "| what a week moves | agents | c | judgments | windows | healthy: red | by messages | inconclusive "
    f"| {' | '.join(SCENARIOS)} | all dropped | half: with messages | power |\n"
    f"|:--|--:|--:|--:|--:|:--|:--|:--|{'--:|' * len(SCENARIOS)}--:|--:|--:|"
)


def line(cell: Cell, runs: int, seed: int) -> str:
    """Return one line of the grid."""
    counts, power = simulate(cell, runs, seed)
    pairs = (f"{counts[f'{name} red'] / runs:.2f} / {counts[f'{name} not green'] / runs:.2f}" for name in SCENARIOS)
    return (
        f"| {cell.process} | {cell.agents} | {cell.week:g} | {cell.samples} | {cell.windows} "
        f"| {share(counts['healthy red'], runs)} | {counts['healthy messages'] / runs:.3f} "
        f"| {share(counts['healthy grey'], runs)} | {' | '.join(pairs)} | {counts['all dropped'] / runs:.2f} "
        f"| {counts['half red'] / runs:.2f} | {power:.1f} |"
    )


def run_guard() -> None:
    """Print the grid as Markdown."""
    parser = argparse.ArgumentParser(description="False alarms and detection of the guard.")
    parser.add_argument("--runs", type=int, default=300, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 4, 20])
    parser.add_argument("--weeks", type=float, nargs="+", default=[0.5])
    parser.add_argument("--samples", type=int, nargs="+", default=[3])
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--process", choices=PROCESSES, nargs="+", default=PROCESSES[:1], help="what a week moves alike"
    )
    options = parser.parse_args()
    print(f"{options.runs} runs a cell, seed {options.seed}; shares of runs: red / not green\n\n{HEADER}")
    for process in options.process:
        for agents in options.agents:
            for week in options.weeks:
                for samples in options.samples:
                    for windows in options.windows:
                        print(
                            line(Cell(agents, week, samples, windows, process), options.runs, options.seed), flush=True
                        )


YEAR_WEEKS, DOWN_SEEN = 26, (6, 13)


def year(cell: Cell, runs: int, seed: int, fall: float = 0.0) -> dict[str | int, float]:
    """Return in how many years what is reported: of the fleet without any change, else of the one dimension that dropped."""
    generator, found = cell.generator(seed), dict.fromkeys(("red", "moved", *DOWN_SEEN), 0.0)
    for _ in range(runs):
        made = drawn(generator, cell, YEAR_WEEKS)
        after, series, red = made.truth.copy(), [made.series], False
        after[0] -= fall
        for week in range(1, YEAR_WEEKS + 1):
            red |= any(item.regressed for item in decided(generator, made, after, week, [0] if fall else None))
            now = made.judged(generator, after, week, cell.samples)
            series.append(means(np.swapaxes(means(now[:, :, None, :]), 1, 2)))
        held = winnings(np.concatenate(series, axis=1)) > math.log(CERTAIN * cell.units)
        moved = held[0] if fall else held.any(axis=0)
        found["red"] += red
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
                    found = [same["red"], same["moved"], down["red"], *(down[n] for n in DOWN_SEEN)]
                    shares = " | ".join(share(value * options.runs, options.runs) for value in found)
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
    print("| c | series | moved | textbook |\n|--:|:--|:--|:--|")
    for week in (0.0, 0.5, 1.0):
        for scenario in ("steady", "drift", "one of four"):
            generator = np.random.default_rng([options.seed, round(week * 10), options.weeks])
            found = dict.fromkeys(("moved", "textbook"), 0)
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


COMMANDS = {"guard": run_guard, "year": run_year, "trend": run_trend}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
