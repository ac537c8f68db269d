"""What a failed test says: the claims, the quotes, and the lines of the transcript they stand in."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
import sqlalchemy as sa

import persona_pipeline as pp
from persona_pipeline.base.database import tables
from persona_pipeline.judging.verdict import unscored_label
from persona_pipeline.reporting.text import one_line
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
    """A test that failed for what an agent said, not for what its code did: no traceback."""

    # pytest names a failure by it in its summary.
    __module__ = "builtins"

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


class Unscored(Failed):
    """A test that can be called neither passed nor failed: there is no score."""

    __module__ = "builtins"


def low_text(found: pp.Evaluation, agent_id: str, dimension: str | None, claim: str | None, threshold: float) -> str:
    """Return why a score below a threshold is below it: the claims below it, the worst first."""
    evaluation = found[agent_id].evaluation
    score = found.score(agent_id, dimension, claim)
    name = " ".join(filter(None, (dimension or "overall", claim)))
    rows = [
        (dim, row)
        for dim, item in evaluation.dimensions.items()
        if dimension in (None, dim)
        for row in item.propositions.values()
        if row.score is not None and row.score < threshold and claim in (None, row.id)
    ]
    head = f"{agent_id}: {name} is {score:.2f}, below {threshold:g} ({_judged(found, agent_id)})"
    return "\n".join([head, *_claims(found, agent_id, rows)])


def fallen_text(found: pp.Evaluation, agent_id: str, findings: Sequence[pp.Finding]) -> str:
    """Return what fell below the baseline: the findings, then the claims that fell or are lowest."""
    report = found[agent_id]
    fallen = {(drop.dimension, drop.proposition_id) for drop in report.comparison.drops}
    regressed = {item.dimension for item in report.comparison.regressions}
    rows = [
        (dim, row)
        for dim, item in report.evaluation.dimensions.items()
        for row in item.propositions.values()
        if row.score is not None and ((dim, row.id) in fallen or (not fallen and dim in regressed))
    ]
    head = f"{agent_id} is out of character ({_judged(found, agent_id)})"
    said = [f"  {one_line(item.text, MOST_TEXT)}" for item in findings]
    return "\n".join([head, *said, *_claims(found, agent_id, rows)])


def unscored_text(found: pp.Evaluation, agent_id: str, dimension: str | None, why: Sequence[str]) -> str:
    """Return why there is no score: the reasons and how often each, and what to do."""
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
    score = "no score" if result.score is None else f"{result.score:.2f}"
    target = f" ({result.target})" if result.target else ""
    lines = [f"{one_line(result.id)}{target}: {result.verdict.value}, {score}"]
    if result.error:
        lines.append(f"  {one_line(str(result.error), MOST_TEXT)}")
    for item in result.best.results:
        if item.score is not None and not item.misses and not item.gate_failed:
            continue
        gate = ", required" if item.required is not False else ""
        lines.append(f"  {'error' if item.score is None else f'{item.score:.2f}'}  {one_line(item.name)}{gate}")
        if item.error:
            lines.append(f"        {one_line(str(item.error), MOST_TEXT)}")
        lines += [f"        {one_line(text, MOST_TEXT)}" for text in item.misses]
        for name, claim in ((item.details or {}).get("missed") or {}).items():
            lines.append(f"        claim: {one_line(claim['claim'], MOST_TEXT)} [{one_line(name)}]")
            lines += [f'        quote: "{one_line(quote, MOST_TEXT)}"' for quote in claim["quotes"]]
    lines += [f"  line {number}: {line}" for number, line in _said(result)]
    return "\n".join(lines)


def _said(result: TestResult) -> Iterator[tuple[int, str]]:
    """Yield what the target said, line by line."""
    for number, message in enumerate(result.best.output.messages if result.best.output else (), start=1):
        content = message.get("content")
        if content is not None:
            text = content if isinstance(content, str) else str(content)
            yield number, f"{one_line(str(message.get('role')))}: {one_line(text, MOST_TEXT)}"


def _judged(found: pp.Evaluation, agent_id: str) -> str:
    evaluation = found[agent_id].evaluation
    scored = sum(item.n_scored for item in evaluation.dimensions.values())
    expected = sum(item.n_expected for item in evaluation.dimensions.values())
    messages = f"{evaluation.sample_size} messages up to {evaluation.window_end:%Y-%m-%d %H:%MZ}"
    return f"{scored} of {expected} judged, {evaluation.provenance.get('judge')}, {messages}"


def _claims(found: pp.Evaluation, agent_id: str, rows: Sequence[tuple[str, pp.PropositionResult]]) -> Iterator[str]:
    ordered = sorted(rows, key=lambda item: (item[1].score or 0.0, -item[1].weight))
    shown = ordered[:MOST_CLAIMS]
    quoted = [quote for _, row in shown for quote in row.evidence[:MOST_QUOTES]]
    transcript = _transcript(found.world, [quote.message_id for quote in quoted if quote.message_id])
    for dimension, row in shown:
        yield ""
        not_so = " (must not be so)" if row.inverted else ""
        yield f"  {row.score:.1f}  {one_line(row.claim, MOST_TEXT)}{not_so} [{dimension}/{row.id}]"
        for quote in row.evidence[:MOST_QUOTES]:
            yield f'       quote: "{one_line(quote.quote, MOST_TEXT)}"'
            if quote.message_id and (line := transcript.get(quote.message_id)):
                yield f"       {line}"
        if row.reasoning:
            yield f"       judge: {one_line(row.reasoning, MOST_TEXT)}"
        if row.recommendation:
            yield f"       to do: {one_line(row.recommendation, MOST_TEXT)}"
    if len(ordered) > len(shown):
        yield ""
        yield f"  and {len(ordered) - len(shown)} more claims of {agent_id}"
