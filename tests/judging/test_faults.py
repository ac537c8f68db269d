"""What a broken server, network or model does to a run: no number, a name for it, and the rest goes on."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.progress import Progress
from persona_pipeline.judging.providers.base import ModelOptions
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from tests.support.clock import LONG, Clock, ended_at
from tests.support.judging import every_entry, request, trajectory
from tests.support.messages_server import (
    ANSWER,
    Call,
    Cut,
    Hang,
    MessagesServer,
    Outcome,
    Reply,
    Reset,
    Trickle,
    message,
    status,
    verdicts,
)
from tests.support.providers import PROVIDERS, options_of, set_environment


def altered(change: Callable[[dict], object]) -> Callable[[Call], Outcome]:
    """Answer with the server's own verdict, changed in place or replaced."""

    def handler(call: Call) -> Outcome:
        data = verdicts(call.body)
        return message(json.dumps(change(data) or data))

    return handler


def item(**changes: object) -> Callable[[Call], Outcome]:
    return altered(lambda data: data["verdicts"][0].update(changes))


@dataclass(frozen=True)
class Fault:
    """What happens to one call, and what the run says of it."""

    outcome: Outcome | Callable[[Call], Outcome]
    reason: Unscored
    said: str


def text(words: str) -> Reply:
    return message(words)


FAULTS = {
    "reset": Fault(Reset(), Unscored.API_ERROR, "connection failed"),
    "hang": Fault(Hang(), Unscored.TIMEOUT, "no answer within the deadline"),
    "trickle": Fault(Trickle(ANSWER, interval=0.02), Unscored.TIMEOUT, "no answer within the deadline"),
    "body cut off": Fault(Cut(ANSWER), Unscored.API_ERROR, "connection failed"),
    "500": Fault(status(500), Unscored.API_ERROR, "HTTP 500"),
    "529": Fault(status(529, "overloaded_error"), Unscored.API_ERROR, "HTTP 529"),
    "502 with an HTML page": Fault(
        Reply(b"<html>Bad gateway</html>", 502), Unscored.API_ERROR, "HTTP 502: no JSON in the response"
    ),
    "413": Fault(status(413, "invalid_request_error"), Unscored.API_ERROR, "HTTP 413"),
    "200 with an HTML page": Fault(Reply(b"<html>Sign in</html>"), Unscored.API_ERROR, "a body that is not JSON"),
    "200 with other JSON": Fault(Reply({"status": "ok"}), Unscored.API_ERROR, "the response is no message"),
    "refusal": Fault(message(None, stop_reason="refusal"), Unscored.REFUSAL, "the model refused"),
    "max_tokens twice": Fault(
        message('{"verdicts": [', stop_reason="max_tokens"), Unscored.TRUNCATED, "stopped by max_tokens"
    ),
    "tool_use": Fault(message(None, stop_reason="tool_use"), Unscored.INVALID_OUTPUT, "'tool_use' instead"),
    "no stop reason": Fault(
        lambda call: message(json.dumps(verdicts(call.body)), stop_reason=None), Unscored.INVALID_OUTPUT, "'None'"
    ),
    "empty content": Fault(message(None), Unscored.INVALID_OUTPUT, "the answer has no text"),
    "text alone": Fault(text("Sure, it is an 8."), Unscored.INVALID_OUTPUT, '"Sure, it is an 8."'),
    "wrong id": Fault(item(proposition_id="habit_2"), Unscored.INVALID_OUTPUT, "nobody asked about"),
    "score 10": Fault(item(score=10), Unscored.INVALID_OUTPUT, "score 10"),
}


def judged(
    server: MessagesServer, options: ModelOptions, asked: Sequence[JudgeRequest], clock: Clock, *, hanging: int
) -> Sequence[Verdict]:
    """Judge; when only as many calls as hang are left, and have come to the server, their deadline passes."""
    progress = Progress(lambda line: None)

    async def run() -> Sequence[Verdict]:
        judging = live_judge(ModelBackend(options, progress=progress)).judge(asked)
        if not hanging:
            return await judging

        def only_these_are_left() -> bool:
            return progress.done == len(asked) - hanging and server.under_way == hanging

        return await ended_at(clock, options.deadline, judging, waiting=only_these_are_left)

    return asyncio.run(run())


@pytest.mark.parametrize("fault", ["refusal", "text alone", "score 10"])
def test_what_a_useless_answer_cost_is_counted(fault: str, server: MessagesServer, judge: OpenedJudge) -> None:
    server.handler = lambda call: _outcome(FAULTS[fault], call)
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert verdict.usage.output_tokens > 0
    assert verdict.usage.usd and verdict.usage.usd > 0


