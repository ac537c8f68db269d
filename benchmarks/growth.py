"""How what a process takes grows with agents, runs, messages, recordings, labels, traces and commits: `scale.py growth`.

    python benchmarks/scale.py growth [--what agents,runs] [--database sqlite] [--rounds 2]

CPU seconds and most memory of whole processes (with Postgres, the server's CPU too), at one, four and sixteen times a size, and
at next to nothing, which is the start. Fitted is t = a + b n^k, where a is what the start took. All sizes of a row are measured
by turns, so often as ``--rounds`` says; how far repeated measurements lie apart, over all rows together, is the error of each.
In brackets: where k lies with 98 % (profile likelihood).

    flat      the largest takes hardly more than the start: less than 5 % of it, or than three times the error
    ok        k is at most 1.1
    little    what grows is so little that the interval of k is wider than 1
    not sure  k is above, but the lower end is not; measured once more before this is said
    GROWS     the lower end of k is above 1.1

Ends with 1 where something grows, and with 3 where nothing does but something is not sure.
"""

import argparse
import json
import math
import os
import resource
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.scale import Place, Row, write_files

LIMIT = 1.1
# Of the standard normal: 98 % of it lie within, 1 % below and above.
WITHIN = 2.326
LEAST_ERROR = {"CPU seconds": 0.02, "MB": 0.005}
# What imports take for a moment is there for what comes then.
SPARE = {"CPU seconds": 0.0, "MB": 0.1}
MEASURED = {"CPU seconds": "CPU s", "MB": "MB"}
# A run that finds something, cannot tell or lacks recordings has done its work too.
ENDS = (0, 1, 3, 4)
Measure = Callable[[Place], Row]


@dataclass(frozen=True)
class Axis:
    """What grows, and what is measured as it does.

    Attributes:
        sizes: the start, and one, four and sixteen times a size.
        unit: what sizes count.
        rows: what is measured, by its name, again in each round.
        once: what changes what is measured, so in the first round alone; before the others.
    """

    sizes: tuple[int, int, int, int]
    unit: str
    build: Callable[[Place, int], object]
    rows: Mapping[str, Measure]
    once: Mapping[str, Measure]


class Fit(NamedTuple):
    """An exponent with its interval; all None: flat."""

    exponent: float | None
    low: float | None
    high: float | None

    @property
    def state(self) -> str:
        if self.exponent is None or self.low is None or self.high is None:
            return "flat"
        if self.low > LIMIT:
            return "GROWS"
        if self.high - self.low > 1:
            return "little"
        return "ok" if self.exponent <= LIMIT else "not sure"


def fitted(sizes: Sequence[int], values: Sequence[Sequence[float]], error: float, spare: float = 0.0) -> Fit:
    """Fit t = a + b n^k to what sizes took, the first of which is the start.

    ``error``: relative, of one measurement. ``spare``: the share (0-1) of the start that may be free again when the work begins,
    as memory is: then a is less than the start took, and sizes that do not show above it say nothing.
    """
    means = [statistics.fmean(found) for found in values]
    errors = [error * mean / math.sqrt(len(found)) for mean, found in zip(means, values, strict=True)]
    hidden = [mean - means[0] < 3 * math.hypot(errors[0], own) for mean, own in zip(means, errors, strict=True)]
    if hidden[-1] or means[-1] < 1.05 * means[0]:
        return Fit(None, None, None)
    told = [number for number in range(len(sizes)) if not number or not spare or not hidden[number]]
    tried = [step / 100 for step in range(1, 401)]
    misfits = [
        min(
            _misfit(
                [(sizes[number] / sizes[-1]) ** k for number in told],
                [means[number] - (0 if number else step / 5 * spare * means[0]) for number in told],
                [errors[number] for number in told],
            )
            for step in (range(6) if spare else (0,))
        )
        for k in tried
    ]
    least = min(misfits)
    inside = [k for k, misfit in zip(tried, misfits, strict=True) if misfit <= least + WITHIN**2]
    return Fit(tried[misfits.index(least)], inside[0], inside[-1])


def _misfit(powers: Sequence[float], means: Sequence[float], errors: Sequence[float]) -> float:
    """Return chi squared of the best a + b x."""
    weights = [1 / error**2 for error in errors]
    total = sum(weights)
    x = sum(w * p for w, p in zip(weights, powers, strict=True)) / total
    y = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    spread = sum(w * (p - x) ** 2 for w, p in zip(weights, powers, strict=True))
    b = sum(w * (p - x) * (m - y) for w, p, m in zip(weights, powers, means, strict=True)) / spread
    return sum(w * (m - y - b * (p - x)) ** 2 for w, p, m in zip(weights, powers, means, strict=True))


