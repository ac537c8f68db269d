"""Worlds whose truth is known: how far the numbers that rest on people's labels hold.

**all**

Whether the mean that people would give all judgments lies within the interval that `calibrate` prints, and how wide that is.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py all [--runs 1000] [--labels 50]

Judgments of 12 agents, 8 claims and 6 windows, 0-9 and whole. People's score = agent + claim + judgment, the judge's = the same,
seen through its quality: each line is one. Labels are random within strata of the judge's score; *alone*: what they give by
themselves.

**one**

Whether what people would give one agent's newest window lies within its interval: nothing happened, or all its claims fell by 4 and
no label is of that window; ``labelled``: ten labels of it more.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py one [--runs 300] [--labels 50]

Three worlds: ``cast`` (12 agents, 8 claims, 6 windows, around 5.8), ``high`` (30 agents, 5 claims, 8 windows, around 7.2), ``few``
(4 agents, 6 claims that differ much, 10 windows). One person who errs by sd 1 or by .5, or two who err by 1.2. The truth is what
nobody's error is in. Bias is of the estimate, in points.

**faults**

The same as *all* for nine behaviours that people call true (9) or false (0), true in .02 to .35 of 600 judgments, by two people
whose kappa is .2, .4 or .6: coverage, and how many misses lie on either side of the interval.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py faults [--runs 1000]

The judge says yes or no (right .85 of the time and else as often as people do), gives scores (7 or 2, sd 2), or throws dice.
Labels are drawn as `label` draws them.

**ranks**

Whether a true rank correlation lies within the interval that is printed, where ratings have two peaks and ties.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py ranks [--runs 1000]

**canary**

How often a judge that changed is found out, and one that did not is suspected, by number of anchors.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py canary [--runs 500]

A scripted judge of five dimensions of eight claims whose truth is known: its error is partly its own (the same whenever it is
asked) and partly chance, scores are 0-9 and whole; anchors are drawn as `canary` draws them. *Labelled*: people rated every anchor,
with an error of their own. *Recorded*: only the earlier judge's verdicts are known. Worlds: ``mixed`` (claims and judgments
differ by sd 1.4 each), ``claims`` (claims by 2, their judgments by 1), ``collapses`` (all around 7, one judgment in five 4 lower).

**truth**

End to end: how far each printed number is from what was planted, and how often its interval does not hold it, which is what a
careful reader would believe wrongly.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py truth [--runs 300]

Worlds of four agents, six claims (two of them turned round) and eight weeks, evaluated by the package itself: a baseline of the
first seven weeks, judged live by a judge who sees half of the scale (lenient), adds an agent's bias (sd .7) and noise (sd 1.5);
50 labels of one person (sd 1) in the order of ``label``, all of the first seven weeks. In the eighth ann falls by 4 and bob by 2.
Last, ann's newest window is labelled too.

**belief**

How often people's labels make a judge believed that never reads, and one that reads, in worlds the rule was not made from.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py belief [--runs 1000]

``cast``: 12 agents, 8 claims, 6 windows, of which some collapse. ``faults``: one agent, nine behaviours that people
call true (9) or false (0), true in 2 to 35 % of 60 windows. ``fleet``: 30 agents, 5 claims, one window each, all good (around 8).
Every second claim is turned round. People err by sd 1 (``faults``: one in ten answers). *Dice*, *usual* and *own usual* never
read: they throw dice within polarity, give each claim its usual score, give each claim of each agent its own.
"""

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.calibrate import OF_A_CLAIM, calibrate_world, judged_population
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.calibration.calibrate import Rated, agreement, belief_of, within_claims
from persona_pipeline.guard.calibration.judge_change import Anchor, JudgeName, judge_change
from persona_pipeline.guard.calibration.measures import bias, spearman
from persona_pipeline.guard.calibration.peoples import PeoplesScores, PersonsError, peoples_mean
from persona_pipeline.guard.labels.files import LABELS, Label, label_of, write_label_files
from persona_pipeline.guard.labels.session import Judgment, labelling_order
from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Verdict
from persona_pipeline.testing.worlds import FIRST_MESSAGE, WorldBuilder
from persona_pipeline.world import World
from tests.support.replaying import recording