def test_an_answer_cut_off_once_is_asked_again_with_twice_the_tokens(
    server: MessagesServer, judge: OpenedJudge
) -> None:
    server.script(message('{"verdi', stop_reason="max_tokens"))
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert verdict.score is not None
    assert [call.body["max_tokens"] for call in server.calls] == [2048, 4096]
    assert verdict.usage.calls == 2


def test_an_answer_behind_a_thinking_block_is_read(server: MessagesServer, judge: OpenedJudge) -> None:
    def handler(call: Call) -> Outcome:
        thinking = {"type": "thinking", "thinking": '{"verdicts": []}', "signature": "x"}
        answer = {"type": "text", "text": json.dumps(verdicts(call.body, lambda claim: 4))}
        return message(None, content=[thinking, answer])

    server.handler = handler
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert verdict.score == 4


def test_an_answer_without_usage_has_a_score_and_an_unknown_price(server: MessagesServer, judge: OpenedJudge) -> None:
    server.handler = lambda call: message(json.dumps(verdicts(call.body)), usage=None)
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert verdict.score is not None
    assert verdict.usage.usd is None
    assert verdict.usage.calls == 1


def test_a_throttled_call_succeeds_when_the_server_recovers(server: MessagesServer, options: ModelOptions) -> None:
    server.script(
        status(429, "rate_limit_error", retry_after_ms="10"), status(529, "overloaded_error", retry_after_ms="10")
    )
    judge = live_judge(ModelBackend(replace(options, max_retries=2, patience=LONG)))
    (verdict,) = asyncio.run(judge.judge([request()]))
    assert verdict.score is not None
    assert judge.backend.pacer.refused == 2


@pytest.mark.parametrize(
    "hostile",
    [
        "😀 👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "lone \ud83d surrogate",
        "nul \x00 byte",
        "שלום \u202e evil \u202c",
        "\u2028\u2029\x85\x1b[2J",
        "e\u0301\ufeff",
    ],
    ids=["emoji", "lone surrogate", "NUL", "right to left", "line separators", "combining"],
)
def test_hostile_text_reaches_the_judge_unchanged_and_is_judged(
    hostile: str, server: MessagesServer, judge: OpenedJudge
) -> None:
    shown = trajectory(hostile, "plain")
    (verdict,) = asyncio.run(judge.judge([request(f"says {hostile}", trajectory=shown, persona=hostile)]))
    assert every_entry(server.calls[0].evidence) == shown.content()
    assert verdict.score is not None
    assert verdict.evidence[0].verified


def test_a_transcript_of_a_hundred_thousand_tokens_is_judged_at_its_higher_price(
    server: MessagesServer, judge: OpenedJudge
) -> None:
    long = trajectory("All work and no play makes Jack a dull boy, word by word by word. " * 60, length=110)
    (verdict,) = asyncio.run(judge.judge([request(trajectory=long)]))
    assert verdict.score is not None
    assert verdict.usage.input_tokens > 100_000
    assert verdict.usage.usd == pytest.approx(
        verdict.usage.input_tokens * 0.5e-6 + verdict.usage.output_tokens * 2.5e-6
    )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_fault_is_named_and_stops_nothing_else(provider: str, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """All faults in one run, of each provider's protocol, with a call that nothing happens to after each."""
    set_environment(monkeypatch)
    # What hangs comes last: the first calls go alone.
    names = sorted(FAULTS, key=lambda name: FAULTS[name].reason is Unscored.TIMEOUT)
    asked = [request(f"fault {index}:", f"fault_{index}") for index in range(2 * len(names))]

    def outcome(call: Call) -> Outcome:
        name, is_well = names[_number(call) // 2], _number(call) % 2
        return ANSWER if is_well else _outcome(FAULTS[name], call)

    with MessagesServer(outcome, protocol=provider) as server:
        width = len(asked)
        options = replace(options_of(provider, server), width=width, breaker_threshold=width, patience=LONG)
        hanging = sum(fault.reason is Unscored.TIMEOUT for fault in FAULTS.values())
        told = judged(server, options, asked, clock, hanging=hanging)
    (nowhere,) = asyncio.run(live_judge(ModelBackend(options)).judge([request()]))
    assert server.problems == []
    found = dict(zip(names, told[::2], strict=True))
    assert {name: verdict.unscored for name, verdict in found.items()} == {name: FAULTS[name].reason for name in names}
    assert [name for name, verdict in found.items() if FAULTS[name].said not in verdict.detail] == []
    assert all(verdict.score is not None for verdict in told[1::2])
    assert (nowhere.unscored, nowhere.usage.usd) == (Unscored.API_ERROR, 0)
    assert nowhere.detail.startswith("connection failed: ConnectError")


def _number(call: Call) -> int:
    return int(call.raw.decode().split("fault ")[1].split(":")[0])


def _outcome(fault: Fault, call: Call) -> Outcome:
    return fault.outcome(call) if callable(fault.outcome) else fault.outcome
