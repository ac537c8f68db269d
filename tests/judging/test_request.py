"""Keys of cached judgments: everything that can change an answer changes the key, and nothing else does."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from anthropic._constants import ANTHROPIC_API_VERSION

from persona_pipeline.judging.claims import proposition_question
from persona_pipeline.judging.model.messages import RequestStyle, cached_tokens, prefix_of, request_key, traits_of
from persona_pipeline.judging.providers.anthropic import AnthropicProvider
from persona_pipeline.judging.providers.base import Provider, find_provider
from persona_pipeline.judging.verdict import JudgeRequest, Question
from persona_pipeline.world.models import Entry, Omission
from tests.support.judging import request, trajectory

STYLE = RequestStyle("claude-haiku-5-5", "low")
BASE = request(persona="A boss.")
ANTHROPIC = find_provider("anthropic")
URL = "https://api.anthropic.com"


def key(
    asked: JudgeRequest = BASE,
    style: RequestStyle = STYLE,
    url: str = URL,
    provider: Provider = ANTHROPIC,
    **changes: Any,
) -> str:
    question = replace(proposition_question([asked], max_tokens=500), **changes)
    return request_key(prefix_of(style, question), question, url, provider=provider)


def first_entry(**changes: Any) -> JudgeRequest:
    shown = trajectory()
    items = (replace(shown.entries[0], **changes), *shown.items[1:])
    return replace(BASE, trajectory=replace(shown, items=items))


CHANGED: dict[str, Callable[[], str]] = {
    "provider": lambda: key(provider=find_provider("vertex")),
    "claim": lambda: key(replace(BASE, claim="Michael is gloomy")),
    "persona": lambda: key(replace(BASE, persona="A boss")),
    "no persona": lambda: key(replace(BASE, persona=None)),
    "ideas": lambda: key(replace(BASE, lists_ideas=True)),
    "sample": lambda: key(replace(BASE, sample=1)),
    "text": lambda: key(first_entry(text="Good morning!")),
    "speaker": lambda: key(first_entry(speaker="Dwight")),
    "channel": lambda: key(first_entry(channel="general")),
    "recipient": lambda: key(first_entry(recipient="Jim")),
    "part": lambda: key(first_entry(part="pair 1, earlier")),
    "one entry less": lambda: key(replace(BASE, trajectory=trajectory(length=3))),
    "an omission": lambda: key(
        replace(BASE, trajectory=replace(trajectory(), items=(Omission(1), *trajectory().items)))
    ),
    "rules": lambda: key(system="Be nice."),
    "context": lambda: key(context=("Another block",)),
    "evidence": lambda: key(evidence="[]"),
    "ask": lambda: key(ask="Well?\n{}"),
    "schema": lambda: key(schema={"type": "object"}),
    "max_tokens": lambda: key(max_tokens=501),
    "thinking": lambda: key(thinking=False),
    "prompt version": lambda: key(prompt_version="2"),
    "model": lambda: key(style=replace(STYLE, model="claude-haiku-4-5")),
    "effort": lambda: key(style=replace(STYLE, effort="high")),
    "prompted JSON": lambda: key(style=replace(STYLE, structured=False)),
    "endpoint": lambda: key(url="http://127.0.0.1:8080"),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_what_can_change_an_answer_changes_the_key(change: Callable[[], str]) -> None:
    assert change() != key()


def test_the_api_version_is_the_one_that_the_sdk_sends() -> None:
    assert ANTHROPIC.api_version == ANTHROPIC_API_VERSION


def test_the_api_version_is_part_of_the_key() -> None:
    class Later(AnthropicProvider):
        api_version = "2027-01-01"  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]

    question = proposition_question([BASE], max_tokens=500)
    prefix = prefix_of(STYLE, question)
    keys = [request_key(prefix, question, URL, provider=provider) for provider in (ANTHROPIC, Later())]
    assert keys[0] != keys[1]


def test_every_field_of_a_question_is_part_of_the_key_or_cannot_change_an_answer() -> None:
    for_the_books = {
        "kind",
        "subject",
        "label",
        "agent_id",
        "dimension",
        "check",
        "context_recurs",
    }
    tried = {"system", "context", "evidence", "ask", "schema", "max_tokens", "sample", "thinking", "prompt_version"}
    assert {field.name for field in fields(Question)} == for_the_books | tried


@pytest.mark.parametrize(
    "changed",
    [replace(BASE, agent_id="other"), first_entry(message_id="elsewhere")],
    ids=["agent id", "outside message id"],
)
def test_what_the_judge_never_sees_leaves_the_key_alone(changed: JudgeRequest) -> None:
    assert key(changed) == key()


def test_claims_share_a_prefix_and_other_transcripts_do_not() -> None:
    def prefix(asked: JudgeRequest) -> str:
        return prefix_of(STYLE, proposition_question([asked], max_tokens=500)).key

    assert prefix(BASE) == prefix(replace(BASE, claim="else", proposition_id="else"))
    assert prefix(BASE) != prefix(first_entry(text="!"))
    assert prefix(BASE) != prefix(replace(BASE, persona="Else"))


@pytest.mark.parametrize(("recurs", "marked"), [(False, (3, 0)), (True, (0, 1))], ids=["evidence", "context"])
def test_the_mark_stands_after_what_later_requests_share(recurs: bool, marked: tuple[int, int]) -> None:
    question = replace(proposition_question([BASE], max_tokens=500), context_recurs=recurs)
    plain, cached = STYLE.body(question), STYLE.body(question, cache_ttl="1h")
    turn, place = marked
    assert cached["messages"][turn]["content"][place].pop("cache_control") == {"type": "ephemeral", "ttl": "1h"}
    assert cached == plain == STYLE.body(replace(question, context_recurs=False))


def test_a_recurring_context_is_cached_without_the_evidence() -> None:
    def tokens(asked: JudgeRequest, recurs: bool) -> int:
        return cached_tokens(STYLE, replace(proposition_question([asked], max_tokens=500), context_recurs=recurs))

    longer = replace(BASE, trajectory=trajectory(length=100))
    assert tokens(longer, True) == tokens(BASE, True) < tokens(BASE, False) < tokens(longer, False)


@pytest.mark.parametrize(
    ("model", "minimum", "effort"),
    [
        ("claude-haiku-5-5", 512, True),
        ("claude-haiku-4-5-20251001", 4096, False),
        ("claude-haiku-5-55", 4096, False),
        ("gemma3", 4096, False),
    ],
)
def test_a_model_is_known_by_its_name_or_dated_name(model: str, minimum: int, effort: bool) -> None:
    assert (traits_of(model).cache_minimum, traits_of(model).effort) == (minimum, effort)


def test_a_model_nothing_is_known_of_gets_neither_effort_nor_thinking() -> None:
    body = RequestStyle("gemma3", "low").body(proposition_question([BASE], max_tokens=500))
    assert "thinking" not in body
    assert set(body["output_config"]) == {"format"}


def test_the_entry_fields_tried_are_all_there_are() -> None:
    assert {field.name for field in fields(Entry)} == {"speaker", "text", "message_id", "channel", "recipient", "part"}
