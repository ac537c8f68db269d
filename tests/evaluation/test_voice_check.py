"""What the check of a voice says in an evaluation and its report."""

from persona_pipeline.base.options import EvaluationRequest
from persona_pipeline.evaluation.run import run_evaluation
from persona_pipeline.guard.labels.files import LABELS, write_label_files
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, voice_label
from persona_pipeline.guard.report import EXIT_REGRESSION, RunReport
from persona_pipeline.judging.open import open_judge
from persona_pipeline.reporting.render import render
from persona_pipeline.reporting.statistics import Statistics, gather
from persona_pipeline.world import World

_STOCK = ("Thank you for", "please let me know", "I completely agree", "Great work", "I appreciate")


def evaluate(world: World, *fail_on: str) -> RunReport:
    request = EvaluationRequest(agents=["michael"], only_fail_on=list(fail_on))
    return run_evaluation(world, open_judge("recorded", world), request).report


def test_a_lost_voice_is_a_warning_and_fails_only_when_asked_to(sample_world: World) -> None:
    sample_world.sync()
    before = evaluate(sample_world, "coverage")
    assert not [finding for finding in before.all_findings() if finding.kind == "voice_check"]
    said = [(m, not any(words in m.text for words in _STOCK)) for m in sample_world.messages(agent_id="michael")]
    off = [item for item in said if not item[1]][:12]
    given = [
        voice_label(m, on, "ada", MarkSource.PERSON, chosen="random")
        for m, on in [*off, *said[:40]]
        if on or (m, on) in off
    ]
    write_label_files(VoiceLabel, sample_world.root / LABELS, given)
    report = evaluate(sample_world, "coverage")
    (finding,) = [finding for finding in report.all_findings() if finding.kind == "voice_check"]
    assert finding.exit_code == 0
    assert "messages do not sound like it (95 %)" in finding.message
    assert evaluate(sample_world, "voice_check").exit_code == EXIT_REGRESSION
    gathered = gather(sample_world, report)
    assert Statistics.of(gathered).voice_checks["michael"].called > 10
    page = render(gathered, "html")
    assert "Voice by labels" in page
