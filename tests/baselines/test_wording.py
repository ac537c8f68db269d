"""Falls in words."""

from persona_pipeline.guard.baselines.models import ClaimTest, DimensionComparison, PropositionDrop
from persona_pipeline.guard.findings import drop_sentence, fall_sentence


def moved(delta: float) -> ClaimTest:
    return ClaimTest(delta=delta, interval=(delta - 1, delta + 1), p_value=0.01, detectable=2.0)


def test_a_fall_names_the_claims_to_read_first() -> None:
    item = DimensionComparison(
        dimension="adherence", status="regressed", current=6.0, baseline=8.2, delta=-2.2, interval=(-2.9, -1.5),
        claims={"dry": moved(-4.0), "warm": moved(-3.0), "hedges": moved(-2.0), "draws": moved(0.5)},
    )  # fmt: skip
    assert fall_sentence("pam", item, 1.0) == (
        "pam: adherence fell by 2.20 from 8.20 to 6.00 (allowed 1; 95 % sure of 1.5 to 2.9); most of it in dry (-4.0) and "
        "warm (-3.0): read those first"
    )


def test_without_a_test_the_numbers_stand_alone() -> None:
    item = DimensionComparison(dimension="fluency", status="regressed", current=6.0, baseline=8.0, delta=-2.0)
    assert fall_sentence("pam", item, 1.0) == "pam: fluency fell by 2.00 from 8.00 to 6.00 (allowed 1)"


def test_a_claim_ends_with_its_remedy() -> None:
    drop = PropositionDrop(
        dimension="adherence", proposition_id="dry", baseline=8.0, current=2.0, delta=-6.0,
        recommendation="Keep it short.", interval=(-7.0, -5.0),
    )  # fmt: skip
    assert drop_sentence("pam", drop, 3.0) == (
        "pam: adherence/dry fell by 6.0 from 8.0 to 2.0 (allowed 3; 95 % sure of 5.0 to 7.0); Keep it short."
    )
