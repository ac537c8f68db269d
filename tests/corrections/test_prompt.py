import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.corrections.prompt import (
    PROMPT_VERSION,
    SCHEMA,
    ClaimVerdict,
    answer_problem,
    claim_verdicts,
    gate_question,
)
from persona_pipeline.propositions.models import Proposition
from persona_pipeline.world.trajectory import Entry, Trajectory

CLAIMS = [Proposition(f"p{n}", f"{{{{agent_name}}}} does {n}, says {{{{action}}}}") for n in range(3)]


def verdict(number: int, score: Any = 5, **changes: Any) -> dict[str, Any]:
    return {"id": f"c{number}", "reason": "so", "score": score} | changes


VALID = [verdict(1), verdict(2, None), verdict(3, 0)]


def ask(text: str, persona: str | None = "Ann is dry."):
    trajectory = Trajectory((Entry("Ann", "before", "x1", "general"), Entry("Ann", text, "", "general")))
    return gate_question(
        CLAIMS, trajectory, agent_id="ann", persona=persona, variables={"agent_name": "Ann", "channel_name": "general"}
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param({"verdicts": VALID}, None, id="one each"),
        pytest.param({"verdicts": VALID[::-1]}, None, id="another order"),
        pytest.param({"verdicts": VALID[:2]}, "exactly one", id="one missing"),
        pytest.param({"verdicts": [*VALID, verdict(4)]}, "exactly one", id="one too many"),
        pytest.param({"verdicts": [*VALID[:2], verdict(2)]}, "exactly one", id="one twice"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, 10)]}, "0 to 9", id="above the scale"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, True)]}, "0 to 9", id="a truth value"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, 4.5)]}, "0 to 9", id="a half"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, "5")]}, "0 to 9", id="a string"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, extra=1)]}, "exactly the fields", id="another field"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, reason=None)]}, "not a string", id="no reason"),
        pytest.param({"verdicts": {}}, "a list", id="no list"),
        pytest.param([], "a list", id="no object"),
        pytest.param(None, "a list", id="nothing"),
    ],
)
def test_an_answer_is_checked_strictly(data: Any, problem: str | None) -> None:
    found = answer_problem(data, 3)
    assert found is None if problem is None else problem in (found or "")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_no_other_data_passes(data: Any) -> None:
    assert answer_problem(data, 2) is not None


def test_verdicts_come_in_the_order_of_the_claims() -> None:
    verdicts = claim_verdicts({"verdicts": [verdict(2, None, reason=" a \n b "), verdict(1, 9)]})
    assert verdicts == [ClaimVerdict(9, "so"), ClaimVerdict(None, "a b")]


@given(st.text(min_size=1))
def test_no_text_of_an_agent_leaves_the_transcript(text: str) -> None:
    question, other = ask(text), ask("something else")
    assert (question.ask, question.system, question.context) == (other.ask, other.system, other.context)
    assert json.loads(question.evidence)[-1]["text"] == text


def test_the_key_depends_on_what_is_judged() -> None:
    assert ask("a").key == ask("a").key
    assert len({ask("a").key, ask("b").key, ask("a", persona=None).key}) == 3


def test_claims_refer_to_the_action() -> None:
    claims = json.loads(ask("a").ask.partition("\n")[2])["claims"]
    assert claims[1] == {"id": "c2", "claim": "Ann does 1, says the message under review (m2)"}


def test_the_answer_reasons_before_it_scores() -> None:
    item = SCHEMA["properties"]["verdicts"]["items"]
    assert list(item["properties"]) == item["required"] == ["id", "reason", "score"]
    assert PROMPT_VERSION.startswith("gate-")
