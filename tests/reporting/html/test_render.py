import base64
import hashlib
import itertools
import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import get_args

import pytest

from persona_pipeline.cli.evaluate import PORT
from persona_pipeline.guard.report import Finding, RunReport
from persona_pipeline.reporting.html import render_html
from persona_pipeline.reporting.page import Agent, AnyCell, Block, Cell, Drawn, Table
from persona_pipeline.reporting.pages.browser import whole_page
from persona_pipeline.reporting.view import MANY, MOST_WHOLE
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role
from persona_pipeline.scoring.results import QuotedEvidence
from tests.reporting.sample import many_agents, sample_report

POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')
COLOURS = re.compile(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)")


def test_nothing_is_loaded_from_elsewhere() -> None:
    html = render_html(sample_report())
    # The SVG namespace is a name, not an address that is fetched, and links into `view` are followed by people alone.
    view = f'<a href="http://127.0.0.1:{PORT}/message?id='
    assert view in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "").replace(view, "")
    assert not re.search(r"<(?:link|iframe|object|embed|img|base|form)\b|\ssrc=|@import|url\(", html)


def test_the_policy_allows_exactly_the_style_and_script_of_the_page() -> None:
    html = render_html(sample_report())
    policy = POLICY.search(html)
    assert policy and policy.group(1).startswith("default-src &#39;none&#39;; ")
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy.group(1)
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert not re.search(r"\sstyle=|\son\w+=", html)


def test_the_script_never_writes_markup() -> None:
    html = render_html(sample_report())
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", html)


def test_one_heading_of_the_first_level_and_no_level_is_skipped() -> None:
    levels = [int(level) for level in re.findall(r"<h([1-6])", render_html(sample_report()))]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_ids_are_unique_and_every_link_within_the_page_has_its_target() -> None:
    html = render_html(sample_report())
    ids = re.findall(r'\sid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', html)) | set(re.findall(r'aria-labelledby="([^"]*)"', html)) <= set(ids)


def test_sections_without_content_are_left_out() -> None:
    report = sample_report(drifted=False)
    report.statistics = {}
    html = render_html(report)
    for section in ("findings", "timeline", "voices"):
        assert f'id="{section}"' not in html and f'href="#{section}"' not in html
    assert 'id="scores"' in html and 'id="provenance"' in html


def test_every_block_of_a_page_is_written() -> None:
    # A template knows blocks and cells by the names of their classes.
    source = files("persona_pipeline.reporting").joinpath("templates", "blocks.html.j2").read_text(encoding="utf-8")
    assert set(re.findall(r'kind == "(\w+)"', source)) == {
        part.__name__ for part in (*get_args(Block), *get_args(AnyCell)) if part is not str
    }
    html = render_html(sample_report())
    assert "What the scores rest on" in html and "Judge calls" in html


def test_a_run_without_agents_is_a_page_that_says_why() -> None:
    finding = Finding(kind="nothing_evaluated", exit_code=3, message="nothing was evaluated")
    html = render_html(RunReport(findings=[finding], exit_code=3))
    assert "No agent was evaluated" in html and "nothing was evaluated" in html


def test_what_the_run_could_have_seen_is_shown_with_its_remedy() -> None:
    html = render_html(sample_report())
    part = html[html.index('id="power"') : html.index("</section>", html.index('id="power"'))]
    assert "to detect 2.0: 9 windows in the baseline" in part
    assert part.count('class="blind"') == 4, "convergence of each agent cannot show a fall of 2"
    assert "Multiple-testing correction: Holm over an agent" in part


