import pytest
from markdown_it import MarkdownIt

from persona_pipeline.guard.report import Finding, RunReport
from persona_pipeline.reporting.markdown import COMMENT_LIMIT, MARKER, markdown_line, render_comment
from persona_pipeline.reporting.page import Span
from persona_pipeline.reporting.pages.evaluation import cost_tables
from persona_pipeline.reporting.view import kind_label
from persona_pipeline.scoring.results import PropositionResult
from tests.reporting.sample import sample_report

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")


def test_golden(report: RunReport, golden) -> None:
    golden("comment.md", render_comment(report))
    golden("comment-clean.md", render_comment(sample_report(drifted=False)))


@pytest.mark.parametrize(
    ("kind", "dimension"), [("threshold", None), ("no_baseline", "fluency"), ("budget", None), ("coverage", "fluency")]
)
def test_other_findings_are_not_lost(report: RunReport, kind: str, dimension: str | None) -> None:
    finding = Finding(kind=kind, exit_code=3, message="jim needs a look", agent_id="jim", dimension=dimension)
    report.agents["jim"].findings.append(finding)
    assert f"- **{kind_label(kind)}**: jim needs a look" in render_comment(report)


def test_warnings_of_the_comparison_are_said(report: RunReport) -> None:
    report.agents["jim"].comparison.warnings.append("the judge model changed")
    assert "- **warning**: Jim Halpert: the judge model changed" in render_comment(report)


HOSTILE = (
    "@team </details> <script>x</script> ![i](http://e.example/i.png) | a | `b` ```\n# h\n<!-- persona-pipeline -->"
)


def hostile_report() -> RunReport:
    """The run with hostile text in every place a text from outside can stand."""
    report = sample_report()
    report.agents[HOSTILE] = report.agents.pop("jim")
    report.provenance[HOSTILE] = HOSTILE
    report.findings.append(Finding(kind="threshold", exit_code=1, message=HOSTILE))
    michael = report.agents["michael"]
    michael.evaluation.display_name = HOSTILE
    michael.comparison.warnings.append(HOSTILE)
    adherence = michael.comparison.dimensions["adherence"]
    adherence.drops = [
        drop.model_copy(update={"claim": HOSTILE, "recommendation": HOSTILE, "proposition_id": HOSTILE})
        for drop in adherence.drops
    ]
    for row in report.agents["pam"].evaluation.dimensions["adherence"].propositions.values():
        row.detail = row.claim = HOSTILE
    return report


def test_foreign_text_makes_no_markup() -> None:
    text = render_comment(hostile_report())
    clean = MARKDOWN.parse(render_comment(sample_report()))
    tokens = MARKDOWN.parse(text)
    html = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert html == [token.content.strip() for token in clean if token.type == "html_block"]
    inline = [child for token in tokens for child in token.children or ()]
    assert not {child.type for child in inline} & {"html_inline", "link_open", "image"}
    assert not any("@team" in child.content for child in inline if child.type == "text")
    tables = [token for token in tokens if token.type == "table_open"]
    assert len(tables) == 2 + len(cost_tables(sample_report()))
    assert text.count(MARKER) == 1 + sum(child.content.count(MARKER) for child in inline if child.type == "code_inline")


def test_a_reason_in_the_headline_makes_no_markup() -> None:
    report = sample_report(drifted=False)
    report.findings = [Finding(kind="threshold", exit_code=1, message="**x** <b>@team</b> [a](http://e.example)")]
    heading = next(token for token in MARKDOWN.parse(render_comment(report)) if token.type == "inline")
    assert "the run as a whole drifted: **x**" in heading.content.replace("\\", "")
    assert {child.type for child in heading.children or ()} == {"text", "code_inline"}


def test_code_next_to_a_word_in_code_stays_two() -> None:
    written = markdown_line([Span("m-1", "code"), "@team"])
    (inline,) = (token for token in MARKDOWN.parse(written) if token.type == "inline")
    assert [child.content for child in inline.children or () if child.type == "code_inline"] == ["m-1", "@team"]


def test_every_row_of_the_table_has_every_column() -> None:
    lines = render_comment(hostile_report()).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("| Agent"))
    tokens = MARKDOWN.parse("\n".join(lines[start : start + 6]))
    cells = [token.type for token in tokens if token.type in ("th_open", "td_open")]
    assert len(cells) == 8 * 5


def crowded_report() -> RunReport:
    """A run with far more to say than a comment can hold."""
    report = sample_report()
    adherence = report.agents["michael"].comparison.dimensions["adherence"]
    adherence.drops = [
        drop.model_copy(update={"proposition_id": f"drop-{number}", "claim": "word " * 100})
        for number in range(300)
        for drop in adherence.drops
    ]
    pam = report.agents["pam"].evaluation.dimensions["adherence"].propositions
    for number in range(300):
        pam[f"gone-{number}"] = PropositionResult(
            id=f"gone-{number}", claim="c", unscored="unrecorded", detail="d" * 90
        )
    return report


def test_a_long_comment_is_cut_between_items_and_says_so() -> None:
    report = crowded_report()
    text = render_comment(report)
    assert 0.9 * COMMENT_LIMIT < len(text) <= COMMENT_LIMIT
    assert "*Shortened: " in text and text.rstrip().endswith("</details>")
    shown = sum(line.startswith("- `Michael Scott`, Adherence: drop-") for line in text.splitlines())
    hidden = [int(line.split()[1]) for line in text.splitlines() if line.startswith("*Shortened: ")]
    assert shown + hidden[0] == 600
    assert len(render_comment(report, 2 * COMMENT_LIMIT)) > COMMENT_LIMIT


@pytest.mark.parametrize("agents", [1, 400, 2_000])
def test_many_agents_never_break_the_limit(agents: int) -> None:
    report = sample_report()
    jim = report.agents["jim"]
    report.agents = {f"agent-{number:05}": jim for number in range(agents)}
    text = render_comment(report)
    assert len(text) <= COMMENT_LIMIT
    assert ("*Shortened: " in text) == (agents == 2_000)
