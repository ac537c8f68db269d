"""The gate asks the check of a voice before the judge, or instead of it; it never holds up or loses a text."""

import asyncio
from pathlib import Path

import pytest

from persona_pipeline.corrections.gate import ActionGate
from persona_pipeline.corrections.records import Action, GateDecision, Outcome
from persona_pipeline.corrections.voices import LearntChecks
from persona_pipeline.guard.labels.files import LABELS, write_label_files
from persona_pipeline.guard.labels.voice import VoiceLabel
from persona_pipeline.world import CorrectionSettings, World
from tests.corrections.support import TextBackend
from tests.labels.voices import HALF, labels, message

ON, OFF = message(307, True).text, message(308, False).text
BOTH = CorrectionSettings(action_gate_enabled=True, voice_check=True)
ALONE = CorrectionSettings(voice_check=True)


def checks(world: World, settings: CorrectionSettings, *texts: str) -> tuple[list[GateDecision], TextBackend]:
    backend = TextBackend()
    gate = ActionGate(world, backend, settings=settings)
    gate.voices.score("ann", "")
    assert gate.voices.wait(60)

    async def run() -> list[GateDecision]:
        async with gate:
            return [
                await gate.check("ann", text, channel="general", attempt=n) for n, text in enumerate(texts, start=1)
            ]

    return asyncio.run(run()), backend


@pytest.fixture
def labelled(world: World) -> World:
    write_label_files(VoiceLabel, world.root / LABELS, labels(HALF))
    return world


@pytest.mark.parametrize(
    ("settings", "text", "action", "judged"),
    [
        (BOTH, OFF, Action.RETRY, 0),
        (BOTH, ON, Action.COMMIT, 1),
        (ALONE, OFF, Action.RETRY, 0),
        (ALONE, ON, Action.COMMIT, 0),
        (CorrectionSettings(), OFF, Action.COMMIT, 0),
    ],
)
def test_it_comes_before_the_judge(
    labelled: World, settings: CorrectionSettings, text: str, action: Action, judged: int
) -> None:
    (decision,), backend = checks(labelled, settings, text)
    assert (decision.action, len(backend.questions)) == (action, judged)
    if action is Action.RETRY:
        assert decision.feedback is not None and "does not sound like you" in decision.feedback
        assert decision.score is not None and decision.score < 4.5


def test_after_enough_attempts_the_text_goes_through(labelled: World) -> None:
    decisions, _ = checks(labelled, ALONE.model_copy(update={"max_correction_attempts": 1}), OFF, OFF)
    assert [item.outcome for item in decisions] == [Outcome.CORRECTED, Outcome.FORCED_THROUGH]


@pytest.mark.parametrize("labels_there", ["none", "few", "broken"])
def test_without_a_check_the_text_goes_out_and_the_judge_is_asked(world: World, labels_there: str) -> None:
    if labels_there != "none":
        write_label_files(VoiceLabel, world.root / LABELS, labels(HALF[:4]))
    if labels_there == "broken":
        (world.root / LABELS / "voice.jsonl").write_text("{", encoding="utf-8")
    (alone,), _ = checks(world, ALONE, OFF)
    assert (alone.action, alone.outcome, alone.reason) == (Action.COMMIT, Outcome.FAIL_OPEN, "no_voice_check")
    (both,), backend = checks(world, BOTH, ON)
    assert both.outcome is Outcome.PASSED
    assert len(backend.questions) == 1


def test_it_follows_the_labels(tmp_path: Path) -> None:
    found = LearntChecks(tmp_path, seconds=0)
    assert found.score("ann", ON) is None
    write_label_files(VoiceLabel, tmp_path / LABELS, labels(HALF))
    found.score("ann", ON)
    assert found.wait(60)
    assert (found.score("ann", ON) or 0) > 4.5
    assert (found.score("ann", "x" * 1_000_000)) is not None
