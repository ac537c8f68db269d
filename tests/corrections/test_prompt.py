import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.corrections.prompt import (
    PROMPT_VERSION,
    SCHEMA,
    answer_problem,
    gate_question,
    review_of,
)
from persona_pipeline.judging.model.messages import RequestStyle
from persona_pipeline.judging.verdict import Question
from persona_pipeline.world.models import Entry, Trajectory
from persona_pipeline.world.propositions.models import Proposition, PropositionSet
from tests.corrections.support import claims_of

CLAIMS = [Proposition(f"p{n}", f"{{{{agent_name}}}} does {n}, says {{{{action}}}}") for n in range(3)]


def verdict(number: int, score: Any = 5, **changes: Any) -> dict[str, Any]:
    return {"id": f"c{number}", "reason": "so", "score": score} | changes


MESSAGE = {"claims": ["c1"], "quote": "hi", "reason": "so", "verdict": "out"}
VALID = [verdict(1), verdict(2, None), verdict(3, 0)]


SHOWN = Trajectory((Entry("Ann", "hi", "x1", "general"),))


def ask(text: str, persona: str | None = "Ann is dry.", *, earlier: int = 1):
    before = [Entry("Ann", "before", "x1", "general")] * earlier
    trajectory = Trajectory((*before, Entry("Ann", text, "", "general")))
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
        pytest.param({"verdicts": [*VALID[:2], verdict(3, 10)]}, "$.verdicts[2].score", id="above the scale"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, True)]}, "$.verdicts[2].score", id="a truth value"),
        pytest.param({"verdicts": [*VALID[:2], verdict(3, "5")]}, "$.verdicts[2].score", id="a string"),
        pytest.param([], "$", id="no object"),
        pytest.param({"message": MESSAGE}, "verdicts", id="no verdicts on claims"),
        pytest.param({"verdicts": VALID, "message": MESSAGE}, None, id="a verdict on the message"),
        pytest.param({"verdicts": VALID, "message": MESSAGE | {"verdict": "Out"}}, None, id="another case"),
        pytest.param(
            {"verdicts": VALID, "message": MESSAGE | {"claims": ["c9"]}}, None, id="a claim that was not asked"
        ),
        pytest.param(
            {"verdicts": VALID, "message": MESSAGE | {"verdict": "maybe"}}, "$.message.verdict", id="another verdict"
        ),
        pytest.param({"verdicts": VALID, "message": None}, "$.message", id="no verdict on the message"),
        pytest.param({"verdicts": VALID, "message": MESSAGE, "more": 1}, "more", id="another key"),
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
    said = {"verdicts": [verdict(2, None, reason=" a \n b "), verdict(1, 9)]}
    claims = PropositionSet("adherence", (Proposition("one", "a"), Proposition("two", "b")))
    found = [(item.score, item.reasoning) for item in review_of(said, claims, SHOWN, {}).claims]
    assert found == [(9, "so"), (None, "a b")]


def test_the_claims_that_fail_come_by_how_much_they_cost() -> None:
    claims = PropositionSet(
        "adherence",
        (Proposition("a", "a"), Proposition("b", "b"), Proposition("c", "c", weight=4.0), Proposition("d", "d")),
    )
    review = review_of({"verdicts": [verdict(1, 4), verdict(2, 1), verdict(3, 3), verdict(4, 5)]}, claims, SHOWN, {})
    assert [item.proposition.id for item in review.failing(5.0)] == ["c", "b", "a"]


@given(st.text(min_size=1))
def test_no_text_of_an_agent_leaves_the_transcript(text: str) -> None:
    question, other = ask(text), ask("something else")
    assert (question.ask, question.system, question.context) == (other.ask, other.system, other.context)
    assert json.loads(question.evidence)[-1]["text"] == text


@pytest.mark.parametrize("structured", [True, False])
@given(text=st.text(min_size=1))
def test_a_request_differs_from_another_in_its_tool_result_alone(structured: bool, text: str) -> None:
    def without_result(text: str) -> dict[str, Any]:
        body = RequestStyle("claude-haiku-5-5", "low", structured).body(ask(text), cache_ttl="5m")
        del body["messages"][2]["content"][0]["content"]
        return body

    assert without_result(text) == without_result("something else")


def test_what_stays_the_same_from_message_to_message_comes_first_and_is_marked() -> None:
    first, later = (
        RequestStyle("claude-haiku-5-5").body(ask(text, earlier=earlier), cache_ttl="5m")
        for text, earlier in (("one", 0), ("two", 9))
    )
    assert (first["system"], first["tools"], first["messages"][0]) == (
        later["system"],
        later["tools"],
        later["messages"][0],
    )
    blocks = [block for item in later["messages"] for block in item["content"]]
    assert [n for n, block in enumerate(blocks) if "cache_control" in block] == [2]
    assert [block["text"].partition(",")[0] for block in blocks[:2]] == ["Persona of the agent", "Claims to check"]


@pytest.mark.parametrize(("count", "tokens"), [(1, 330), (3, 490), (20, 1850)])
def test_there_is_room_for_an_answer_to_every_claim(count: int, tokens: int) -> None:
    asked = gate_question(CLAIMS[:1] * count, SHOWN, agent_id="ann", persona=None, variables={})
    assert asked.max_tokens == tokens


def test_recordings_keep_their_key() -> None:
    assert ask("a").key == "6ef7dd71a959c49aca7ea99632fcfe9762c5d397d5310dc31e6a7caf6a879456"


def test_the_key_depends_on_what_is_judged() -> None:
    assert ask("a").key == ask("a").key
    assert len({ask("a").key, ask("b").key, ask("a", persona=None).key}) == 3


def test_canon_is_context_that_claims_follow_and_changes_the_key_only_where_there_is_one() -> None:
    def asked(*canon: str) -> Question:
        return gate_question(CLAIMS, SHOWN, agent_id="ann", persona="Ann is dry.", canon=canon, variables={})

    with_canon = asked("Ann is 34.")
    assert "Ann is 34." in with_canon.context[1] and "Ann is 34." not in with_canon.evidence + with_canon.ask
    assert len(claims_of(with_canon.context)) == 3
    assert with_canon.key != asked().key
    assert len(asked().context) == 2


def test_claims_refer_to_the_action() -> None:
    assert claims_of(ask("a").context)[1] == {"id": "c2", "claim": "Ann does 1, says the message under review"}
    assert ask("a").ask == (
        "Check m2 against each of these claims: c1, c2, c3. Then give the verdict on m2 as a whole."
    )


def test_the_answer_reasons_before_it_scores() -> None:
    item = SCHEMA["properties"]["verdicts"]["items"]
    assert list(item["properties"]) == item["required"] == ["id", "reason", "score"]
    assert list(SCHEMA["properties"]) == ["verdicts", "message"]
    assert list(SCHEMA["properties"]["message"]["properties"]) == ["claims", "quote", "reason", "verdict"]
    assert PROMPT_VERSION.startswith("gate-")
