"""After how many turns of a scripted conversation a character is lost."""

from typing import Any

from persona_pipeline.scoring.adherence import MessageValue, message_scores
from persona_pipeline.scoring.results import DimensionEvaluation, PropositionResult


def conversation(values: list[float | None]) -> list[MessageValue]:
    return [MessageValue(number, value) for number, value in enumerate(values, start=1)]


def held(turns: int) -> list[MessageValue]:
    return conversation([8.0] * turns)


def lost_at(turn: int, turns: int = 12) -> list[MessageValue]:
    return conversation([8.0] * (turn - 1) + [2.0] * (turns - turn + 1))


def test_a_message_scores_what_its_claims_say_of_it() -> None:
    def row(key: str, raws: dict[str, float | None], **values: Any) -> PropositionResult:
        parts = [{"part": part, "raw": raw} for part, raw in raws.items()]
        return PropositionResult(id=key, claim="c", score=5.0, parts=parts, **values)

    rows = {
        "dry": row("dry", {"m1": 9.0, "m2": None}, weight=3.0),
        "loud": row("loud", {"m1": 8.0, "m2": 2.0}, inverted=True),
    }
    found = message_scores(DimensionEvaluation(dimension="adherence", propositions=rows))
    assert found == {"m1": (9 * 3 + 1) / 4, "m2": 7.0}
