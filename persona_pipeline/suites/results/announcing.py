"""A suite's run as OpenTelemetry events: one of each test and one of each of its asserts, in scores from 0 to 1."""

import logging
from collections.abc import Iterator

from persona_pipeline.suites.results.suite_result import SuiteResult
from persona_pipeline.telemetry.events import EvaluationEvent, emitter

_LOGGER = logging.getLogger("persona_pipeline.telemetry")


def announce_suite(result: SuiteResult) -> None:
    """Hand a suite's scores over where events are asked for; whatever goes wrong, the run does not learn of it."""
    sender = emitter()
    if sender is None:
        return
    try:
        sender.emit(suite_events(result))
    except Exception:
        _LOGGER.exception("scores were not handed to OpenTelemetry")


def suite_events(result: SuiteResult) -> Iterator[EvaluationEvent]:
    """Yield the events of a suite's run."""
    for test in result.tests:
        given = {
            "persona.suite": result.suite,
            "persona.test.id": test.test_id,
            "persona.target": test.target,
            "gen_ai.conversation.id": test.conversation_id,
        }
        error = test.error.reason if test.error else None
        yield EvaluationEvent(result.suite, test.score, test.verdict.value, error, attributes=given)
        for item in test.best.results:
            yield EvaluationEvent(
                f"{result.suite}/{item.name}",
                item.score,
                item.verdict.value,
                item.error.reason if item.error else None,
                item.reasoning,
                attributes={**given, "persona.assert.type": item.type},
            )
