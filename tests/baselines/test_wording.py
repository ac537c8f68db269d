"""Drops in words."""

from persona_pipeline.guard.baselines.models import ClaimTest, DimensionComparison, PropositionDrop
from persona_pipeline.guard.findings import drop_sentence, fall_sentence


def moved(delta: float) -> ClaimTest:
    return ClaimTest(delta=delta, interval=(delta - 1, delta + 1), p_value=0.01)


def test_a_fall_names_the_claims_to_read_first() -> None:
    item = DimensionComparison(
        dimension="adherence", status="regressed", current=6.0, baseline=8.2, delta=-2.2, interval=(-2.9, -1.5),
        claims={"dry": moved(-4.0), "warm": moved(-3.0), "hedges": moved(-2.0), "draws": moved(0.5)},
    )  # fmt: skip
    assert fall_sentence(item, 1.0) == ("adherence 8.2 → 6.0 (95 % CI of the drop 1.5–2.9). Mostly: dry, warm")


def test_without_a_test_the_numbers_stand_alone() -> None:
    item = DimensionComparison(dimension="fluency", status="regressed", current=6.0, baseline=8.0, delta=-2.0)
    assert fall_sentence(item, 1.0) == "fluency 8.0 → 6.0 (allowed drop 1)"


def test_a_claim_ends_with_its_remedy() -> None:
    drop = PropositionDrop(
        dimension="adherence", proposition_id="dry", baseline=8.0, current=2.0, delta=-6.0,
        recommendation="Keep it short.", interval=(-7.0, -5.0),
    )  # fmt: skip
    assert drop_sentence(drop, 3.0) == (
        "claim dry (adherence) 8.0 → 2.0 (95 % CI of the drop 5.0–7.0). To do: Keep it short."
    )
