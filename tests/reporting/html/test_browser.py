"""The report in a real browser that can reach nothing, with hostile text in every place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from persona_pipeline.base.text import without_controls
from persona_pipeline.guard.baselines.models import PropositionDrop
from persona_pipeline.guard.report import Finding, RunReport
from persona_pipeline.reporting.html import render_html
from persona_pipeline.scoring.results import QuotedEvidence
from tests.reporting.sample import many_agents, sample_report, with_messages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket]

PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!-- --><iframe src=//evil.example>",
    "javascript:alert(1)",
    "{{ 7*7 }} {% for x in y %} {{ cycler.__init__.__globals__ }}",
    "&lt;b&gt; &amp; &#x3c;",
    "]]><meta http-equiv=refresh content=0;url=//evil.example>",
    "\u202eevil\u2066 \x1b[2J \u2028line",
    "<base href=//evil.example><link rel=stylesheet href=//evil.example/x.css>",
]
HOSTILE = " ".join(PAYLOADS)
# Without what would act on whoever looks at the file itself.
SHOWN = without_controls(HOSTILE)


@dataclass
class Opened:
    """A page, with what it tried to do."""

    page: "Page"
    dialogs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@pytest.fixture
def show(browser: "Browser", tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open a report as a file, as a person would."""
    contexts = []

    def open_report(report: RunReport, **options: Any) -> Opened:
        path = tmp_path / "report.html"
        path.write_text(render_html(report), encoding="utf-8")
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(120_000)
        opened = Opened(context.new_page())
        opened.page.on("dialog", lambda dialog: (opened.dialogs.append(dialog.message), dialog.dismiss()))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("console", lambda message: opened.messages.append(message.text))
        opened.page.on("pageerror", lambda error: opened.messages.append(str(error)))
        opened.page.goto(path.as_uri())
        opened.requests.remove(path.as_uri())
        return opened

    yield open_report
    for context in contexts:
        context.close()


def hostile_report() -> RunReport:
    """The run with hostile text wherever text from outside is shown."""
    report = with_messages(sample_report(), HOSTILE)
    for old, new in (("michael", HOSTILE), ("jim", HOSTILE + "2")):
        report.agents[new] = report.agents.pop(old)
        report.agents[new].evaluation.agent_id = new
        report.statistics["history"][new] = report.statistics["history"].pop(old)
    michael = report.agents[HOSTILE]
    michael.evaluation.display_name = HOSTILE
    michael.evaluation.provenance[HOSTILE] = HOSTILE
    michael.comparison.warnings.append(HOSTILE)
    michael.findings.append(Finding(kind=HOSTILE, exit_code=1, message=HOSTILE, agent_id=HOSTILE, dimension=HOSTILE))
    adherence = michael.evaluation.dimensions["adherence"]
    for row in adherence.propositions.values():
        row.claim = row.reasoning = row.detail = row.recommendation = HOSTILE
        row.evidence = [QuotedEvidence(message_id=HOSTILE, quote=HOSTILE, verified=True)]
        row.parts = [{"part": HOSTILE, "raw": 3, "unscored": None, "reasoning": HOSTILE}]
    michael.comparison.dimensions["adherence"].drops.append(
        PropositionDrop(dimension="adherence", proposition_id=HOSTILE, baseline=9, current=0, delta=-9)
    )
    report.provenance[HOSTILE] = HOSTILE
    return report


def test_hostile_text_does_nothing_and_stands_there_as_text(show: Callable[..., Opened]) -> None:
    opened = show(hostile_report())
    page = opened.page
    for button in ("#theme", "#expand"):
        page.click(button)
    page.wait_for_timeout(200)
    assert (opened.dialogs, opened.requests, opened.messages) == ([], [], [])
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert not page.evaluate("document.querySelector('iframe, img, base, link, object, main style')")
    quotes = page.locator("blockquote bdi").all_text_contents()
    assert quotes and all(text in (SHOWN, *_calm_quotes()) for text in quotes)
    assert quotes.count(SHOWN) >= 3
    for selector in (
        ".agent h3 bdi",
        ".claim h5 bdi",
        ".todo bdi",
        ".broken .said bdi",
        ".broken .because bdi",
    ):
        assert SHOWN in page.locator(selector).all_text_contents(), selector
    assert any(text.startswith(PAYLOADS[0]) for text in page.locator(".findings bdi").all_text_contents())
    assert not any("<" in label for label in page.locator("svg text").all_text_contents())
    for width in (320, 390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def _calm_quotes() -> set[str]:
    return {
        evidence.quote
        for agent in sample_report().agents.values()
        for dimension in agent.evaluation.dimensions.values()
        for row in dimension.propositions.values()
        for evidence in row.evidence
    }


def test_the_policy_stops_a_script_that_got_in(show: Callable[..., Opened]) -> None:
    opened = show(sample_report())
    opened.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s);"
        " const i = new Image(); i.src = 'https://evil.example/x.png'; document.body.append(i); }"
    )
    opened.page.wait_for_timeout(200)
    assert opened.page.evaluate("window.owned") is None
    assert any("Content Security Policy" in message for message in opened.messages)


