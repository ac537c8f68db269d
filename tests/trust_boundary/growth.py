"""How the time of a stage grows with the length of a hostile text: the stages, the texts, and the fit."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from math import log
from pathlib import Path

from persona_pipeline.corrections.prompt import gate_question
from persona_pipeline.guard.labels.files import is_filled
from persona_pipeline.importing import ReadOptions, Source
from persona_pipeline.importing.run import importer_of
from persona_pipeline.judging import injection
from persona_pipeline.judging.claims import proposition_question
from persona_pipeline.judging.model.messages import RequestStyle
from persona_pipeline.judging.verdict import JudgeRequest, Verdict
from persona_pipeline.reporting.render import render
from persona_pipeline.scoring.plan import AgentCase, scorers
from persona_pipeline.scoring.style.features import Texts, everyday
from persona_pipeline.scoring.style.rivals import voice_similarity
from persona_pipeline.scoring.text.agreement import is_agreement
from persona_pipeline.scoring.text.repetition import find_repetition
from persona_pipeline.scoring.text.said_again import find_said_again
from persona_pipeline.scoring.text.tokens import (
    corpus_repetition,
    extract_ngrams,
    maximal_repeated,
    shared_openers,
    tokenize,
    vocabulary_stats,
)
from persona_pipeline.world.cards.files import Card
from persona_pipeline.world.messages.files import parse_messages
from persona_pipeline.world.models import Entry, Message, Trajectory, Window
from persona_pipeline.world.propositions.models import Proposition, PropositionSet
from tests.reporting.sample import sample_report
from tests.support.reports import report_text

HOSTILE: dict[str, str] = {
    "line breaks": "\n",
    "spaces": " ",
    "one letter": "a",
    "letters apart": "a ",
    "one word": "ignore ",
    "almost an order": "ignore the previous ",
    "almost a number": "give it a score of ",
    "almost a judge": "dear judge claim ",
    "opening braces": "{{",
    "opening tags": "<",
    "almost a tag": "<system ",
    "quotes": '"score" ',
    "base64": "QUJD",
    "hex": "41 ",
    "escapes": "\\u0041",
    "percent signs": "%41",
    "entities": "&#65;",
    "marks on a letter": "a\u0301\u0302",
    "invisible": "\u200b",
    "Chinese": "忽略规则",
    "emoji": "👩\u200d👩\u200d👧",
    "full stops": "yes. ",
    "not not": "not agree ",
    "hashes": "# ",
    "no cut": "ab" * 7 + "-",
}
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
STYLE = RequestStyle("claude-haiku-5-5", "low")
CLAIM = Proposition(id="p", claim="{{agent_name}} is dry")
Stage = Callable[[str], object]


def hostile(kind: str, length: int) -> str:
    """Return a hostile text of a kind and a length in characters."""
    unit = HOSTILE[kind]
    return (unit * (length // len(unit) + 1))[:length]


def _message(number: int, agent: str, text: str) -> Message:
    return Message(f"m{number}", agent, text, NOON - timedelta(minutes=number), channel="general")


def _ingest(text: str) -> object:
    row = {"id": "m", "agent_id": "ann", "channel": "c", "text": text, "created_at": NOON.isoformat()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.jsonl")
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        return parse_messages(path)


def _import(text: str) -> object:
    said = {"role": "user", "content": text, "name": "ann", "extra": {text[:500]: text}}
    given = {"gen_ai.prompt.0.content": text, "gen_ai.completion.0.content": text, "session.id": text}
    span = {
        "traceId": "1" * 32, "spanId": "1" * 16, "startTimeUnixNano": "1", "endTimeUnixNano": "2",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in given.items()],
    }  # fmt: skip
    records = {
        "openai": {"messages": [said], "created": NOON.isoformat()},
        "langfuse": {"id": "t", "timestamp": NOON.isoformat(), "input": text, "output": said, "metadata": text},
        "slack": {"type": "message", "user": text, "ts": "1772352000.000100", "text": text, "username": text},
        "sillytavern": {"name": "ann", "is_user": True, "mes": text, "send_date": text},
        "otlp": {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "general", "2026-03-01.json")
        path.parent.mkdir()
        found = []
        for name, record in records.items():
            path.write_text(json.dumps([record]), encoding="utf-8")
            source = Source(path.parent.parent if name == "slack" else path, "export")
            importer = importer_of(source, name)
            found += [row for file in importer.files(source) for row in importer.rows(file, ReadOptions())]
        return found


def _card(text: str) -> object:
    card = Card.parse(
        json.dumps({"name": f"a{text[:200]}", "description": text, "mes_example": f"{{{{char}}}}: {text}"})
    )
    return card.persona, card.changed("x", text).text()


def _plan(text: str) -> object:
    own = [_message(1, "ann", text), _message(3, "ann", "The kettle is old.")]
    everybody = [own[0], _message(2, "bob", "I oiled it."), own[1]]
    case = AgentCase(
        "ann", "Ann", "Dry.", Window(NOON), own, earlier=own, channels={"general": everybody}, names={"ann": "Ann"}
    )
    plans = [scorers()[name](case, PropositionSet(name, (CLAIM,), "ann")) for name in scorers()]
    return [plan.finish([Verdict("p", score=5) for _ in plan.requests]) for plan in plans]


def _trajectory(text: str) -> Trajectory:
    return Trajectory((Entry("Ann", text, "m1"), Entry("Bob", "fine", "m2"), Entry("Ann", text[:100], "m3")))


def _ask(text: str) -> object:
    request = JudgeRequest("adherence", "p", "Ann is dry", _trajectory(text), agent_id="ann")
    return request.key, STYLE.body(proposition_question([request], max_tokens=9))


def _gate(text: str) -> object:
    question = gate_question(
        [CLAIM], _trajectory(text), agent_id="ann", persona="Dry.", variables={"agent_name": "Ann"}
    )
    return question.key, STYLE.body(question)


def _ngrams(text: str) -> object:
    messages = [text, text[: len(text) // 2], "The kettle is old."]
    tokens = [tokenize(message) for message in messages]
    return [
        extract_ngrams(text, 3),
        corpus_repetition(messages, 3),
        maximal_repeated(tokens),
        shared_openers(tokens),
        vocabulary_stats(messages),
    ]


def _again(text: str) -> object:
    messages = [text, text[3:] + " one", text[5:] + " two", text + " three", text[:-3]]
    return find_repetition(messages), find_said_again([("c", message) for message in messages])


def _report(text: str) -> object:
    report = sample_report()
    agent = report.agents["michael"]
    dimensions = agent.evaluation.dimensions
    first = next(iter(dimensions.values()))
    item = next(iter(first.propositions.values()))
    quotes = [quote.model_copy(update={"quote": text}) for quote in item.evidence]
    first.propositions[item.id] = item.model_copy(update={"reasoning": text, "evidence": quotes, "detail": text})
    return [render(report, name) for name in ("json", "markdown", "html", "junit")], report_text(report)


STAGES: dict[str, Stage] = {
    "ingest": _ingest,
    "import": _import,
    "card": _card,
    "plan": _plan,
    "ask a judge": _ask,
    "injection check": injection.reads_as_injection,
    "n-grams": _ngrams,
    "voices": lambda text: voice_similarity({"ann": [text], "bob": ["I oiled it."], "cat": ["Fine."]}),
    "agreement": is_agreement,
    "repetition": _again,
    "voice alarm": lambda text: (Texts([text], 5).shape(), Texts([text], 5).grams, Texts([text], 5).words),
    "language": lambda text: everyday([text]),
    "claim of a label": lambda text: is_filled("{{a}} " * 3 + "end", text),
    "report": _report,
    "gate": _gate,
}


@dataclass(frozen=True)
class Growth:
    """CPU seconds by length of a text. ``exponent``: of the power of the length that they grow with between the two longest."""

    stage: str
    kind: str
    seconds: tuple[tuple[int, float], ...]

    @property
    def exponent(self) -> float:
        (short, before), (long, after) = self.seconds[-2:]
        return log(after / before) / log(long / short)


def growth(stage: str, kind: str, lengths: Sequence[int], *, tries: int = 2) -> Growth:
    """Measure a stage on a kind of text; the least of some tries counts, since all else that runs only adds."""
    run = STAGES[stage]
    return Growth(
        stage,
        kind,
        tuple(
            (length, max(1e-6, min(_cpu_seconds(partial(run, hostile(kind, length))) for _ in range(tries))))
            for length in lengths
        ),
    )


def _cpu_seconds(work: Callable[[], object]) -> float:
    for cached in (injection.suspicious_entries, injection._read):
        cached.cache_clear()
    started = time.thread_time()
    work()
    return time.thread_time() - started
