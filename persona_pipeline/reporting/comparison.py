"""Two versions side by side: lines for a terminal, and Markdown for a pull request."""

from collections.abc import Iterator

from persona_pipeline.reporting.text import markdown_code, markdown_text, one_line
from persona_pipeline.reporting.view import dimension_label, format_delta, format_score
from persona_pipeline.versions.result import AgentDifference, ClaimDifference, Difference, Moved, VersionComparison

TITLE = "### Compared with"
_ICONS = {Moved.FELL: "🔻", Moved.ROSE: "🔼", Moved.SAME: "=", Moved.OPEN: "?"}
_SAID = {Moved.FELL: "fell", Moved.ROSE: "rose", Moved.SAME: "the same", Moved.OPEN: "cannot tell"}
_CLAIM = 200


def comparison_lines(found: VersionComparison) -> Iterator[str]:
    """Yield the comparison as lines for a terminal or a log."""
    for agent in found.agents.values():
        notes = [f"{agent.scenes - agent.left_out} scenes", *_notes(agent)]
        yield f"{one_line(agent.agent_id, 64)}: {', '.join(notes)}"
        for name, item in agent.dimensions.items():
            yield f"  {_SAID[item.moved]:<12} {dimension_label(name).lower():<16} {_numbers(item)}"
        for row in (*agent.moved, *agent.suspects):
            said = _SAID[row.difference.moved] if row.difference.moved is not Moved.OPEN else "perhaps"
            yield (
                f"  {said:<12} {one_line(f'{row.dimension}/{row.id}', 60)} {_numbers(row.difference)}"
                f"{', edited' if row.edited else ''}: {one_line(row.claim, _CLAIM)}"
            )
    for text in _remarks(found):
        yield one_line(text)


def render_comparison(found: VersionComparison, limit: int = 20_000) -> str:
    """Return the comparison as Markdown, at most ``limit`` characters; whatever stands in its JSON is only text."""
    lines = [f"{TITLE} {markdown_code(found.before, 100)}: {markdown_text(_headline(found))}", ""]
    lines += [
        f"Version {markdown_code(found.after, 100)}, {markdown_text(_what(found))}. Points from 0 to 9.",
        "",
        "| Agent | Dimension | Before | After | Change | Interval | |",
        "|:--|:--|--:|--:|--:|--:|:--|",
    ]
    rows = [_row(agent, name, item) for agent in found.agents.values() for name, item in agent.dimensions.items()]
    moved = [_claim(agent, row) for agent in found.agents.values() for row in (*agent.moved, *agent.suspects)]
    notes = [f"- {markdown_text(text)}" for text in (*_agent_notes(found), *_remarks(found))]
    fixed = sum(len(line) + 1 for line in (*lines, *notes))
    kept_rows, room = _within(rows, limit - fixed - 200)
    kept_moved, _ = _within(moved, room)
    lines += kept_rows
    if kept_moved:
        lines += ["", f"Claims that moved ({_ICONS[Moved.OPEN]}: not by itself told from chance):", "", *kept_moved]
    if left := len(rows) + len(moved) - len(kept_rows) - len(kept_moved):
        lines += ["", f"*Shortened: {left} more lines are in the JSON.*"]
    return "\n".join([*lines, "", *notes])[:limit].rstrip() + "\n"


def _within(lines: list[str], room: int) -> tuple[list[str], int]:
    kept = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept, max(0, room)


def _headline(found: VersionComparison) -> str:
    every = [item for agent in found.agents.values() for item in agent.dimensions.values()]
    counts = {moved: sum(item.moved is moved for item in every) for moved in Moved}
    said = [f"{count} {_SAID[moved]}" for moved, count in counts.items() if count]
    return f"of {len(every)} dimensions {', '.join(said)}" if said else "nothing was compared"


def _what(found: VersionComparison) -> str:
    if found.scenes_are == "windows":
        return "the same messages judged for both"
    before, after = found.targets or ("", "")
    who = before if before == after else f"{before} and {after}"
    return f"the same scenes answered by both ({who}), judged by the claims of: {found.yardstick}"


def _row(agent: AgentDifference, name: str, item: Difference) -> str:
    low_high = "–" if item.low is None or item.asked_alike else f"{format_delta(item.low)} to {format_delta(item.high)}"
    cells = [
        markdown_code(agent.agent_id, 64, in_table=True),
        markdown_text(dimension_label(name)),
        format_score(item.before),
        format_score(item.after),
        "–" if item.change is None else format_delta(item.change),
        low_high,
        f"{_ICONS[item.moved]} {_SAID[item.moved]}",
    ]
    return "| " + " | ".join(cells) + " |"


def _claim(agent: AgentDifference, row: ClaimDifference) -> str:
    return (
        f"- {_ICONS[row.difference.moved]} {markdown_code(agent.agent_id, 64)} "
        f"{markdown_code(f'{row.dimension}/{row.id}', 120)} {markdown_text(_numbers(row.difference))}"
        f"{', edited' if row.edited else ''}: {markdown_text(row.claim, _CLAIM)}"
    )


def _numbers(item: Difference) -> str:
    if item.asked_alike:
        return f"{format_score(item.after)}: the judge is asked the same of both" if item.scenes else "asked the same"
    if item.change is None:
        why = "not judged" if item.unjudged else "nothing to judge"
        return f"{why} in {item.unjudged or item.silent} scenes"
    text = f"{format_score(item.before)} -> {format_score(item.after)} ({format_delta(item.change)}"
    if item.low is not None:
        text += f", {format_delta(item.low)} to {format_delta(item.high)}, p = {item.p_value:.2g}"
    missing = f", {item.unjudged} not judged" if item.unjudged else ""
    return f"{text}) over {item.scenes} scene{'s' if item.scenes != 1 else ''}{missing}"


def _notes(agent: AgentDifference) -> Iterator[str]:
    yield f"persona {'edited' if agent.persona_changed else 'unchanged'}"
    if agent.left_out:
        yield f"{agent.left_out} scenes left out, of which nothing is recorded"
    if agent.repeated:
        yield f"{agent.repeated} scenes answered word by word as before, which tells nothing new"
    for when, claims in (("before", agent.only_before), ("after", agent.only_after)):
        if claims:
            yield f"only {when}: {', '.join(claims)}"


def _agent_notes(found: VersionComparison) -> Iterator[str]:
    for agent in found.agents.values():
        yield f"{agent.agent_id}: {', '.join(_notes(agent))}"


def _remarks(found: VersionComparison) -> Iterator[str]:
    for when, agents in (("before", found.only_before), ("after", found.only_after)):
        if agents:
            yield f"agents only {when}: {', '.join(agents)}"
    yield f"corrected for: {found.rule}"
    judges = found.judges[0] if found.judges[0] == found.judges[1] else " and ".join(found.judges)
    usd = "unknown dollars" if found.usd is None else f"${found.usd:.4f}"
    answers = f", {found.answers} answers" if found.scenes_are == "answers" else ""
    yield f"{found.usage.calls} calls to {judges}{answers}, {usd}; ended since {found.stopped}"
    for reason, count in found.unanswered.items():
        yield f"{count} answers did not come: {reason}"
    yield f"exit code {found.exit_code}"