def test_messages_out_of_character_are_counted_by_claim_and_early_or_late() -> None:
    assert 'id="kinds"' not in render_html(sample_report())
    report = sample_report()
    start = datetime(2026, 6, 17, 9, tzinfo=UTC)
    verdicts = [
        MessageVerdict(
            message=f"m{number}",
            conversation=f"general {start.isoformat()}",
            said_at=start + timedelta(minutes=number),
            verdict=Role.OUT if number > 5 else Role.IN,
            claims=("self-<centred>",) if number == 6 else (),
        )
        for number in range(8)
    ]
    for agent_id, own in {"michael": verdicts, "pam": verdicts[:5]}.items():
        adherence = report.agents[agent_id].evaluation.dimensions["adherence"]
        adherence.messages = MessageVerdicts(agent_id=agent_id, verdicts=own)
    page = render_html(report)
    part = page[page.index('id="kinds"') : page.index("</section>", page.index('id="kinds"'))]
    cells = [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[dh].*?</t[dh]>", part, re.DOTALL)]
    rows = [tuple(cells[place : place + 4]) for place in range(4, len(cells), 4)]
    assert rows == [
        ("Michael Scott", "facts of the persona", "1", "8"),
        ("Michael Scott", "self-&lt;centred&gt;", "1", "8"),
        ("Michael Scott", "messages 1-5 of a conversation", "0", "5"),
        ("Michael Scott", "messages 6-20 of a conversation", "2", "3"),
    ]


def test_sections_of_earlier_releases_are_passed_over() -> None:
    report = sample_report()
    report.statistics |= {
        "fading": {"michael": [{"text": "half"}]},
        "voice_map": {"agents": {}},
        "suites": [{"suite": "s"}],
        "corrections": {"total": {}},
    }
    assert render_html(report) == render_html(sample_report())


def test_intervals_are_drawn() -> None:
    html = render_html(sample_report())
    assert html.count('class="whisker"') >= 3


def everybody(report: RunReport) -> list[tuple[Agent, list[Cell]]]:
    """Return the lines of everybody: who it is, and the cells of text."""
    tables = [block for section in whole_page(report).sections if section.id == "everybody" for block in section.blocks]
    rows = [row for table in tables if isinstance(table, Table) for row in table.rows]
    return [(row.cells[0], [cell for cell in row.cells if isinstance(cell, Cell)]) for row in rows]  # pyright: ignore


def shown_whole(report: RunReport) -> list[str]:
    """Return the agents that have a part of their own."""
    blocks = [block for section in whole_page(report).sections if section.id == "agents" for block in section.blocks]
    return [agent.row.agent_id for block in blocks if isinstance(block, Drawn) for agent in block.values["agents"]]


@pytest.mark.parametrize("count, whole, lines", [(MANY, MANY, 0), (MANY + 1, MOST_WHOLE, MANY + 1)])
def test_of_many_agents_those_to_look_at_are_shown_whole_and_everybody_in_a_line(
    count: int, whole: int, lines: int
) -> None:
    html = render_html(many_agents(count))
    assert html.count('class="agent card"') == whole
    assert len(everybody(many_agents(count))) == lines
    assert ('id="everybody"' in html) is bool(lines)


def test_a_line_says_what_is_wrong_and_stands_before_those_without() -> None:
    report = many_agents(MANY + 30)
    lines = everybody(report)
    assert [agent.id for agent, _ in lines[:2]] == ["agent-012", "agent-040"]
    assert lines[0][1][0].note.startswith("michael: adherence 7.9 → 3.2") and lines[0][0].href == "#agent-1"
    assert lines[-1][0].href == "" and len(re.findall("[ML]", str(lines[-1][1][1].chart))) == 24
    assert shown_whole(report)[:2] == ["agent-012", "agent-040"]


def test_an_agent_whose_claims_were_left_out_has_a_line_and_no_part_of_its_own() -> None:
    report = many_agents(3)
    report.agents["agent-001"] = report.agents["agent-001"].model_copy(update={"outlined": True})
    assert shown_whole(report) == ["agent-000", "agent-002"]
    assert {agent.id: agent.href for agent, _ in everybody(report)}["agent-001"] == ""


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(first: str, second: str) -> float:
    high, low = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_stands_out_from_its_ground_in_both_themes() -> None:
    """WCAG 2.2 AA: 4.5 to 1 for text, 3 to 1 for lines of a chart."""
    colours = {name: (light, dark) for name, light, dark in COLOURS.findall(render_html(sample_report()))}
    texts = [(text, ground) for text in ("ink", "muted", "accent") for ground in ("paper", "card", "sunken")]
    texts += [(tone, ground) for tone in ("bad", "warn", "good") for ground in ("card", f"{tone}-soft")]
    texts += [("ink", "bad-soft"), ("muted", "bad-soft"), ("good", "bad-soft"), ("warn", "sunken")]
    for theme in (0, 1):
        for text, ground in texts:
            ratio = _contrast(colours[text][theme], colours[ground][theme])
            assert ratio >= 4.5, f"{text} on {ground}: {ratio:.2f}"
        for line in ("d1", "d2", "d3", "d4", "d5", "accent", "bad"):
            assert _contrast(colours[line][theme], colours["card"][theme]) >= 3


def test_samples_that_quote_the_same_are_shown_once() -> None:
    report = sample_report()
    row = next(iter(report.agents["michael"].evaluation.dimensions["adherence"].propositions.values()))
    said = "I am happy to help, and please let me know"
    row.evidence = [
        QuotedEvidence(message_id="m1", quote=text, verified=True) for text in (said, said, "happy to help", "I am")
    ] + [QuotedEvidence(message_id="m2", quote=said, verified=True)]
    whole = render_html(report).split('id="agents-title"')[1]
    assert whole.count(said) == 2 and whole.count(">happy to help<") == 0


def test_the_first_lines_say_who_dropped() -> None:
    top = render_html(sample_report()).split("<nav")[0]
    assert (
        "Michael Scott: 4 of 5 dimensions dropped; worst: “Michael Scott turns conversations towards themselves” 7.0"
        in top
    )
    assert "4 of 5 dimensions" not in render_html(sample_report(drifted=False)).split("<nav")[0]
