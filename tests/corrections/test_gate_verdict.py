"""The judge's verdict on the whole message: a message that is out of character is held whatever its score."""

import asyncio
import json

import pytest
import sqlalchemy as sa

from persona_pipeline.base.database import tables
from persona_pipeline.corrections import ActionGate
from persona_pipeline.corrections.records import Action, GateDecision, Outcome
from persona_pipeline.judging.verdict import Answer, Question
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world import CorrectionSettings, World
from persona_pipeline.world.personas import load_persona
from tests.corrections.support import GATED, TextBackend, claims_of, reviewed_text, scores_of

TEXT = "Certainly! Here are three options. 8"


def answering(verdict: str | None, quote: str | None = None) -> TextBackend:
    """Return a judge that scores each claim by the text's last digit and gives the whole message a verdict."""

    def answer(question: Question) -> Answer:
        text = reviewed_text(question.evidence)
        data = scores_of(text, claims_of(question.context))
        if verdict is not None:
            words = text if quote is None else quote
            data["message"] = {"claims": ["c1"], "quote": words, "reason": "An assistant.", "verdict": verdict}
        assert question.problem(data) is None
        return Answer(data, model="text-1")

    return TextBackend(answer)


def checked(
    world: World, backend: TextBackend, *texts: str, settings: CorrectionSettings = GATED
) -> list[GateDecision]:
    async def run() -> list[GateDecision]:
        async with ActionGate(world, backend, settings=settings) as gate:
            return [
                await gate.check("ann", text, channel="general", attempt=n) for n, text in enumerate(texts, start=1)
            ]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("verdict", "quote", "text", "action", "read"),
    [
        pytest.param("out", None, TEXT, Action.RETRY, Role.OUT, id="out in spite of a high mean"),
        pytest.param("out", None, "Certainly! 1", Action.RETRY, Role.OUT, id="out with a low mean"),
        pytest.param("out", None, "Certainly! n", Action.RETRY, Role.OUT, id="out where no claim applies"),
        pytest.param("out", "Sure thing", TEXT, Action.COMMIT, Role.UNCLEAR, id="out by words that are not there"),
        pytest.param("in", "", TEXT, Action.COMMIT, Role.IN, id="in"),
        pytest.param(
            None, None, "Bad. 1", Action.RETRY, None, id="an answer from before the question, with a low mean"
        ),
    ],
)
def test_out_is_below_the_threshold_and_nothing_else_changes(
    world: World, verdict: str | None, quote: str | None, text: str, action: Action, read: Role | None
) -> None:
    (decision,) = checked(world, answering(verdict, quote), text)
    assert (decision.action, decision.verdict, decision.text) == (action, read, text)
    expected = 0.0 if text.endswith("n") else float(text[-1])
    assert decision.score == expected
    assert (decision.feedback is None) is (action is Action.COMMIT)
    if read is Role.OUT:
        assert decision.feedback and decision.feedback.startswith(f'Not sent, out of character: "{text}" An assistant.')


def test_attempts_end_as_they_do_by_score(world: World) -> None:
    settings = GATED.model_copy(update={"max_correction_attempts": 1})
    found = checked(world, answering("out"), TEXT, TEXT, settings=settings)
    assert [item.outcome for item in found] == [Outcome.CORRECTED, Outcome.FORCED_THROUGH]


def test_the_verdict_is_written_down_and_its_words_only_where_words_can_be_forgotten(world: World) -> None:
    checked(world, answering("out"), TEXT)
    with world.store.connect() as connection:
        check = connection.execute(sa.select(tables.gate_checks)).one()
        log = connection.execute(sa.select(tables.correction_logs)).one()
    assert check.token_usage["verdict"] == "out" and "Certainly" not in json.dumps(check.token_usage)
    assert log.reasoning.startswith("out (") and TEXT in log.reasoning and log.score == 8


@pytest.mark.parametrize("canon", ["canon:\n- fact: Ann is 34.\n  kind: age\n", "canon: [", None])
def test_canon_is_shown_and_one_that_is_not_valid_is_left_out(world: World, canon: str | None) -> None:
    if canon is not None:
        (world.root / "personas" / "ann.canon.yaml").write_text(canon, encoding="utf-8")
    backend = answering("in", "")
    (decision,) = checked(world, backend, TEXT)
    assert decision.outcome is Outcome.PASSED
    shown = "".join(backend.questions[0].context)
    assert ("Ann is 34." in shown) is (canon is not None and "Ann" in canon)


def test_settings_that_the_verdict_replaced_are_read_and_do_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    path = world.root / "personas" / "ann.yaml"
    settings = {"action_gate_enabled": True, "voice_check": True, "facts_check": False}
    written = {"display_name": "Ann", "persona": "Ann is dry.", "corrections": settings}
    path.write_text(json.dumps(written), encoding="utf-8")
    for _ in range(2):
        assert load_persona(world.root, "ann").corrections == GATED
    (line,) = caplog.messages
    assert "ann.yaml" in line and "voice_check does nothing" in line and "verdict" in line
    assert CorrectionSettings.model_validate({"facts_check": True}) == CorrectionSettings()


def test_the_gate_leaves_out_claims_that_one_message_cannot_show(world: World) -> None:
    path = world.root / "propositions" / "adherence" / "ann.yaml"
    claim = "{id: stories, claim: It tells one story a day, applies_to: window}"
    path.write_text(f"{{dimension: adherence, propositions: [{claim}]}}\n", encoding="utf-8")
    backend = answering("in", "")
    [decision] = checked(world, backend, TEXT)
    assert decision.action is Action.COMMIT
    [question] = backend.questions
    assert claims_of(question.context) and "one story" not in json.dumps(question.context)
