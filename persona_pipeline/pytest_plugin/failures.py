"""Texts of failed tests: the claims, the quotes, and their lines in the transcript."""

import re
from collections import Counter
from collections.abc import Sequence

import pytest
import sqlalchemy as sa

import persona_pipeline as pp
from persona_pipeline.base.database import tables
from persona_pipeline.judging.verdict import unscored_label
from persona_pipeline.reporting.text import one_line, template_text
from persona_pipeline.suites.grading.results import TestResult
from persona_pipeline.world.world import World


def _transcript(world: World | None, message_ids: Sequence[str]) -> dict[str, str]:
    """Return messages by id, each as one line; those that are not in the store any more are left out."""
    if world is None or not message_ids:
        return {}
    table = tables.run_messages
    with world.store.connect() as connection:
        rows = connection.execute(sa.select(table).where(table.c.id.in_(set(message_ids)))).all()
    names = world.display_names()
    return {row.id: _line(world, row, names) for row in rows}


def _line(world: World, row: sa.Row, names: dict[str, str]) -> str:
    where = f"#{row.channel_id}" if row.channel_id else f"to {names.get(row.recipient_id, row.recipient_id)}"
    source = _place(world, row.source, row.id) or row.id
    said = f"{names.get(row.agent_id, row.agent_id)}: {one_line(row.text, MOST_TEXT)}"
    return f"{one_line(source)}: {one_line(where)} {row.created_at:%Y-%m-%d %H:%MZ} {said}"


def _place(world: World, source: str | None, message_id: str) -> str | None:
    """Return ``file:line`` of a message, the file alone where the line is not found."""
    if source is None:
        return None
    path = world.root / source
    known = re.compile(rf"(?<![\w-]){re.escape(message_id)}(?![\w-])")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            number = next((number for number, line in enumerate(file, start=1) if known.search(line)), None)
    except OSError:
        return source
    return source if number is None else f"{source}:{number}"


MOST_CLAIMS, MOST_QUOTES, MOST_TEXT = 5, 2, 300


class Failed(pytest.fail.Exception):
    """A test that failed because of an agent's messages, not its code: shown without a traceback."""

    # pytest names a failure by it in its summary.
    __module__ = "builtins"

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


class Unscored(Failed):
    """A test that neither passed nor failed, because the score is missing."""

    __module__ = "builtins"


def low_text(found: pp.Evaluation, agent_id: str, dimension: str | None, claim: str | None, threshold: float) -> str:
    """Return why a score below a threshold is below it: the claims below it, the worst first."""
    score = found.score(agent_id, dimension, claim)
    name = " ".join(filter(None, (dimension or "overall", claim)))
    rows = [
        (dim, row)
        for dim, item in found[agent_id].evaluation.dimensions.items()
        if dimension in (None, dim)
        for row in item.propositions.values()
        if row.score is not None and row.score < threshold and claim in (None, row.id)
    ]
    return _text(found, agent_id, f"{agent_id}: {name} is {score:.2f}, below {threshold:g}", [], rows)


def fallen_text(found: pp.Evaluation, agent_id: str, findings: Sequence[pp.Finding]) -> str:
    """Return the drops below the baseline: the findings, then the claims that dropped or are lowest."""
    report = found[agent_id]
    fallen = {(drop.dimension, drop.proposition_id) for drop in report.comparison.drops}
    regressed = {item.dimension for item in report.comparison.regressions}
    rows = [
        (dim, row)
        for dim, item in report.evaluation.dimensions.items()
        for row in item.propositions.values()
        if row.score is not None and ((dim, row.id) in fallen or (not fallen and dim in regressed))
    ]
    return _text(found, agent_id, f"{agent_id} is out of character", [item.text for item in findings], rows)


def unscored_text(found: pp.Evaluation, agent_id: str, dimension: str | None, why: Sequence[str]) -> str:
    """Return why a score is missing: the reasons with their counts, and what to do."""
    dimensions = found[agent_id].evaluation.dimensions
    rows = [row for name, item in dimensions.items() if dimension in (None, name) for row in item.failures.values()]
    counts = Counter(unscored_label(row.unscored) for row in rows)
    lines = [one_line(text, MOST_TEXT) for text in why]
    lines += [f"  {count} claims: {reason}" for reason, count in counts.most_common()]
    lines += [f"  {one_line(row.claim)} [{row.id}]: {one_line(row.detail, MOST_TEXT)}" for row in rows[:MOST_CLAIMS]]
    if any(row.unscored == "unrecorded" for row in rows):
        lines.append("  to judge and record it: pytest --persona-judge anthropic --persona-record")
    return "\n".join(lines)


def suite_text(result: TestResult) -> str:
    """Return why a suite's test failed or could not be judged: each assert that is not met, with claims, quotes and the line."""
    return template_text("failed_suite", {"result": result})


def _text(
    found: pp.Evaluation, agent_id: str, head: str, said: list[str], rows: list[tuple[str, pp.PropositionResult]]
) -> str:
    evaluation = found[agent_id].evaluation
    shown = sorted(rows, key=lambda item: (item[1].score or 0.0, -item[1].weight))[:MOST_CLAIMS]
    quoted = [quote.message_id for _, row in shown for quote in row.evidence[:MOST_QUOTES] if quote.message_id]
    facts = {
        "agent_id": agent_id,
        "head": head,
        "said": said,
        "evaluation": evaluation,
        "claims": shown,
        "more": len(rows) - len(shown),
        "quotes": MOST_QUOTES,
        "transcript": _transcript(found.world, quoted),
    }
    return template_text("failed", facts)
