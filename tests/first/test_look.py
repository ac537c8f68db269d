"""What is told of agents without a judge: changes where there are some, nothing where there are none or too little."""

from dataclasses import replace

import pytest

from persona_pipeline.base.status import Result
from persona_pipeline.lab.first import AgentLook, cast_of, first_look, overall
from persona_pipeline.world.models import Message
from tests.first.worlds import drifted, lines_of, support, together


def look(*said: list[Message], dated: bool = True) -> dict[str, AgentLook]:
    return {item.agent_id: item for item in first_look(cast_of(together(*said)), dated=dated)}


@pytest.mark.parametrize("language", ["ar", "ja"])
def test_a_voice_that_becomes_a_stock_assistant_is_found_where_it_began(language: str) -> None:
    found = look(drifted(language, "Brack"))
    (finding,) = found["brack"].findings
    assert found["brack"].result is Result.FELL
    assert finding.since is not None
    began = int(finding.since[0].partition("-")[2])
    assert 118 <= began <= 122
    assert finding.text.startswith(
        f"since {12 + (began >= 120)} June 2026 Brack sounds like a support desk's courtesies: "
    )
    assert finding.since[1].startswith(f"2026-06-{12 + (began >= 120)}T09:0")
    assert finding.messages == 160 - began
    own, stock = lines_of(language)[:120], lines_of(language, "courtesies")
    assert finding.lines
    assert all(earlier in own and now in stock for earlier, now in finding.lines)


def test_times_that_were_made_up_are_not_told() -> None:
    (finding,) = look(drifted("de"), dated=False)["de"].findings
    assert finding.text.startswith("since message 121 of 160 de sounds like")


def test_a_voice_that_came_back_has_an_end() -> None:
    own, stock = lines_of("de"), lines_of("de", "courtesies")
    (finding,) = look(support("de", [*own[:120], *stock[:12], *own[120:]]))["de"].findings
    assert finding.text.startswith("from 13 June 2026 to ")
    assert 10 <= finding.messages <= 60


def test_nothing_is_found_where_nothing_changed() -> None:
    found = look(*(support(language, lines_of(language)) for language in ("de", "ja", "ar", "en")))
    assert {item.result for item in found.values()} == {Result.HELD}
    few = look(support("de", lines_of("de")[:64]))["de"]
    assert overall([*found.values(), few]) is Result.HELD
    assert all(item.untold == "" and item.followed == 54 for item in found.values())


def test_too_little_is_neither_a_finding_nor_a_pass() -> None:
    for count, reason in (
        (1, "not learnt yet: 0 of 30"),
        (50, "not learnt yet: 25 of 30"),
        (64, "8 of about 20 conversations, 32 of 100 messages"),
    ):
        found = look(support("de", lines_of("de")[:count], role="assistant"))["de"]
        assert found.result is Result.CANNOT_TELL and reason in found.untold
        assert overall([found]) is Result.CANNOT_TELL


def test_a_language_without_everyday_lines_is_compared_with_itself() -> None:
    words = ["лодка стоит у причала", "мотор снова молчит", "сеть порвалась утром", "рыба ушла на глубину"]
    said = support("ru", [f"{words[n % 4]}, {words[n // 4 % 4]} и так {n} раз" for n in range(160)])
    assert any("no everyday language for ru" in line for line in look(said)["ru"].rests_on)


def test_an_agent_that_takes_anothers_lines_is_named() -> None:
    own, other = lines_of("de"), support("other", lines_of("nl"))
    lines = [text for text in lines_of("nl")[:80] if len(text.split()) > 5][:30]
    found = look(support("de", [*own[:130], *lines]), other)
    clone = next(item for item in found["de"].findings if item.kind == "clone")
    assert "says lines that other said first" in clone.text
    assert all(earlier in lines_of("nl") and now in lines for earlier, now in clone.lines)


def test_what_is_said_again_and_what_comes_back_is_shown_beside_before() -> None:
    own = lines_of("de")
    found = look([replace(item, channel="one") for item in support("de", [*own[:80], *own[40:50] * 8])])["de"]
    assert found.said_again["said_again"] > 40 > found.said_again["before"]["said_again"]
    before, now = found.repeated
    assert before is not None and now is not None and now > 0.5 > before