Found = dict[tuple[str, str], list[list[float]]]


def measured(axis: Axis, rounds: int, *, postgres: bool) -> tuple[Found, dict[str, float], dict[tuple[str, str], Fit]]:
    """Measure an axis; return what each row took at each size, the errors, and the fits."""
    found: Found = defaultdict(lambda: [[] for _ in axis.sizes])

    def one_round(rows: Mapping[str, Measure]) -> None:
        for name, measure in rows.items():
            for number, place in enumerate(places):
                row = measure(place)
                for kind in MEASURED:
                    found[name, kind][number].append(row[kind])

    with ExitStack() as stack:
        places = []
        for size in axis.sizes:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            places.append(Place(folder, stack, postgres=postgres))
            axis.build(places[-1], size)
        one_round(axis.once)
        for _ in range(rounds):
            one_round(axis.rows)
        errors, fits = _fits(axis, found)
        if unsure := {name for (name, _), fit in fits.items() if fit.state in ("GROWS", "not sure")}:
            one_round({name: measure for name, measure in axis.rows.items() if name in unsure})
            errors, fits = _fits(axis, found)
    return found, errors, fits


def _fits(axis: Axis, found: Found) -> tuple[dict[str, float], dict[tuple[str, str], Fit]]:
    errors = {
        kind: pooled([values for (_, k), rows in found.items() if k == kind for values in rows]) for kind in MEASURED
    }
    errors = {kind: max(error, LEAST_ERROR[kind]) for kind, error in errors.items()}
    return errors, {key: fitted(axis.sizes, values, errors[key[1]], SPARE[key[1]]) for key, values in found.items()}


def pooled(groups: Sequence[Sequence[float]]) -> float:
    """Return the relative error of one measurement, from all that were repeated."""
    squares = [(value / statistics.fmean(group) - 1) ** 2 for group in groups if len(group) > 1 for value in group]
    free = sum(len(group) - 1 for group in groups)
    return math.sqrt(sum(squares) / free) if free else 0.0


def everything(place: Place) -> Row:
    """Evaluate everybody."""
    return place.product("evaluate", "--format", "json", "--output", "report.json", ends=ENDS)


def one(place: Place, *more: str) -> Row:
    """Evaluate one agent."""
    return place.product("evaluate", "--agents", NAME, "--format", "json", "--output", "one.json", *more, ends=ENDS)


def page(place: Place) -> Row:
    """Draw the page of everybody."""
    return place.product("report", "--format", "html", "--output", "page.html")


def whole_history(place: Place) -> Row:
    """Evaluate all that one agent ever said."""
    return one(place, "--window", "all")


def said_by(*command: str) -> Measure:
    """Return what measures a command."""
    return lambda place: place.product(*command, ends=ENDS)


def looks(place: Place) -> Row:
    """Let the sensors look nine times, one of which sees a change."""
    return place.step("look")


