"""What a kill matrix and a noise report say."""

from collections.abc import Iterator, Sequence

from persona_pipeline.lab.claims.matrix import ClaimCell as JudgedCell
from persona_pipeline.lab.claims.matrix import ClaimRow, KillMatrix, SignalReading, Twins
from persona_pipeline.lab.claims.noise import FEWEST_WINDOWS, NoiseReport
from persona_pipeline.reporting.page import Cell, Item, Items, Page, Section, Table
from persona_pipeline.reporting.text import cost_line

_MATRIX_NOTE = (
    "Points (0-9) that the claim falls below the intact window, high being good whichever way it is written. * caught; "
    "n/a the claim no longer applies; ? not judged; as NAME: that agent's words under this agent's name."
)
_SIGNALS_NOTE = "* seen without a judge. Signals that fire on the intact window too have seen nothing."


def matrix_page(matrix: KillMatrix) -> Page:
    """Return the page of a kill matrix."""
    planted = [fault.name for fault in matrix.planted]
    others = list(next((row.others for row in matrix.claims), {}))
    rows: list[list[str | Cell]] = [
        [
            row.name,
            _score(row.intact),
            *(_fall(row, row.faults[f]) for f in planted),
            *(_fall(row, row.others[o]) for o in others),
        ]
        for row in matrix.claims
    ]
    names = list(matrix.intact_signals)
    signals: list[list[str | Cell]] = [["intact", *(_reading(matrix.intact_signals[name]) for name in names)]]
    signals += [[fault.name, *(_reading(fault.signals[name]) for name in names)] for fault in matrix.planted]
    tables = {
        "What each claim catches": (["claim", "intact", *planted, *others], rows, _MATRIX_NOTE),
        "What is seen without a judge": (["window", *names], signals, _SIGNALS_NOTE),
    }
    return Page(
        title=f"Claims of {matrix.agent_id}, tested",
        top=[
            Items.of(*_facts(matrix)),
            Items([Item(said, kind=kind, tone="warn") for kind, said in _findings(matrix)]),
        ],
        sections=[Section(title, [Table.plain(title, *table)]) for title, table in tables.items()],
    )


def noise_page(report: NoiseReport) -> Page:
    """Return the page of a noise report."""
    rows = [
        [
            f"{item.agent_id}: {item.name}",
            f"{item.scored}/{item.windows}",
            _number(item.mean),
            _number(item.window_sd),
            _number(item.judge_sd),
            f"{item.nines:.0%}",
            f"{item.zeros:.0%}",
            f"{item.not_applicable:.0%}",
            "–" if item.unverified is None else f"{item.unverified:.0%}",
        ]
        for item in report.claims
    ]
    columns = ["claim", "windows", "mean", "sd weeks", "sd judge", "always 9", "always 0", "n/a", "false quotes"]
    few = sum(item.windows < FEWEST_WINDOWS for item in report.claims)
    facts = [f"{len(report.claims)} claims in the store, the worst first. No judge call was made."]
    if few:
        facts.append(f"{few} of them were judged in fewer than {FEWEST_WINDOWS} windows, which says nothing of weeks.")
    findings = [Item("; ".join(i.reasons), kind=f"rewrite {i.agent_id} {i.name}", tone="warn") for i in report.rewrite]
    note = "windows: scored of judged; sd in points, of weeks without the judge's part and where nothing fell."
    return Page(
        "Noise of claims",
        [
            Items.of(*facts),
            Items(findings or [Item("no claim is out of order", kind="nothing to rewrite", tone="good")]),
        ],
        [Section("Claims", [Table.plain("Claims", columns, rows, note)])],
    )