def test_it_follows_the_system_theme_and_the_button_turns_it(show: Callable[..., Opened]) -> None:
    page = show(sample_report()).page
    light, dark = ("rgb(246, 245, 241)", "Dark theme"), ("rgb(19, 22, 27)", "Light theme")

    def look() -> tuple[str, str]:
        return page.evaluate("getComputedStyle(document.body).backgroundColor"), page.inner_text("#theme")

    for scheme, before, after in (("light", light, dark), ("dark", dark, light)):
        page.emulate_media(color_scheme=scheme)
        page.reload()
        assert look() == before
        page.click("#theme")
        assert look() == after


def test_keyboard_and_buttons_reach_and_open_everything(show: Callable[..., Opened]) -> None:
    page = show(sample_report()).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reachable = page.evaluate(
        "[...document.querySelectorAll('summary, button, a, [tabindex=\"0\"]')].every(e => e.tabIndex >= 0)"
    )
    assert reachable
    assert not page.locator("#power table").is_visible()
    page.click("nav a[href='#power']")
    page.locator("#power table").wait_for(state="visible")
    page.locator("details.agent > summary").first.focus()
    page.keyboard.press("Enter")
    closed = page.locator("details.dimension:not([open])")
    before = closed.count()
    closed.first.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert closed.count() == before - 1
    page.click("#expand")
    assert closed.count() == 0
    assert page.get_attribute("#expand", "aria-expanded") == "true"
    page.click("#expand")
    assert page.locator("details.dimension[open]").count() == 0
    assert page.evaluate("[...document.querySelectorAll('svg')].every(e => e.getAttribute('aria-label'))")
    assert page.evaluate("[...document.querySelectorAll('th')].every(e => e.scope)")
    assert page.locator("table").count() == page.locator("table thead").count() > 4


def test_it_works_without_script(show: Callable[..., Opened]) -> None:
    page = show(with_messages(sample_report()), java_script_enabled=False).page
    assert page.locator("#theme").is_hidden() and page.locator("#expand").is_hidden()
    assert page.locator(".broken blockquote").first.is_visible()
    page.locator("#provenance summary").first.click()
    assert page.locator("#provenance dl").first.is_visible()


def test_a_phone_shows_all_dimensions_of_an_agent_and_the_page_is_short(show: Callable[..., Opened]) -> None:
    page = show(sample_report(), viewport={"width": 390, "height": 844}).page
    row = page.locator("table.scores tbody tr").first
    boxes = [cell.bounding_box() for cell in row.locator("td").all()]
    assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    assert page.evaluate("document.documentElement.scrollHeight") <= 8000
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate("document.documentElement.scrollHeight") <= 5000


def test_one_of_many_agents_is_found_by_typing(show: Callable[..., Opened]) -> None:
    report = many_agents(60)
    opened = show(report, viewport={"width": 390, "height": 800})
    rows = opened.page.locator("#everybody-table tbody tr:visible")
    assert rows.count() == 60
    opened.page.get_by_label("Find an agent").fill("DRIFTED agent-01")
    assert rows.count() == 1 and opened.page.locator("#find-count").text_content() == "1 of 60"
    rows.get_by_role("link").press("Enter")
    assert opened.page.url.endswith("#agent-1")
    opened.page.get_by_label("Find an agent").fill("nobody")
    assert rows.count() == 0 and opened.page.get_by_text("No agent has this name.").is_visible()
    assert (opened.requests, opened.messages) == ([], [])
    # A page is as wide as the window; what is wider scrolls within it.
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    without = show(report, java_script_enabled=False).page
    assert without.locator("#everybody-table tbody tr").count() == 60
    assert not without.get_by_label("Find an agent").is_visible(), "nothing asks to be typed into in vain"
