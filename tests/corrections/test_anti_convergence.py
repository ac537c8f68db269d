from datetime import UTC, datetime

import pytest

from persona_pipeline.corrections.nudges import HEADING, AgentTexts, AntiConvergence, Nudges
from persona_pipeline.world import CorrectionSettings
from persona_pipeline.world.models import Message

ON = CorrectionSettings(anti_convergence_enabled=True)
NUDGES = Nudges(
    {
        "ann": AgentTexts(anti_convergence=["Ann, disagree about {{channel_name}}."]),
        "_default": AgentTexts(anti_convergence=["{{agent_name}}, speak up."]),
    }
)
YES, NO = "I agree with that", "Pretzel day is tomorrow"


def said(texts: list[str], *, channel: str | None = "general") -> list[Message]:
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    recipient = None if channel else "ann"
    return [Message(f"m{n}", "bob", text, moment, channel, recipient) for n, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "fires"),
    [
        pytest.param([], False, id="an empty channel"),
        pytest.param([YES] * 10, True, id="all agree"),
        pytest.param([YES] * 6 + [NO] * 4, False, id="exactly the threshold"),
        pytest.param([YES] * 7 + [NO] * 3, True, id="one above"),
        pytest.param([NO] * 30 + [YES] * 10, True, id="only the last ten count"),
        pytest.param([YES] * 30 + [NO] * 10, False, id="older agreement is over"),
        pytest.param([YES], True, id="one message"),
        pytest.param(["I don't agree", "not exactly", "I disagree"] * 3, False, id="disagreement"),
    ],
)
def test_fires_above_the_threshold(texts: list[str], fires: bool) -> None:
    assert (AntiConvergence(ON, nudges=NUDGES).nudge("ann", texts) is not None) is fires
    assert (AntiConvergence(ON, nudges=NUDGES).nudge("ann", said(texts)) is not None) is fires


def test_the_nudge_is_the_agents_own_under_its_heading() -> None:
    anti = AntiConvergence(ON, nudges=NUDGES)
    assert anti.nudge("ann", said([YES])) == f'{HEADING}\n\nAnn, disagree about "general".'
    assert anti.nudge("bob", [YES], agent_name="Bob B.") == f"{HEADING}\n\nBob B., speak up."


def test_direct_messages_never_lead_to_one() -> None:
    assert AntiConvergence(ON).nudge("ann", said([YES] * 10, channel=None)) is None


def test_is_off_unless_the_agent_has_it_on() -> None:
    anti = AntiConvergence(lambda agent_id: ON if agent_id == "ann" else CorrectionSettings(), nudges=NUDGES)
    assert anti.nudge("ann", [YES])
    assert anti.nudge("bob", [YES]) is None


def test_the_threshold_is_the_agents_own() -> None:
    strict = CorrectionSettings(anti_convergence_enabled=True, convergence_threshold=0.1)
    found = AntiConvergence(strict).find("ann", [YES] * 2 + [NO] * 8)
    assert found is not None
    assert (found.share, found.threshold) == (0.2, 0.1)


def test_what_it_cannot_read_never_fires_and_is_said() -> None:
    texts = ["Совершенно верно, я тоже так думаю."] * 10
    assert AntiConvergence(ON, nudges=NUDGES).find("ann", texts) is None
    assert AntiConvergence(ON, nudges=NUDGES).unread(texts) == "no lexicon for ru"
    assert AntiConvergence(ON, nudges=NUDGES).unread([YES] * 10) == ""