def _facts(matrix: KillMatrix) -> Iterator[str]:
    needed = [cell.needed for row in matrix.claims for cell in row.faults.values() if cell.needed is not None]
    how = "measured from the repeats" if matrix.sd_measured else "assumed, as too little was judged twice to tell"
    yield (
        f"{matrix.agent_id}: {matrix.messages} messages up to {matrix.window_end}, seed {matrix.seed}; {matrix.judgments} "
        f"judgments by {matrix.judge}, {matrix.samples} of each claim on each window; "
        f"sd of one judgment {matrix.judge_sd:.2f} ({how})."
    )
    if needed:
        span = f"{min(needed):.1f}" if max(needed) - min(needed) < 0.05 else f"{min(needed):.1f} to {max(needed):.1f}"
        yield (
            f"A fault is caught by a fall of more than {span}: more than the 3.0 at which the guard calls a claim collapsed, "
            "and more than the judge's noise makes anywhere in the matrix in 19 of 20 tests."
        )
    if matrix.failed:
        failed = ", ".join(f"{count} {reason}" for reason, count in sorted(matrix.failed.items()))
        yield f"Not judged: {failed}; what is said of those claims and faults is not certain."
    yield cost_line(matrix.usage)


def _findings(matrix: KillMatrix) -> Iterator[tuple[str, str]]:
    rows = {row.name: row for row in matrix.claims}
    if len(matrix.models) > 1:
        yield "mixed judges", f"{', '.join(matrix.models)}: what falls may be the change of judge; add --fresh"
    for fault in matrix.faults:
        if fault.why_not:
            yield "not planted", f"{fault.name}: {fault.why_not}"
        if fault.name in matrix.blind_spots:
            seen = [name for name, reading in fault.signals.items() if reading.caught]
            free = f"seen without a judge by {', '.join(seen)}" if seen else "nothing sees it"
            yield "blind spot", f"no claim catches {fault.name}; {free}. {fault.what}"
    for name in matrix.dead:
        yield (
            "catches nothing",
            f"{name} stands at {_score(rows[name].intact)} and falls under none of {len(rows[name].faults)} faults",
        )
    for name in matrix.low:
        yield (
            "fires on itself",
            f"{name} stands at {_score(rows[name].intact)} on the intact window: it cannot fall far enough to tell",
        )
    if matrix.low and len(matrix.low) * 2 > len(matrix.claims):
        yield (
            "look again",
            "most claims stand low on the intact window: take one in which the agent was itself, with --as-of",
        )
    for name in matrix.everybody:
        told = ", ".join(f"{_score(cell)} {other}" for other, cell in rows[name].others.items())
        yield "holds of everybody", f"{name}: {_score(rows[name].intact)} of its own words, {told}"
    for names in twin_groups(matrix.twins):
        pairs = [pair for pair in matrix.twins if pair.first in names]
        yield (
            "twins",
            f"{', '.join(names[:-1])} and {names[-1]} catch the same, and no two of them differ by more than "
            f"{max(pair.difference for pair in pairs):.1f} (r from {min(pair.correlation for pair in pairs):.2f}): one would do",
        )
    for name, faults in matrix.silent.items():
        yield (
            "falls silent",
            f"{name} no longer applies under {', '.join(faults)}, and leaves the score instead of lowering it",
        )
    for name, why in matrix.untested.items():
        yield "not tested", f"{name}: {why} on the intact window"


def twin_groups(pairs: Sequence[Twins]) -> list[list[str]]:
    """Return the claims that are twins of one another, directly or by way of others."""
    groups: list[list[str]] = []
    for pair in pairs:
        met = [group for group in groups if pair.first in group or pair.second in group]
        groups = [group for group in groups if group not in met]
        groups.append(list(dict.fromkeys([*(name for group in met for name in group), pair.first, pair.second])))
    return groups


def _score(cell: JudgedCell) -> str:
    if cell.score is None:
        return "n/a" if cell.silent else "?"
    return f"{cell.score:.1f}"


def _fall(row: ClaimRow, cell: JudgedCell) -> str | Cell:
    if row.intact.score is None:
        return "–"
    if cell.fall is None:
        return _score(cell)
    return Cell(f"{cell.fall:.1f}*", "bad") if cell.killed else f"{cell.fall:.1f}"


def _reading(reading: SignalReading) -> str | Cell:
    return Cell(f"{reading.said} *", "bad") if reading.caught else reading.said


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