AGENTS, CLAIMS, WINDOWS = 12, 8, 6
Numbers = np.ndarray
Judging = Callable[[np.random.Generator, Numbers, Numbers], Numbers]


def _whole(values: Numbers) -> Numbers:
    return np.clip(np.rint(values), 0, 9)


# What a judge makes of what people mean, by name; ``agent`` is the index of the agent.
JUDGES: dict[str, Judging] = {
    "good": lambda g, people, agent: _whole(people + g.normal(0, 0.8, people.shape)),
    "noisy": lambda g, people, agent: _whole(people + g.normal(0, 2.5, people.shape)),
    "mild: +1.5, all high": lambda g, people, agent: _whole(7.5 + 0.35 * (people - 5) + g.normal(0, 0.8, people.shape)),
    "unlike by agent": lambda g, people, agent: _whole(
        people + g.normal(0, 1, AGENTS)[agent] + g.normal(0, 1.2, people.shape)
    ),
    "knows no middle": lambda g, people, agent: np.where(people + g.normal(0, 1.5, people.shape) > 5.5, 9.0, 1.0),
    "chance": lambda g, people, agent: g.integers(0, 10, people.shape).astype(float),
}


@dataclass(frozen=True)
class CalibrationWorld:
    """Every judgment of a dimension."""

    people: Numbers
    judge: Numbers
    agent: Numbers
    newest: Numbers


def world(generator: np.random.Generator, judging: Judging) -> CalibrationWorld:
    """Return a world judged so."""
    shape = (AGENTS, CLAIMS, WINDOWS)
    people = 5.8 + generator.normal(0, 1, (AGENTS, 1, 1)) + generator.normal(0, 1, (1, CLAIMS, 1))
    people = _whole(people + generator.normal(0, 1.5, shape)).ravel()
    agent, _, window = (values.ravel() for values in np.indices(shape))
    return CalibrationWorld(people, judging(generator, people, agent), agent, window == WINDOWS - 1)


