"""Judgments to be labelled, for tests."""

from datetime import UTC, datetime

from persona_pipeline.evaluation.calibrate import Judgment
from persona_pipeline.judging.verdict import Unscored, Verdict
from persona_pipeline.world.models import Window
from tests.support.judging import request, trajectory

WINDOW = Window(datetime(2026, 6, 19, tzinfo=UTC), datetime(2026, 6, 12, tzinfo=UTC))


def judgment(number: int, score: int | None = 7, dimension: str = "adherence", *said: str) -> Judgment:
    """Return a judgment whose judge gave this score (None: not applicable)."""
    asked = request(
        f"Michael has habit {number}",
        f"habit-{number}",
        dimension=dimension,
        persona="A boss.",
        trajectory=trajectory(*said),
    )
    verdict = Verdict(
        asked.proposition_id,
        score=score,
        unscored=None if score is not None else Unscored.NOT_APPLICABLE,
        reasoning=f"Reason {number}.",
        model="judge-1",
        prompt_version="1",
    )
    return Judgment(asked, WINDOW, (verdict,))


def judgments(count: int, dimension: str = "adherence") -> list[Judgment]:
    """Return judgments with scores 0 to 9 in turn."""
    return [judgment(number, number % 10, dimension) for number in range(count)]
