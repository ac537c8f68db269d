from typing import Any

import pytest

from persona_pipeline.corrections.nudges import Nudges
from persona_pipeline.corrections.prompt import Review, feedback_text, review_of
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.models import Entry, Trajectory
from persona_pipeline.world.propositions.models import Proposition, PropositionSet
from tests.support.languages import LANGUAGES

TEXTS = Nudges().of("ann").gate
STORY = Proposition("story", "{{agent_name}} tells a story in {{action}}", 2.0, False, "Tell of a time you won.")
DULL = Proposition("dull", "{{agent_name}} is dull.", 1.0, True)
FACT = Proposition("fact", "{{agent_name}} states a fact", 1.0)


SHOWN = Trajectory((Entry("Bob", "Well?", "x1"), Entry("Ann", "Certainly! Here are  three options.", "")))


def review(
    *raws: int | None, hard: bool = False, propositions=(STORY, DULL, FACT), message: dict[str, Any] | None = None
) -> Review:
    verdicts = [{"id": f"c{i + 1}", "score": raw, "reason": f"reason {i}"} for i, raw in enumerate(raws)]
    data = {"verdicts": verdicts} | ({"message": message} if message else {})
    return review_of(data, PropositionSet("adherence", propositions, hard=hard), SHOWN, {"agent_name": "Ann"})


def said(verdict: str, quote: str = "Certainly! Here are three", claims: tuple[str, ...] = ("c1",)) -> dict[str, Any]:
    return {"claims": [*claims], "quote": quote, "reason": "An assistant speaks.", "verdict": verdict}


@pytest.mark.parametrize(
    ("raws", "hard", "score"),
    [
        pytest.param((6, 0, 3), False, (2 * 6 + 9 + 3) / 4, id="weights and inversion"),
        pytest.param((6, None, 3), False, (2 * 6 + 3) / 3, id="what does not apply leaves"),
        pytest.param((None, None, None), False, None, id="nothing applies"),
        pytest.param((9, 0, 5), True, (2 * 9 + 9 + 4) / 4, id="hard mode spares the perfect"),
    ],
)
def test_score(raws: tuple[int | None, ...], hard: bool, score: float | None) -> None:
    assert review(*raws, hard=hard).score == pytest.approx(score)


def test_weightless_claims_give_no_score() -> None:
    assert review(3, propositions=(Proposition("x", "x", 0.0),)).score is None


def test_feedback_names_the_failing_claims_with_reason_and_recommendation() -> None:
    text = feedback_text(review(2, 9, 8), 5.0, TEXTS)
    assert text.splitlines() == [
        "Not sent: 3.0 of 9 for staying in character, 5.0 needed.",
        "- Missing: Ann tells a story in your message. reason 0",
        "  Instead: Tell of a time you won.",
        "- Avoid: Ann is dull. reason 1",
        "Rewrite and resend.",
    ]


def test_a_score_just_below_the_threshold_does_not_read_as_reaching_it() -> None:
    near = review(5, 5, 5, propositions=(STORY, FACT, Proposition("z", "z", 0.1)))
    assert "4.9 of 9" in feedback_text(Review(4.97, near.claims), 5.0, TEXTS)


def test_feedback_lists_no_more_than_five_claims() -> None:
    many = tuple(Proposition(f"p{n}", f"claim {n}", float(n + 1)) for n in range(9))
    lines = feedback_text(review(*[1] * 9, propositions=many), 5.0, TEXTS).splitlines()
    assert [line.split(": ")[1] for line in lines if line.startswith("- ")] == [
        f"claim {n}. reason {n}" for n in (8, 7, 6, 5, 4)
    ]


def test_reasoning_is_that_of_the_failing_claims_else_of_all() -> None:
    assert review(2, 0, 8).reasoning(5.0) == "story (2.0): reason 0"
    assert review(8, 0, None).reasoning(5.0) == "story (8.0): reason 0\ndull (9.0): reason 1"


@pytest.mark.parametrize("language", LANGUAGES)
def test_feedback_is_in_the_agents_language(language: str) -> None:
    claims = (Proposition("a", "AAA {{action}}.", 2.0, False, "CCC"), Proposition("b", "BBB。", 1.0, True))
    texts = Nudges().of("ann", language).gate
    found = feedback_text(review(2, 9, propositions=claims), 5.0, texts)
    parts = ("1.3", "5.0", "AAA " + texts.your_message, "BBB", "reason 0", "reason 1", "CCC")
    assert all(part in found for part in parts)
    assert "{{" not in found and found.count("\n") == 4 and "。。" not in found
    first, *_ = feedback_text(review(9, 0, 9, message=said("out")), 5.0, texts).splitlines()
    assert "Certainly! Here are three" in first and "An assistant speaks." in first
    if language != "en":
        english = {"missing:", "avoid:", "instead:", "of", "your", "the", "needed.", "rewrite"}
        assert not {*found.lower().split()} & english and "out of character" not in first


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        pytest.param(None, None, id="an answer from before the question"),
        pytest.param(said("in", quote=""), Role.IN, id="in"),
        pytest.param(said("unclear", quote="x"), Role.UNCLEAR, id="unclear"),
        pytest.param(said("out"), Role.OUT, id="out, white space folded"),
        pytest.param(said("OUT"), Role.OUT, id="another case"),
        pytest.param(said("out", quote="Sure thing"), Role.UNCLEAR, id="words that are not in the message"),
        pytest.param(said("out", quote="Well?"), Role.UNCLEAR, id="words of the context"),
        pytest.param(said("out", quote=" "), Role.UNCLEAR, id="no words"),
    ],
)
def test_out_needs_words_of_the_message(message: dict[str, Any] | None, verdict: Role | None) -> None:
    found = review(9, 0, 9, message=message)
    assert (found.message and found.message.verdict) == verdict
    assert found.is_out is (verdict is Role.OUT)
    assert found.score == 9
    assert found.message is None or found.message.quote in ("", "Certainly! Here are three")


def test_a_message_that_is_out_scores_nothing_where_no_claim_applies() -> None:
    assert review(None, None, None, message=said("out")).score == 0
    assert review(None, None, None, message=said("in")).score is None


def test_feedback_on_a_message_that_is_out_leads_with_the_quote_and_the_claim() -> None:
    found = review(9, 9, 8, message=said("out", claims=("c3", "c7", "c3")))
    assert feedback_text(found, 5.0, TEXTS).splitlines() == [
        'Not sent, out of character: "Certainly! Here are three" An assistant speaks.',
        "- Missing: Ann states a fact.",
        "- Avoid: Ann is dull. reason 1",
        "Rewrite and resend.",
    ]
    assert found.reasoning(5.0).splitlines()[0] == 'out (fact): "Certainly! Here are three" An assistant speaks.'


def test_only_a_message_that_is_out_changes_the_feedback() -> None:
    low = feedback_text(review(2, 9, 8), 5.0, TEXTS)
    assert low == feedback_text(review(2, 9, 8, message=said("unclear")), 5.0, TEXTS)
    assert low == feedback_text(review(2, 9, 8, message=said("out", quote="Sure thing")), 5.0, TEXTS)
