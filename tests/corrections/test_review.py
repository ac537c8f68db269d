import pytest

from persona_pipeline.corrections.nudges import Nudges
from persona_pipeline.corrections.prompt import Review, feedback_text, review_of
from persona_pipeline.world.propositions.models import Proposition, PropositionSet
from tests.support.languages import LANGUAGES

TEXTS = Nudges().of("ann").gate
STORY = Proposition("story", "{{agent_name}} tells a story in {{action}}", 2.0, False, "Tell of a time you won.")
DULL = Proposition("dull", "{{agent_name}} is dull.", 1.0, True)
FACT = Proposition("fact", "{{agent_name}} states a fact", 1.0)


def review(*raws: int | None, hard: bool = False, propositions=(STORY, DULL, FACT)) -> Review:
    verdicts = [{"id": f"c{i + 1}", "score": raw, "reason": f"reason {i}"} for i, raw in enumerate(raws)]
    return review_of(
        {"verdicts": verdicts}, PropositionSet("adherence", propositions, hard=hard), {"agent_name": "Ann"}
    )


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
    assert all(
        part in found for part in ("1.3", "5.0", "AAA " + texts.your_message, "BBB", "reason 0", "reason 1", "CCC")
    )
    assert "{{" not in found and found.count("\n") == 4 and "。。" not in found
    if language != "en":
        assert not {*found.lower().split()} & {
            "missing:",
            "avoid:",
            "instead:",
            "of",
            "your",
            "the",
            "needed.",
            "rewrite",
        }
