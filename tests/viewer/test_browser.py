"""The page in a real browser: by keyboard, without scripts, on a phone, in two tabs, and with hostile words in every place."""

import csv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from persona_pipeline.guard.labels.files import LABELS
from persona_pipeline.guard.labels.messages import load_message_labels
from persona_pipeline.viewer import messages as listing
from persona_pipeline.viewer.bundle import write_bundle
from persona_pipeline.world.world import World
from tests.viewer.serving import TOKEN, is_odd, listen, served, viewing_app
from tests.viewer.test_runs import hostile_world

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket]
Opened = Callable[..., "Page"]
COMPARE = "/compare?agent=michael&dimension=adherence&claim=recognizable-from-words"
PAGES = (
    "/",
    "/agent?id=michael",
    "/messages",
    "/messages?verdict=out&q=agree&since=2026-06-15&until=2026-06-19",
    "/messages?order=newest&agent=pam",
    "/message?id=sales-072",
    COMPARE,
    "/suites",
)


@pytest.fixture
def show(browser: "Browser", world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Open a page of a world; whatever it complains of or asks others for fails the test."""
    monkeypatch.setattr(listing, "AT_ONCE", 25)
    odd: list[str] = []
    with ExitStack() as stack:
        addresses: dict[int, str] = {}

        def open_page(path: str, of: World = world, **options: Any) -> "Page":
            if id(of) not in addresses:
                addresses[id(of)] = stack.enter_context(served(viewing_app(of)))
            base = addresses[id(of)]
            context = browser.new_context(base_url=base, **options)
            stack.callback(context.close)
            page = context.new_page()
            listen(page, base, odd)
            page.goto(f"{path}{'&' if '?' in path else '?'}key={TOKEN}")
            assert TOKEN not in page.url
            return page

        yield open_page
    assert list(filter(is_odd, odd)) == []


def thumbs(world: World) -> dict[str, str]:
    return {label.message: label.verdict for label in load_message_labels(world.root / LABELS)}


def focused(page: "Page") -> str:
    return page.evaluate("document.activeElement.querySelector('code')?.innerText ?? document.activeElement.innerText")


def test_an_afternoon_by_keyboard(show: Opened, world: World) -> None:
    page = show("/")
    page.keyboard.press("j")
    assert focused(page) == "Michael Scott"
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Messages out of character").click()
    page.wait_for_url("**/messages?**")
    page.wait_for_selector("#theme:not([hidden])")
    page.keyboard.press("j")
    first = focused(page)
    page.keyboard.press("j")
    second = focused(page)
    page.keyboard.press("k")
    assert focused(page) == first != second
    page.keyboard.press("n")
    page.wait_for_selector('[aria-pressed="true"]')
    assert (thumbs(world), page.inner_text("#said")) == ({first: "out"}, "Kept: Out of character")
    assert focused(page) == first, "what was focused is focused still"
    page.keyboard.press("j")
    page.keyboard.press("y")
    page.wait_for_function("() => document.querySelectorAll('[aria-pressed=true]').length === 2")
    assert thumbs(world) == {first: "out", second: "in"}
    listed = page.url
    with page.expect_navigation():
        page.keyboard.press("u")
    assert (thumbs(world), page.url) == ({first: "out"}, listed)
    page.keyboard.press("/")
    page.keyboard.type("raccoon nj")
    assert thumbs(world) == {first: "out"}, "letters that are typed are no thumbs"
    page.keyboard.press("Enter")
    page.wait_for_url("**q=raccoon**")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    page.goto(listed)
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.tagName") == "BODY"


def test_what_is_chosen_stands_in_the_address_and_an_address_shows_it(show: Opened) -> None:
    page = show("/messages")
    with page.expect_navigation():
        page.select_option("[name=agent]", "michael")
    with page.expect_navigation():
        page.select_option("[name=verdict]", "out")
    page.fill("#q", "agree")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    path = page.url.partition("/messages")[2]
    assert path == "?q=agree&agent=michael&verdict=out"
    again = show(f"/messages{path}")
    assert again.input_value("#q") == "agree" and again.input_value("[name=verdict]") == "out"
    assert again.locator("li.message").all_inner_texts() == page.locator("li.message").all_inner_texts() != []
    assert "agree" in again.locator("mark:not(.quoted)").all_inner_texts()
    with page.expect_download() as download:
        page.get_by_role("link", name="All as CSV").click()
    rows = list(csv.DictReader(download.value.path().open(encoding="utf-8", newline="")))
    assert [row["message_id"] for row in rows] == page.locator("li.message .meta code").all_inner_texts()


def test_without_scripts_thumbs_are_forms(show: Opened, world: World) -> None:
    page = show("/messages?agent=michael", java_script_enabled=False)
    before = page.url
    row = page.locator("li.message").nth(3)
    name = row.locator("code").inner_text()
    row.get_by_role("button", name="Out of character").click()
    assert (thumbs(world), page.url) == ({name: "out"}, before)
    page.get_by_role("button", name="Undo thumb").click()
    assert (thumbs(world), page.url) == ({}, before)


@pytest.mark.parametrize("scripts", [True, False])
def test_two_tabs_and_a_conflict(show: Opened, world: World, scripts: bool) -> None:
    first, second = (show("/message?id=sales-072", java_script_enabled=scripts) for _ in range(2))
    up, down = '[data-thumb="up"]', '[data-thumb="down"]'
    first.click(up)
    first.wait_for_selector(f'{up}[aria-pressed="true"]')
    second.click(down)
    second.wait_for_selector("text=This message now has your label “in”")
    assert thumbs(world) == {"sales-072": "in"}
    second.click(down)
    second.wait_for_selector(f'{down}[aria-pressed="true"]')
    assert thumbs(world) == {"sales-072": "out"}
    first.reload()
    assert first.get_attribute(down, "aria-pressed") == "true"


# Colours do not depend on the width, nor places on the colours.
LOOKS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 390))


def look(page: "Page", scheme: Literal["light", "dark"], width: int) -> None:
    """Turn a page to a look, in which nothing stands out to the side."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url


def assert_accessible(page: "Page") -> None:
    from axe_playwright_python.sync_playwright import Axe

    results = Axe().run(page)
    assert results.violations_count == 0, f"{page.url}: {results.generate_report()}"


def test_pages_to_send_need_nothing(browser: "Browser", world: World, tmp_path: Path) -> None:
    start, *agents = write_bundle(world, tmp_path / "sent")
    odd: list[str] = []
    with browser.new_context() as context:
        page = context.new_page()
        listen(page, start.parent.as_uri(), odd)
        for path in (*agents, start):
            page.goto(path.as_uri())
            for scheme, width in LOOKS:
                look(page, scheme, width)
        page.get_by_role("link", name="Michael Scott").first.click()
        assert page.locator("h1").inner_text() == "Michael Scott"
        shown = page.evaluate("getComputedStyle(document.querySelector('mark.quoted')).boxShadow")
        assert shown != "none", "the style is allowed"
        michael = next(path for path in agents if path.as_uri() == page.url)
        page.get_by_role("link", name="Agents").click()
        assert page.url == start.as_uri()
        # Axe is a script, and these pages allow none. Their style is that of the pages below.
        copy = context.new_page()
        for path in (start, michael):
            copy.set_content(path.read_text("utf-8").replace("http-equiv", "data-was"))
            assert_accessible(copy)
    assert odd == []


def test_axe_has_no_findings_and_nothing_stands_out_to_the_side(show: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    # It looks at each message of a list for itself, and they are alike.
    monkeypatch.setattr(listing, "AT_ONCE", 6)
    page = show("/")
    for path in PAGES:
        page.goto(path)
        for summary in page.locator("main summary").all()[:3]:
            summary.click()
        for scheme, width in LOOKS:
            look(page, scheme, width)
            assert_accessible(page)
    page.keyboard.press("?")
    assert_accessible(page)


def test_hostile_words_do_nothing(show: Opened, tmp_path: Path) -> None:
    world = hostile_world(tmp_path / "hostile")
    page = show("/", world, viewport={"width": 390, "height": 844})
    for path in ("/", "/agent?id=ann", "/messages?q=%3Cscript%3E", "/message?id=m1", COMPARE.replace("michael", "ann")):
        page.goto(path)
        assert page.evaluate("document.querySelectorAll('script').length") == 1
        assert not page.evaluate("document.querySelector('iframe, img, base, object, main style, main link, bdi svg')")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto("/messages?agent=ann")
    page.locator('[data-thumb="down"]').first.click()
    page.wait_for_selector('[aria-pressed="true"]')
    assert thumbs(world) == {"m5": "out"}


def test_when_the_command_has_ended_a_thumb_says_so(show: Opened, world: World) -> None:
    page = show("/messages?agent=michael")
    page.route("**/thumb*", lambda route: route.abort())
    page.locator('[data-thumb="up"]').first.click()
    page.wait_for_selector("text=The command that serves this page has ended")
    assert thumbs(world) == {}
