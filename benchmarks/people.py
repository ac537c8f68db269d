"""Worlds whose truth is known: how far the numbers that rest on people's labels hold.

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

**belief**

How often people's labels make a judge believed that never reads, and one that reads, in worlds the rule was not made from.

    OPENBLAS_NUM_THREADS=1 python benchmarks/people.py belief [--runs 1000]

``cast``: 12 agents, 8 claims, 6 windows, of which some collapse. ``faults``: one agent, nine behaviours that people
call true (9) or false (0), true in 2 to 35 % of 60 windows. ``fleet``: 30 agents, 5 claims, one window each, all good (around 8).
Every second claim is turned round. People err by sd 1 (``faults``: one in ten answers). *Dice*, *usual* and *own usual* never
read: they throw dice within polarity, give each claim its usual score, give each claim of each agent its own.
"""

import argparse
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
from persona_pipeline.evaluation.calibrate import OF_A_CLAIM, Judgment, judged_population
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.baselines.models import Measure
from persona_pipeline.guard.calibration.calibrate import Rated, belief_of, within_claims
from persona_pipeline.guard.calibration.judge_change import Anchor, JudgeName, judge_change
from persona_pipeline.guard.calibration.measures import spearman
from persona_pipeline.guard.labels.files import LABELS, Label, label_of, write_label_files
from persona_pipeline.judging.verdict import Evidence, JudgeRequest, Verdict
from persona_pipeline.testing.worlds import FIRST_MESSAGE, WorldBuilder
from persona_pipeline.viewer.labels import labelling_order
from persona_pipeline.world import World
from tests.support.replaying import recording

Numbers = np.ndarray


def _whole(values: Numbers) -> Numbers:
    return np.clip(np.rint(values), 0, 9)


def share(hits: float, tries: int) -> str:
    """Return a share with Wilson's 95 % interval."""
    from scipy.stats import binomtest

    found = binomtest(round(hits), tries).proportion_ci(method="wilson")
    return f"{hits / tries:.3f} ({found.low:.2f}-{found.high:.2f})"


def options_of(runs: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def holds(measure: Measure, truth: float) -> bool:
    return measure.low is not None and measure.high is not None and measure.low - 1e-9 <= truth <= measure.high + 1e-9


def width(measure: Measure) -> float:
    return (measure.high or 0.0) - (measure.low or 0.0)


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


def _rank_of(rated: Sequence[Rated]) -> Measure:
    judged = [item.judge for item in rated if item.judge is not None]
    return spearman(judged, [item.people[0] for item in rated if item.people[0] is not None])


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
                    found = belief_of(labels, _rank_of(rated), within_claims(rated))
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


def _label(item: Judgment, judge: Lenient) -> Label:
    return label_of(item.request, judge.person(item.request), labeller="eva")


def _within(interval: tuple[float, float] | None, truth: float) -> float | None:
    return None if interval is None else float(interval[0] - 1e-9 <= truth <= interval[1] + 1e-9)


COMMANDS = {
    "ranks": run_ranks,
    "canary": run_canary,
    "truth": run_truth,
    "belief": run_belief,
}


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"{__doc__}\nname one of {', '.join(COMMANDS)}")
    sys.exit(COMMANDS[sys.argv.pop(1)]())