def sampled(generator: np.random.Generator, judge: Numbers, count: int) -> Numbers:
    """Return which judgments are labelled: random within three strata of the judge's score, as many of each where it can be."""
    groups = [np.flatnonzero(np.digitize(judge, (4, 7)) == part) for part in range(3)]
    chosen: list[int] = []
    for left, group in zip((3, 2, 1), sorted(groups, key=len), strict=True):
        chosen += generator.permutation(group)[: (count - len(chosen)) // left].tolist()
    known = np.zeros(len(judge), dtype=bool)
    known[chosen] = True
    return known


def share(hits: float, tries: int) -> str:
    """Return a share with Wilson's 95 % interval."""
    from scipy.stats import binomtest

    found = binomtest(round(hits), tries).proportion_ci(method="wilson")
    return f"{hits / tries:.3f} ({found.low:.2f}-{found.high:.2f})"


def options_of(runs: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def holds(measure: Measure, truth: float) -> bool:
    return measure.low is not None and measure.high is not None and measure.low - 1e-9 <= truth <= measure.high + 1e-9


def width(measure: Measure) -> float:
    return (measure.high or 0.0) - (measure.low or 0.0)


def run_all() -> None:
    from scipy.stats import spearmanr

    options = options_of(1000)
    print(
        f"{options.runs} runs a line, {options.labels} labels of {AGENTS * CLAIMS * WINDOWS} judgments, seed {options.seed}"
    )
    print("| judge | rank correlation | covers | width | alone |\n|:--|--:|--:|--:|--:|")
    for name, judging in JUDGES.items():
        generator = np.random.default_rng(options.seed)
        hits, seen = 0, []
        for _ in range(options.runs):
            made = world(generator, judging)
            known = sampled(generator, made.judge, options.labels)
            found = peoples_mean(made.judge, labels_of(made.people, known))
            alone = bias(made.people[generator.permutation(len(known))[: options.labels]], np.zeros(options.labels))
            hits += holds(found, float(made.people.mean()))
            seen.append((float(np.asarray(spearmanr(made.people, made.judge))[0]), width(found), width(alone)))
        rank, wide, without = np.mean(seen, axis=0)
        print(f"| {name} | {rank:.2f} | {share(hits, options.runs)} | {wide:.2f} | {without:.2f} |", flush=True)


def labels_of(people: Numbers, known: Numbers) -> list[float | None]:
    return [float(score) if labelled else None for score, labelled in zip(people, known, strict=True)]


@dataclass(frozen=True)
class Cast:
    """Whose judgments there are, and standard deviations between agents, claims and judgments."""

    agents: int
    claims: int
    windows: int
    level: float
    agent: float
    claim: float
    judgment: float

    def truth(self, generator: np.random.Generator, fall: float) -> Numbers:
        """Return what nobody's error is in (agents, claims, windows); the first agent's newest window falls."""
        shape = (self.agents, self.claims, self.windows)
        found = self.level + generator.normal(0, self.judgment, shape)
        found += generator.normal(0, self.agent, (self.agents, 1, 1)) + generator.normal(
            0, self.claim, (1, self.claims, 1)
        )
        found = found.clip(0, 9)
        found[0, :, -1] = (found[0, :, -1] - fall).clip(0, 9)
        return found


CASTS = {
    "cast": Cast(12, 8, 6, 5.8, 1, 1, 1.5),
    "high": Cast(30, 5, 8, 7.2, 0.7, 0.5, 1.7),
    "few": Cast(4, 6, 10, 6.0, 1.5, 2, 1.2),
}
READERS: dict[str, Judging] = {
    **{name: JUDGES[name] for name in ("good", "noisy", "knows no middle")},
    "lenient, half a scale": lambda g, people, agent: _whole(9 - (9 - people) / 2 + g.normal(0, 1, people.shape)),
    "unlike by agent": lambda g, people, agent: _whole(
        people + g.normal(0, 1, agent.max() + 1)[agent] + g.normal(0, 1.2, people.shape)
    ),
}
PEOPLE = {"one, sd 1": (1, 1.0), "one, sd .5": (1, 0.5), "two, sd 1.2": (2, 1.2)}


def run_one() -> None:
    options = options_of(300)
    print(f"{options.runs} runs a cell, {options.labels} labels, seed {options.seed}; coverage, bias, width")
    print("| world | judge | people | nothing happened | fell by 4 | labelled: fell by 4 |\n|:--|:--|:--|:--|:--|:--|")
    for kind, cast in CASTS.items():
        for name, judging in READERS.items():
            for who, (raters, error) in PEOPLE.items():
                cells = [
                    one_window(cast, judging, raters, error, fall, more, options)
                    for fall, more in ((0.0, 0), (4.0, 0), (4.0, 10))
                ]
                print(f"| {kind} | {name} | {who} | {' | '.join(cells)} |", flush=True)


def one_window(
    cast: Cast, judging: Judging, raters: int, error: float, fall: float, more: int, options: argparse.Namespace
) -> str:
    """Return coverage, bias and width.

    Args:
        more: labels of the window itself, of as many judgments as it has at most.
    """
    generator, found = np.random.default_rng(options.seed), []
    for _ in range(options.runs):
        truth = cast.truth(generator, fall)
        agent, _, window = (index.ravel() for index in np.indices(truth.shape))
        truth = truth.ravel()
        given = np.stack([_whole(truth + generator.normal(0, error, truth.shape)) for _ in range(raters)], axis=1)
        judge = judging(generator, truth, agent)
        own = (agent == 0) & (window == cast.windows - 1)
        chosen = generator.permutation(np.flatnonzero(~own))[: options.labels]
        chosen = np.concatenate([chosen, generator.permutation(np.flatnonzero(own))[:more]])
        known = np.isin(np.arange(len(truth)), chosen)
        model = PeoplesScores.learnt(
            judge[chosen],
            given[chosen].mean(axis=1),
            agent[chosen].tolist(),
            [raters] * len(chosen),
            PersonsError.learnt(given[chosen].tolist()),
        )
        labels = [float(given[place].mean()) if known[place] else None for place in np.flatnonzero(own)]
        measure = model.mean(0, judge[own], labels, raters=[raters] * len(labels))
        true = float(truth[own].mean())
        found.append((holds(measure, true), (measure.value or 0.0) - true, width(measure)))
    covers, off, wide = np.sum(found, axis=0)
    return f"{share(covers, options.runs)} {off / options.runs:+.2f} {wide / options.runs:.2f}"


RATES, KAPPAS = np.linspace(0.02, 0.35, 9), np.tile((0.2, 0.4, 0.6), 3)
FAULTS_JUDGED = 600


def fault(generator: np.random.Generator, rate: float, kappa: float) -> tuple[Numbers, Numbers]:
    """Return what is so, and the mean of what two people say who agree by that kappa."""
    so = generator.random(FAULTS_JUDGED) < rate
    said = [
        np.where(generator.random(len(so)) < math.sqrt(kappa), so, generator.random(len(so)) < rate) for _ in range(2)
    ]
    return so, np.mean(said, axis=0) * 9


FAULT_JUDGES: dict[str, Callable[[np.random.Generator, Numbers, float], Numbers]] = {
    "yes or no": lambda g, so, rate: 9.0 * np.where(g.random(len(so)) < 0.85, so, g.random(len(so)) < rate),
    "scores": lambda g, so, rate: _whole(np.where(so, 7, 2) + g.normal(0, 2, len(so))),
    "dice": lambda g, so, rate: 9.0 * g.integers(0, 2, len(so)),
}


def in_proportion(generator: np.random.Generator, judge: Numbers, count: int) -> Numbers:
    """Return which judgments are labelled: every so many of them by the judge's score, as ``label`` draws them."""
    order = np.lexsort((generator.random(len(judge)), judge))
    places = ((generator.random() + np.arange(count)) * len(judge) / count).astype(int)
    known = np.zeros(len(judge), dtype=bool)
    known[order[places]] = True
    return known


def run_faults() -> None:
    options = options_of(1000)
    print(
        f"{options.runs} runs a cell, seed {options.seed}; coverage (truth below, above the interval), widths in points"
    )
    columns = [f"{rate:.2f} ({kappa:.1f})" for rate, kappa in zip(RATES, KAPPAS, strict=True)]
    print(f"| judge | labels | rate (kappa) {' | '.join(columns)} | misses | width |\n|:--|--:|{'--:|' * 11}")
    for name, judging in FAULT_JUDGES.items():
        for count in (50, 100, 200):
            cells, all_misses, wide = [], np.zeros(2), []
            for rate, kappa in zip(RATES, KAPPAS, strict=True):
                generator, misses = np.random.default_rng([options.seed, round(1000 * rate), count]), np.zeros(2)
                for _ in range(options.runs):
                    so, people = fault(generator, rate, kappa)
                    judge = judging(generator, so, rate)
                    found = peoples_mean(judge, labels_of(people, in_proportion(generator, judge, count)))
                    true = float(people.mean())
                    misses += (true < (found.low or 0.0) - 1e-9, true > (found.high or 0.0) + 1e-9)
                    wide.append(width(found))
                cells.append(f"{1 - misses.sum() / options.runs:.3f}")
                all_misses += misses
            below, above = all_misses.astype(int)
            print(f"| {name} | {count} | {' | '.join(cells)} | {below}:{above} | {np.mean(wide):.2f} |", flush=True)


def peaks(generator: np.random.Generator, count: int, high: float) -> tuple[Numbers, Numbers]:
    """Return what is so (8 or 1), and what people give."""
    so = np.where(generator.random(count) < high, 8.0, 1.0)
    return so, _whole(so + generator.normal(0, 0.7, count))


def turned(generator: np.random.Generator, so: Numbers, wrong: float) -> Numbers:
    return np.where(generator.random(len(so)) < wrong, 9 - so, so)


RATINGS: dict[str, Callable[[np.random.Generator, int], tuple[Numbers, Numbers]]] = {
    "one peak, noisy": lambda g, n: (lambda t: (_whole(t + g.normal(0, 2.5, n)), _whole(t + g.normal(0, 1, n))))(
        g.normal(5.5, 2, n)
    ),
    **{
        f"two peaks, {high:.0%} high, wrong {wrong:.0%}": lambda g, n, high=high, wrong=wrong: (
            lambda so, people: (_whole(turned(g, so, wrong) + g.normal(0, 0.7, n)), people)
        )(*peaks(g, n, high))
        for high, wrong in ((0.5, 0.15), (0.2, 0.15), (0.1, 0.15), (0.5, 0.02))
    },
    "two peaks, lenient judge": lambda g, n: (
        lambda so, people: (_whole(np.where(so > 5, 8.5, 6.5) + g.normal(0, 1.5, n)), people)
    )(*peaks(g, n, 0.5)),
    **{
        f"yes or no, {high:.0%} yes": lambda g, n, high=high: (
            lambda so: (9.0 * turned(g, so, 0.15), turned(g, so, 0.1))
        )(np.where(g.random(n) < high, 9.0, 0.0))
        for high in (0.3, 0.1)
    },
}


def run_ranks() -> None:
    from scipy.stats import spearmanr

    options = options_of(1000)
    print(f"{options.runs} runs a cell, seed {options.seed}; of 200,000 ratings")
    print("| ratings | true | covers, 50 labels | 100 labels | width, 50 |\n|:--|--:|--:|--:|--:|")
    for name, made in RATINGS.items():
        generator = np.random.default_rng(options.seed)
        judge, people = made(generator, 200_000)
        true, cells, wide = float(np.asarray(spearmanr(judge, people))[0]), [], []
        for count in (50, 100):
            hits = tries = 0
            while tries < options.runs:
                drawn = generator.integers(0, len(judge), count)
                found = spearman(judge[drawn].tolist(), people[drawn].tolist())
                if found.value is None:
                    continue
                tries += 1
                hits += holds(found, true)
                wide.append(width(found))
            cells.append(share(hits, tries))
        print(f"| {name} | {true:.2f} | {' | '.join(cells)} | {np.mean(wide[: options.runs]):.2f} |", flush=True)


ANCHORS = (20, 40, 80, 160)
DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
BEFORE, NOW = JudgeName(model="before", prompt_version="1"), JudgeName(model="now", prompt_version="1")
# With people whose error has sd 1 and judgments whose truth has sd 2, the judge's rank correlation with people is about .53.
PEOPLES_ERROR, OWN, CHANCE = 1.0, 2.2, 1.0
OF_A_DIMENSION = 8


@dataclass(frozen=True)
class Drift:
    """What became of the judge.

    Attributes:
        sees: how much of the truth it still sees; claims: how much of what a claim usually is; new_errors: its own are others now.
        little: it errs by no more than a point, and its own errors are gone.
    """

    name: str
    sees: float = 1.0
    shift: float = 0.0
    spread: float = 1.0
    new_errors: bool = False
    claims: float = 1.0
    little: bool = False


DRIFTS = (
    Drift("none (the same judge again)"),
    Drift("another judge, as good, unlike errors", new_errors=True),
    Drift("rank correlation .53 -> .12", sees=0.18, claims=0.18, new_errors=True),
    Drift("1 point milder", shift=1.0),
    Drift("1 point stricter, scale half as wide", shift=-1.0, spread=0.5),
    Drift("each claim its usual score", sees=0.0, little=True),
    Drift("each claim its usual score, sd 2", sees=0.0, new_errors=True),
    Drift("dice between 7 and 9", sees=0.0, claims=0.0, shift=1.0, little=True),
)


@dataclass(frozen=True)
class Anchored:
    """Around what judgments are, and by what standard deviation claims and judgments differ; some fall by 4."""

    level: float
    claim: float
    judgment: float
    falls: float = 0.0


ANCHORED = {
    "mixed": Anchored(5.5, 1.4, 1.4),
    "claims": Anchored(5.5, 2.0, 1.0),
    "collapses": Anchored(7.0, 0.5, 0.8, 0.2),
}


def anchors(
    generator: np.random.Generator, count: int, drift: Drift, labelled: bool, kind: Anchored = ANCHORED["mixed"]
) -> list[Anchor]:
    """Return judgments made before and after the drift."""
    dimension, place = np.arange(count) % 5, np.arange(count) // 5
    claim = place // OF_A_CLAIM % OF_A_DIMENSION
    usual = generator.normal(0, kind.claim, (5, OF_A_DIMENSION))[dimension, claim]
    truth = generator.normal(0, kind.judgment, count) - 4 * (generator.random(count) < kind.falls)
    own = generator.normal(0, OWN, count)
    people = _whole(kind.level + usual + truth + generator.normal(0, PEOPLES_ERROR, count))
    before = _whole(kind.level + usual + truth + own + generator.normal(0, CHANCE, count))
    kept = generator.normal(0, OWN, count) if drift.new_errors else own
    errs = generator.integers(-1, 2, count) if drift.little else kept + generator.normal(0, CHANCE, count)
    seen = drift.spread * (drift.claims * usual + drift.sees * truth + errs)
    now = _whole(kind.level - 4 * kind.falls * (1 - drift.sees) + drift.shift + seen)
    return [
        Anchor(
            DIMENSIONS[dimension[at]],
            float(before[at]),
            float(now[at]),
            float(people[at]) if labelled else None,
            str(claim[at]),
        )
        for at in range(count)
    ]


def run_canary() -> None:
    options = options_of(500)
    print(f"{options.runs} runs a cell, seed {options.seed}; share of runs in which the judge counts as changed")
    columns = [f"{count} {kind}" for kind in ("labelled", "recorded") for count in ANCHORS]
    print(
        f"| world | drift | with people, before and now | {' | '.join(columns)} |\n|:--|:--|:--|{'--:|' * len(columns)}"
    )
    for name, kind in ANCHORED.items():
        for drift in DRIFTS:
            generator = np.random.default_rng(options.seed)
            cells, ranks = [], []
            for labelled in (True, False):
                for count in ANCHORS:
                    found = [
                        judge_change(BEFORE, NOW, anchors(generator, count, drift, labelled, kind))
                        for _ in range(options.runs)
                    ]
                    cells.append(f"{np.mean([item.changed for item in found]):.3f}")
                    ranks += [(item.rank_before.value or 0.0, item.rank_now.value or 0.0) for item in found if labelled]
            mean = np.mean(ranks, axis=0)
            print(f"| {name} | {drift.name} | {mean[0]:.2f}, {mean[1]:.2f} | {' | '.join(cells)} |", flush=True)


def believed_worlds(generator: np.random.Generator, kind: str) -> tuple[Numbers, Numbers, Numbers]:
    """Return the truth (agents, claims, windows), what people give, and which claims are turned round."""
    shape = {"cast": (12, 8, 6), "faults": (1, 9, 60), "fleet": (30, 5, 1)}[kind]
    turned = np.arange(shape[1]) % 2 == 1
    if kind == "faults":
        rates = np.linspace(0.02, 0.35, shape[1])[None, :, None]
        truth = np.where(generator.random(shape) < rates, 9.0, 0.0)
        return truth, np.where(generator.random(shape) < 0.1, 9 - truth, truth), np.zeros_like(turned)
    truth = generator.normal(8.0 if kind == "fleet" else 6.5, 1.5, shape)
    if kind == "cast":
        truth += generator.normal(0, 1, shape[:2])[..., None]
        truth -= 4 * (generator.random((shape[0], 1, shape[2])) < 0.15)
    truth = np.where(turned[None, :, None], 9 - truth, truth).clip(0, 9)
    return truth, _whole(truth + generator.normal(0, 1, shape)), turned


def believed_judges(generator: np.random.Generator, truth: Numbers, turned: Numbers) -> dict[str, Numbers]:
    """Return what judges give."""
    down = turned[None, :, None]
    little = generator.integers(-1, 2, truth.shape)
    found = {
        "dice": np.where(down, generator.integers(0, 3, truth.shape), generator.integers(7, 10, truth.shape)),
        "usual": truth.mean((0, 2))[None, :, None] + little,
        "own usual": truth.mean(2)[..., None] + little,
        "lenient": np.where(down, truth / 2, 9 - (9 - truth) / 2) + generator.normal(0, 1, truth.shape),
    }
    noisy = {f"sd {sd}": truth + generator.normal(0, sd, truth.shape) for sd in (1.0, 2.5, 4.0)}
    return {name: _whole(given) for name, given in {**found, **noisy}.items()}


def run_belief() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs, generator = parser.parse_args().runs, np.random.default_rng(20261123)
    for kind in ("cast", "faults", "fleet"):
        for labels in (50, 100):
            believed: dict[str, int] = {}
            for _ in range(runs):
                truth, people, turned = believed_worlds(generator, kind)
                chosen = generator.permutation(truth.size)[:labels]
                agents, claims, _ = (index.tolist() for index in np.unravel_index(chosen, truth.shape))
                for name, given in believed_judges(generator, truth, turned).items():
                    pairs = zip(agents, claims, given.ravel()[chosen], people.ravel()[chosen], strict=True)
                    rated = [
                        Rated(str(n), f"a{a}", "adherence", f"c{c}", j, people=(p,))
                        for n, (a, c, j, p) in enumerate(pairs)
                    ]
                    found = belief_of(
                        labels, agreement((item.judge, item.peoples) for item in rated).rank, within_claims(rated)
                    )
                    believed[name] = believed.get(name, 0) + (found == "believed")
            shown_rates = "  ".join(f"{name} {count / runs:.3f}" for name, count in believed.items())
            print(f"{kind:>6} {labels:>3} labels   {shown_rates}", flush=True)


FELL = {"ann": 4.0, "bob": 2.0, "cid": 0.0, "dee": 0.0}
TRUTH_CLAIMS, TRUTH_WEEKS = 6, 8


@dataclass
class Lenient:
    """A live judge of a world that was planted: it sees half of the scale, likes one agent more than another, and varies."""

    seed: int
    name: str = "lenient"
    live: bool = True

    def truth(self, agent_id: str, claim: int, week: int) -> float:
        """Return what is so, more being better."""
        draw = lambda *of: random.Random(f"{self.seed}/{of}").gauss(0, 1)  # noqa: E731
        level = (
            6.5
            + 0.7 * draw(agent_id)
            + 0.8 * draw(claim)
            + 0.8 * draw(agent_id, claim)
            + 0.6 * draw(agent_id, claim, week)
        )
        return min(max(level - (FELL[agent_id] if week == TRUTH_WEEKS else 0.0), 0.0), 9.0)

    async def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        return [self._verdict(request) for request in requests]

    def person(self, request: JudgeRequest) -> int:
        """Return what the one person who labels says."""
        return self._said(request, random.Random(f"{self.seed}/person/{request.key}").gauss(self._truth(request), 1.0))

    def _truth(self, request: JudgeRequest) -> float:
        week = int(request.trajectory.entries[0].text.split("week ")[1].split()[0])
        return self.truth(request.agent_id, int(request.proposition_id.split("-")[1]), week)

    def _verdict(self, request: JudgeRequest) -> Verdict:
        liked = 0.7 * random.Random(f"{self.seed}/liked/{request.agent_id}").gauss(0, 1)
        noise = random.Random(f"{self.seed}/{request.key}").gauss(0, 1.5)
        score = self._said(request, 9 - (9 - self._truth(request)) / 2 + liked + noise)
        first = request.trajectory.entries[0]
        quote = (Evidence(first.message_id, first.text, verified=True),)
        return Verdict(
            request.proposition_id, score=score, evidence=quote, reasoning=".", model="lenient", prompt_version="1"
        )

    def _said(self, request: JudgeRequest, value: float) -> int:
        turned = int(request.proposition_id.split("-")[1]) % 3 == 2
        return min(max(round(9 - value if turned else value), 0), 9)


def run_truth() -> None:
    options = options_of(300)
    found: dict[str, list[tuple[float, float | None]]] = {}
    for run in range(options.runs):
        with TemporaryDirectory() as folder:
            for name, distance, holds_it in one_truth(Path(folder), Lenient(1000 * options.seed + run)):
                found.setdefault(name, []).append((distance, holds_it))
    print(f"{options.runs} worlds, seed {options.seed}")
    print(
        "| what is printed | times | mean distance from the truth | its interval does not hold it |\n|:--|--:|--:|--:|"
    )
    for name, values in found.items():
        off, wrong = np.mean([abs(value) for value, _ in values]), [held for _, held in values if held is not None]
        believed = share(len(wrong) - sum(wrong), len(wrong)) if wrong else "–"
        print(f"| {name} | {len(values)} | {off:.2f} | {believed} |")


def one_truth(root: Path, judge: Lenient) -> Iterator[tuple[str, float, float | None]]:
    """Yield what is printed, how far it is from the truth, and whether its interval holds it (None: it has none)."""
    builder = WorldBuilder(root)
    for agent_id in FELL:
        builder.persona(agent_id, f"{agent_id.title()} is dry.")
    for number in range(TRUTH_CLAIMS):
        builder.claim("adherence", f"claim-{number}", f"{{{{agent_name}}}} is so, {number}", inverted=number % 3 == 2)
    for week in range(1, TRUTH_WEEKS + 1):
        for place, agent_id in enumerate(FELL):
            when = FIRST_MESSAGE + timedelta(days=7 * (week - 1), hours=place)
            builder.say(agent_id, f"In week {week} {agent_id} mended the kettle again.", at=when)
    world = builder.open(f"sqlite:///{root / 'store.db'}")
    try:
        yield from _printed(world, judge)
    finally:
        world.store.close()


def _printed(world: World, judge: Lenient) -> Iterator[tuple[str, float, float | None]]:
    last = FIRST_MESSAGE + timedelta(days=7 * (TRUTH_WEEKS - 1)) - timedelta(seconds=1)
    asked = recording(judge, world.root / "recordings")
    before = EvaluationRequest(
        as_of=last, update_baseline=True, baseline_windows=TRUTH_WEEKS - 1, dimensions=["adherence"]
    )
    run_evaluation(world, asked, before)
    run_evaluation(world, asked, EvaluationRequest(dimensions=["adherence"]))
    population = judged_population(world)
    newest = max(item.window.end for item in population)
    held = [item for item in population if item.window.end < newest]
    labels = [_label(item, judge) for item in labelling_order(held)[:50]]
    write_label_files(Label, world.root / LABELS, labels)
    report = run_evaluation(world, asked, EvaluationRequest(dimensions=["adherence"])).report
    truths = {
        agent_id: [
            np.mean([judge.truth(agent_id, claim, week) for claim in range(TRUTH_CLAIMS)])
            for week in range(1, TRUTH_WEEKS + 1)
        ]
        for agent_id in FELL
    }
    for agent_id, fall in FELL.items():
        item = report.agents[agent_id].comparison.dimensions["adherence"]
        now, then, what = (
            truths[agent_id][-1],
            np.mean(truths[agent_id][:-1]),
            f"fell by {fall:g}" if fall else "nothing happened",
        )
        yield f"{what}: the judge's score", (item.current or 0.0) - now, None
        yield f"{what}: the judge's change", (item.delta or 0.0) - (now - then), _within(item.interval, now - then)
        right = (item.status == "regressed") == (fall > 0)
        yield f"{what}: {'no fall' if fall else 'a fall'} is reported", float(not right), float(right)
        people = item.people
        if people and people.score is not None:
            yield f"{what}: people's score", people.score - now, _within(people.interval, now)
        if people and people.delta is not None:
            yield (
                f"{what}: change in people's points",
                people.delta - (now - then),
                _within(people.delta_interval, now - then),
            )
    (found,) = [item for item in calibrate_world(world).dimensions if item.judge_model == "lenient"]
    # Of all that was judged, the newest week with it, of which nothing was labelled.
    everything = np.mean([week for own in truths.values() for week in own])
    bounds = (found.people_mean.low or 0.0, found.people_mean.high or 0.0)
    yield (
        "all judged: people's mean, labels of seven weeks of eight",
        (found.people_mean.value or 0.0) - everything,
        _within(bounds, everything),
    )
    write_label_files(
        Label,
        world.root / LABELS,
        [_label(item, judge) for item in population if item.window.end == newest and item.request.agent_id == "ann"],
    )
    people = (
        run_evaluation(world, asked, EvaluationRequest(dimensions=["adherence"]))
        .report.agents["ann"]
        .comparison.dimensions["adherence"]
        .people
    )
    if people and people.score is not None:
        yield (
            "fell by 4, its window labelled: people's score",
            people.score - truths["ann"][-1],
            _within(people.interval, truths["ann"][-1]),
        )


def _label(item: Judgment, judge: Lenient) -> Label:
    return label_of(item.request, judge.person(item.request), labeller="eva")


def _within(interval: tuple[float, float] | None, truth: float) -> float | None:
    return None if interval is None else float(interval[0] - 1e-9 <= truth <= interval[1] + 1e-9)


COMMANDS = {
    "all": run_all,
    "one": run_one,
    "faults": run_faults,
    "ranks": run_ranks,
    "canary": run_canary,
    "truth": run_truth,
    "belief": run_belief,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
