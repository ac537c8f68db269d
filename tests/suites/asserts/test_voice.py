"""``voice``: the share of the answer's messages that are in character, by the judge's verdict on each."""

from pathlib import Path
from typing import Any

import pytest

from persona_pipeline.judging.verdict import Unscored
from persona_pipeline.suites import UngradedError
from persona_pipeline.suites.grading.results import Grade
from persona_pipeline.testing.worlds import write_small_world
from tests.suites.support import grade, judging

QUOTES = {"out": "Certainly", "unclear": "Hm"}


def graded(folder: Path, roles: list[str] | Unscored, *texts: str, agent: str = "ann") -> Grade:
    def reply(_: object) -> dict[str, Any] | Unscored:
        if isinstance(roles, Unscored):
            return roles
        given = [{"id": f"m{place}", "verdict": role} for place, role in enumerate(roles, 1)]
        why = [
            {"id": item["id"], "claims": [], "quote": QUOTES[item["verdict"]], "reason": "An assistant."}
            for item in given
            if item["verdict"] in QUOTES
        ]
        return {"verdicts": given, "why": why}

    root = write_small_world(folder / "world")
    output = {"output_messages": [{"role": "assistant", "content": text} for text in texts]}
    with judging(reply, world_root=lambda: root) as (opened, _):
        return grade(folder, {"type": "voice", "agent": agent}, output, services=opened)


@pytest.mark.parametrize(
    ("roles", "score", "met"),
    [
        pytest.param(["in", "in", "in"], 1.0, True, id="all in"),
        pytest.param(["in", "out", "in"], 2 / 3, False, id="one out"),
        pytest.param(["in", "unclear", "out"], 0.5, False, id="unclear is left out"),
        pytest.param(["out", "out", "out"], 0.0, False, id="all out"),
    ],
)
def test_it_is_the_share_in_character(tmp_path: Path, roles: list[str], score: float, met: bool) -> None:
    found = graded(tmp_path, roles, "Certainly! Hm.", "Certainly. Hm!", "Certainly, hm. Hm.")
    assert found.score == pytest.approx(score)
    assert (bool(found.hits), bool(found.misses)) == (met, not met)
    assert met or ('out: "Certainly" An assistant.' in found.misses[0])


@pytest.mark.parametrize(
    ("roles", "agent", "reason"),
    [
        pytest.param(["unclear"], "ann", "unclear", id="the judge cannot tell"),
        pytest.param(Unscored.UNRECORDED, "ann", "unrecorded", id="no answer"),
        pytest.param(["in"], "nobody", "invalid_configuration", id="no such agent"),
    ],
)
def test_what_cannot_be_told_is_an_error(tmp_path: Path, roles: list[str] | Unscored, agent: str, reason: str) -> None:
    with pytest.raises(UngradedError) as caught:
        graded(tmp_path, roles, "Certainly! Hm.", agent=agent)
    assert caught.value.reason == reason