def world_of(place: Place, agents: int, messages: int, *, days: int = 14) -> None:
    """Write a world and bring its messages in."""
    write_files(place.root, agents, messages, days=days, files=max(1, agents // 10))
    place.step("sync")


def agents_world(place: Place, agents: int) -> None:
    world_of(place, agents, 40 * agents)
    place.step("record")


def runs_world(place: Place, runs: int) -> None:
    world_of(place, 20, 800)
    place.step("record")
    place.step("runs", runs)


def messages_world(place: Place, messages: int) -> None:
    """Write a world whose messages are brought in by what is measured."""
    write_files(place.root, 40, messages)


def append(place: Place) -> Row:
    """Append a line to the messages and bring it in."""
    file = place.root / "messages/part000.jsonl"
    last = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    last["id"] += "+"
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(last) + "\n")
    return place.step("sync")


def recordings_world(place: Place, weeks: int) -> None:
    world_of(place, 20, 20 * 20 * 2 * RECORDED_WEEKS, days=7 * 2 * RECORDED_WEEKS)
    place.step("record", weeks)


def labels_world(place: Place, weeks: int) -> None:
    world_of(place, 20, 20 * 20 * RECORDED_WEEKS, days=7 * RECORDED_WEEKS)
    place.step("record", RECORDED_WEEKS, weeks)


def traces_world(place: Place, spans: int) -> None:
    """Write a world of four agents, and traces."""
    write_files(place.root, 4, 1)
    place.step("traces", spans)


def commits_world(place: Place, commits: int) -> None:
    """Write a repository of so many commits."""
    place.step("commits", commits)


NAME = "agent-0003"
RECORDED_WEEKS = 16
ANN = ("ann", "--window", "all")
QUADRATIC = "quadratic"
_QUADRATIC = "import sys; n = int(sys.argv[1]); print(sum(range(n * n * 3000)))"
AXES: Mapping[str, Axis] = {
    "agents": Axis(
        (4, 12, 48, 192), "agents with 40 messages each", agents_world,
        {"evaluate one": one, "sensors look": looks, "report as a page": page, "validate": said_by("validate")},
        {"evaluate everybody": everything, "everybody in Dagster": lambda place: place.everybody()},
    ),
    "runs": Axis(
        (1, 20, 80, 320), "saved runs of each of 20 agents", runs_world,
        {"evaluate one": one, "report as a page": page, "sensors look": looks},
        {"evaluate everybody": everything},
    ),
    "messages": Axis(
        (40, 2_500, 10_000, 40_000), "messages of 40 agents", messages_world,
        {
            "one line more": append, "evaluate one": one, "evaluate one, all it said": whole_history,
            "watch one": said_by("watch", "--once", "--agents", NAME),
        },
        {"bring in": lambda place: place.step("sync")},
    ),
    "recordings": Axis(
        (1, 2, 8, 32), "weeks recorded, 380 judgments each", recordings_world,
        {"evaluate one": one, "validate": said_by("validate"), "unused recordings": said_by("recordings", "unused")},
        {},
    ),
    "labels": Axis(
        (0, 1, 4, 16), "weeks labelled, 380 judgments each", labels_world,
        {"evaluate one": one, "calibrate": said_by("calibrate"), "list labels": said_by("labels", "list")},
        {},
    ),
    "traces": Axis(
        (10, 400, 1_600, 6_400), "spans in conversations of ten turns", traces_world,
        {}, {"ingest": said_by("ingest", "traces.jsonl"), "collect": lambda place: place.step("collect")},
    ),
    "commits": Axis(
        (3, 8, 32, 128), "commits", commits_world,
        {"bisect": said_by("bisect", *ANN), "changes": said_by("changes", "start")}, {},
    ),
    # A process known to be quadratic shows that this benchmark sees one. It must end with GROWS, so it is asked for by name.
    QUADRATIC: Axis(
        (1, 10, 20, 40), "steps of a quadratic process", lambda place, size: (place.folder / "n").write_text(str(size)),
        {"quadratic": lambda place: place.process("-c", _QUADRATIC, (place.folder / "n").read_text())}, {},
    ),
}  # fmt: skip


def run_growth(arguments: Sequence[str]) -> int:
    """Measure, print, and return how it ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--what",
        default=",".join(name for name in AXES if name != QUADRATIC),
        help="what grows, with commas between; by default all but quadratic",
    )
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=2)
    told = parser.parse_args(arguments)
    states: set[str] = set()
    for what in told.what.split(","):
        axis = AXES[what]
        found, errors, fits = measured(axis, told.rounds, postgres=told.database == "postgres")
        shown = ", ".join(f"{kind} {error:.1%}" for kind, error in errors.items())
        print(f"\n{what} on {told.database}: {axis.unit}; load {os.getloadavg()[0]:.1f}; error of one: {shown}")
        print(f"{'':<27}{'':<6}" + "".join(f"{size:>10,}" for size in axis.sizes) + f"{'n':>4}  exponent")
        for (name, kind), values in found.items():
            fit, means = fits[name, kind], [statistics.fmean(value) for value in values]
            exponent = "" if fit.exponent is None else f"{fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}] "
            figures = "".join(f"{mean:>10.1f}" if kind == "MB" else f"{mean:>10.2f}" for mean in means)
            print(f"{name:<27}{MEASURED[kind]:<6}{figures}{len(values[-1]):>4}  {exponent}{fit.state}", flush=True)
        states |= {fit.state for fit in fits.values()}
    spent = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"\n{spent:.0f} CPU seconds in all; exponents above {LIMIT}: {'yes' if 'GROWS' in states else 'none'}")
    return 1 if "GROWS" in states else 3 if "not sure" in states else 0
