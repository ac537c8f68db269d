"""The page in a real browser: by keyboard, by a screen reader's rules, on a phone, and with hostile words in every place."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from persona_pipeline.evaluation.calibrate import Judgment
from persona_pipeline.guard.labels.files import load_labels
from persona_pipeline.viewer.labels import Labelling
from persona_pipeline.world.models import Entry, Omission, Trajectory
from tests.labels.judgments import judgment, judgments
from tests.reporting.html.test_browser import HOSTILE
from tests.viewer.serving import TOKEN, is_odd, labelling_app, listen, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.enable_socket]

Opened = Callable[..., "Page"]


@pytest.fixture
def show(browser: "Browser", tmp_path: Path) -> Iterator[Opened]:
    """Open the page of a labeller; whatever it complains of or asks others for fails the test."""
    odd: list[str] = []
    with ExitStack() as stack:

        def open_page(items: list[Judgment], name: str = "ada", **options: Any) -> "Page":
            app = labelling_app(tmp_path / name, Labelling(tmp_path / "labels", items, name))
            address = stack.enter_context(served(app))
            context = browser.new_context(**options)
            stack.callback(context.close)
            context.set_default_timeout(120_000)
            page = context.new_page()
            listen(page, address, odd)
            page.goto(f"{address}/label/?key={TOKEN}")
            page.wait_for_selector("#scale button, #finished:not([hidden])")
            return page

        yield open_page
    assert list(filter(is_odd, odd)) == []


def claim(page: "Page") -> str:
    return page.inner_text("#claim")


def press(page: "Page", key: str) -> str:
    """Press a key, wait until the page has moved on, and return the claim that was shown."""
    before = claim(page)
    page.keyboard.press(key)
    page.wait_for_function(
        "before => !document.body.ariaBusy && document.getElementById('claim').innerText !== before", arg=before
    )
    return before


def written(folder: Path, labeller: str = "ada") -> dict[str, str]:
    return {
        label.claim: "n" if label.score is None else str(label.score)
        for label in load_labels(folder / "labels")
        if label.labeller == labeller
    }


def test_twenty_judgments_by_keyboard_with_undo_and_a_reload_in_the_middle(show: Opened, tmp_path: Path) -> None:
    page = show([*judgments(20), *(judgment(number, number % 10, "fluency") for number in range(20, 30))])
    said = {}
    for number in range(20):
        key = "n" if number % 7 == 3 else str(number % 10)
        shown = press(page, key)
        said[shown] = key
        assert written(tmp_path) == said, "each answer is in the file before the next is shown"
        if number == 8:
            assert press(page, "u") != shown
            assert claim(page) == shown
            assert shown not in written(tmp_path)
            said[press(page, "2")] = "2"
        if number == 12:
            following = claim(page)
            page.fill("#note", "half a thought")
            page.reload()
            page.wait_for_selector("#scale button")
            assert (claim(page), page.input_value("#note")) == (following, "half a thought")
            assert TOKEN not in page.url
    assert len(said) == 20
    progress = page.locator("#progress li").all_inner_texts()
    assert [" ".join(text.split()) for text in progress] == ["Adherence 10 of 50", "Fluency 10 of 50"]


def test_two_labellers_at_once_lose_nothing(show: Opened, tmp_path: Path) -> None:
    items = judgments(8)
    ada, bob = show(items, "ada"), show(items, "bob")
    for number in range(6):
        assert claim(ada) == claim(bob)
        for page, key in ((ada, str(number)), (bob, str(9 - number))):
            page.keyboard.press(key)
        for page in (ada, bob):
            page.wait_for_function("n => document.querySelector('.count b').innerText === String(n)", arg=number + 1)
    press(bob, "u")
    assert Counter(label.labeller for label in load_labels(tmp_path / "labels")) == {"ada": 6, "bob": 5}
    assert sorted(written(tmp_path).values()) == [str(number) for number in range(6)]


def test_the_judge_is_not_shown_until_the_answer_is_given(show: Opened) -> None:
    page = show([judgment(1, 8), judgment(2, 1)])
    assert "judge-1" not in page.content() and "Reason" not in page.content()
    shown = press(page, "4")
    assert page.inner_text("#status") == f"Saved 4 for {shown} judge-1 said {8 if shown.endswith('1') else 1}."
    page.click("#why summary")
    assert page.inner_text("#reasons").startswith("Reason ")


def test_skip_note_and_the_end(show: Opened, tmp_path: Path) -> None:
    page = show(judgments(3))
    skipped = press(page, "s")
    page.click("#note")
    page.keyboard.type("s7 is a note, and no answer")
    assert written(tmp_path) == {}
    page.keyboard.press("Escape")
    first = press(page, "7")
    assert page.input_value("#note") == ""
    (label,) = load_labels(tmp_path / "labels")
    assert (label.claim, label.note) == (first, "s7 is a note, and no answer")
    press(page, "u")
    assert page.input_value("#note") == label.note
    press(page, "7")
    press(page, "1")
    assert claim(page) == skipped
    page.keyboard.press("5")
    page.wait_for_selector("#finished:not([hidden])")
    assert page.evaluate("document.activeElement.innerText") == "All of it is labelled"
    page.click("#undo-last")
    page.wait_for_selector("#task:not([hidden])")
    assert claim(page) == skipped


def test_keys_can_be_turned_off_and_buttons_do_the_same(show: Opened, tmp_path: Path) -> None:
    page = show(judgments(3))
    page.click("#shortcuts")
    page.keyboard.press("3")
    page.keyboard.press("n")
    page.get_by_role("button", name="7, mostly true").click()
    page.wait_for_selector("#last:not([hidden])")
    assert list(written(tmp_path).values()) == ["7"]
    page.keyboard.press("Control+1")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("#last", state="hidden")
    assert written(tmp_path) == {}


def test_focus_and_what_is_said_follow_the_answer(show: Opened) -> None:
    page = show(judgments(3))
    press(page, "6")
    assert page.evaluate("document.activeElement.id") == "claim"
    assert page.get_attribute("#status", "role") == "status"
    page.keyboard.press("Tab")
    for _ in range(30):
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == "0, false beyond doubt":
            break
        page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_an_error_is_said_and_what_was_shown_stays(show: Opened, tmp_path: Path) -> None:
    page = show(judgments(3))
    shown = claim(page)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "adherence.jsonl").write_text("{\n", encoding="utf-8")
    with page.expect_response("**/api/answer") as response:
        page.keyboard.press("3")
    assert response.value.status == 409
    page.wait_for_selector("#error:not([hidden])")
    assert "adherence.jsonl:1" in page.inner_text("#error")
    assert claim(page) == shown


def hostile() -> list[Judgment]:
    items = []
    for number in range(3):
        plain = judgment(number)
        transcript = Trajectory(
            (
                Entry(HOSTILE, HOSTILE, "m1", channel=HOSTILE, part=f"{HOSTILE} {number}"),
                Omission(7),
                Entry("x", "\x00\x1b[2J\ud800" + "W" * 300, "m2", recipient=HOSTILE, part="other"),
            )
        )
        request = replace(plain.request, claim=f"{HOSTILE} {number}", persona=HOSTILE, trajectory=transcript)
        verdict = replace(plain.verdicts[0], model=HOSTILE, reasoning=HOSTILE)
        items.append(Judgment(request, plain.window, (verdict,)))
    return items


def test_hostile_words_do_nothing_and_stand_there_as_text(show: Opened) -> None:
    page = show(hostile(), viewport={"width": 320, "height": 800})
    page.keyboard.press("5")
    page.wait_for_selector("#last:not([hidden])")
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert not page.evaluate("document.querySelector('iframe, img, base, object, main style, main svg, main link')")
    shown = HOSTILE.replace("\u202e", "‹U+202E›").replace("\u2066", "‹U+2066›").replace("\x1b", "‹U+001B›")
    assert page.locator("#transcript .text bdi").first.text_content() == shown
    assert page.locator("#reasons bdi").text_content() == shown
    assert page.text_content("#persona > div") == shown
    assert page.text_content("#claim").startswith(shown)  # pyright: ignore[reportOptionalMemberAccess]
    assert "\u202e" not in page.inner_text("body")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.evaluate("window.owned") is None


def test_the_policy_stops_a_script_that_got_in(browser: "Browser", tmp_path: Path) -> None:
    with served(labelling_app(tmp_path, Labelling(tmp_path / "labels", judgments(1), "ada"))) as address:
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(f"{address}/label/?key={TOKEN}")
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.owned = 1'; document.body.append(s); }"
        )
        page.wait_for_timeout(100)
        assert page.evaluate("window.owned") is None
        assert any("Content Security Policy" in text for text in said)
        page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_has_no_findings(show: Opened, scheme: str, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    items = [*hostile(), judgment(7, 3, "consistency", "One.", "Two.")]
    page = show(items[3:] + items[:1], color_scheme=scheme, viewport={"width": width, "height": 844})
    press(page, "3")
    for summary in page.locator("summary:visible").all():
        summary.click()
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_on_a_phone_the_answer_is_always_at_hand(show: Opened) -> None:
    long = judgment(1, 5, "adherence", *(f"Message {number} of a long day." for number in range(60)))
    page = show([long, judgment(2)], viewport={"width": 390, "height": 844}, has_touch=True)
    while not page.locator("#transcript li").count() > 10:
        press(page, "s")
    page.evaluate("scrollTo(0, 900)")
    boxes = [button.bounding_box() for button in page.locator("#answer button:visible").all()]
    assert len(boxes) == 13
    for box in boxes:
        assert box and box["width"] >= 24 and box["height"] >= 40 and box["y"] + box["height"] <= 844
    # What is left to read the transcript in.
    assert page.locator("#answer").bounding_box()["y"] > 844 * 0.6  # pyright: ignore[reportOptionalSubscript]


def test_without_the_key_the_page_says_what_to_do(browser: "Browser", tmp_path: Path) -> None:
    with served(labelling_app(tmp_path, Labelling(tmp_path / "labels", judgments(1), "ada"))) as address:
        page = browser.new_page()
        page.goto(f"{address}/label/")
        assert "Open the address that the command printed" in page.inner_text("body")
        page.close()
