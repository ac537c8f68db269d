"""Numbers at their ends: coverage of nothing, why nothing is scored, where a conversation breaks."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persona_pipeline.scoring import adherence
from persona_pipeline.scoring.adherence import MessageValue
from persona_pipeline.scoring.plan import AgentCase, JudgedPropositions
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult
from persona_pipeline.world.models import Message, Window

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(("scored", "expected", "share"), [(0, 0, 1.0), (0, 4, 0.0), (1, 4, 0.25), (4, 4, 1.0)])
def test_where_nothing_was_expected_all_is_covered(scored: int, expected: int, share: float) -> None:
    item = DimensionEvaluation(
        dimension="adherence", score=None, n_scored=scored, n_expected=expected, proposition_set_hash=""
    )
    assert item.coverage == share


@pytest.mark.parametrize(
    ("unscored", "reason"),
    [
        ((), "no_evidence"),
        (("not_applicable", "timeout"), "timeout"),
        (("not_applicable", "no_evidence"), "not_applicable"),
        (("timeout", "not_applicable"), "timeout"),
    ],
)
def test_why_nothing_is_scored_is_the_first_failure_else_the_first_answer(
    unscored: tuple[str, ...], reason: str
) -> None:
    found = JudgedPropositions()
    for number, why in enumerate(unscored):
        found.results[str(number)] = PropositionResult(id=str(number), claim="c", raw=None, score=None, unscored=why)
    assert found.reason() == reason
    item = DimensionEvaluation(
        dimension="adherence", score=None, n_scored=0, n_expected=2, proposition_set_hash="", propositions=found.results
    )
    assert item.unscored_reasons == {why: unscored.count(why) for why in unscored}


def said(who: str, text: str, minute: int, **values: str) -> Message:
    return Message(f"{who}{minute}", who, text, NINE + timedelta(minutes=minute), **values)


def test_a_case_names_both_sides() -> None:
    case = AgentCase(
        "ann", "Ann", "Ann is dry.", Window(NINE, NINE + timedelta(days=1)), (), names={"ann": "Ann Lee", "bob": "Bob Ray"}
    )  # fmt: skip
    entry = case.entry(said("ann", "hi", 3, recipient="bob"))
    assert (entry.speaker, entry.recipient) == ("Ann Lee", "Bob Ray")
    assert case.entry(said("ann", "hi", 3, channel="a")).recipient is None


@pytest.mark.parametrize(
    ("values", "end"),
    [
        pytest.param((8.0, 8.0, 1.0, 1.0), (3, True), id="the last two"),
        pytest.param((8.0, 3.0, 9.0, 1.0, 1.0), (4, True), id="a turn that makes up for the one before"),
        pytest.param((8.0, 1.0, 8.0, 1.0, 1.0), (2, True), id="one that does not"),
        pytest.param((8.0, 8.0, 8.0, 4.0), (4, False), id="one bad turn is not enough"),
        pytest.param((4.9, 4.9, 4.9), (1, True), id="from the first"),
        pytest.param((8.0, 8.0), (2, False), id="never"),
        pytest.param((8, 8, 8, 4.8, 4.9), (4, True), id="a little below"),
        pytest.param((8, 8, 8, 5.0, 5.0), (5, False), id="at the middle"),
        pytest.param((8, 8, 8, 5.1, 4.9), (5, False), id="as much above as below"),
    ],
)
def test_a_character_is_lost_from_the_turn_on_from_which_most_lies_below(
    values: tuple[float, ...], end: tuple[int, bool]
) -> None:
    turns = [MessageValue(number, value) for number, value in enumerate(values, start=1)]
    assert adherence.character_end(turns) == end


def test_a_message_scores_the_weighted_mean_of_its_claims() -> None:
    def row(key: str, raws: dict[str, float | None], **values: Any) -> PropositionResult:
        parts = [{"part": part, "raw": raw} for part, raw in raws.items()]
        return PropositionResult(id=key, claim="c", score=5.0, parts=parts, **values)

    rows = {
        "dry": row("dry", {"m1": 9.0, "m2": None}, weight=3.0),
        "loud": row("loud", {"m1": 8.0, "m2": 2.0}, inverted=True),
    }
    found = adherence.message_scores(DimensionEvaluation(dimension="adherence", propositions=rows))
    assert found == {"m1": (9 * 3 + 1) / 4, "m2": 7.0}
