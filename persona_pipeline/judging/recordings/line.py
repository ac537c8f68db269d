"""A recorded judgment as a line of JSON, readable in a diff, sealed by a key of its visible fields, and signed."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from persona_pipeline.base.documents.json import canonical_json, json_line, json_object, read_rows, visible
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.base.text import shortened
from persona_pipeline.judging.claims import is_quote
from persona_pipeline.judging.verdict import (
    PROPOSITION,
    SCALE,
    Answer,
    Unscored,
    answer_subject,
    recording_key,
    shown_subject,
)

SIGNATURE = "signature"


def signature_of(line: Mapping[str, Any], secret: bytes) -> str:
    """Return the HMAC-SHA256 (64 hex digits) of a recording's fields, its signature left out."""
    signed = canonical_json({name: value for name, value in line.items() if name != SIGNATURE})
    return hmac.new(secret, signed.encode("ascii"), hashlib.sha256).hexdigest()


def is_signed(line: Mapping[str, Any], secret: bytes) -> bool:
    """Whether the recording carries the signature of the secret's holder."""
    given = line.get(SIGNATURE)
    return isinstance(given, str) and hmac.compare_digest(
        given.encode("utf-8"), signature_of(line, secret).encode("ascii")
    )


# The fields of a line in their order.
_OF_CLAIMS = (
    *("agent_id", "dimension", "proposition_id", "claim", "persona", "trajectory", "sample"),
    *("score", "unscored", "reasoning", "evidence", "ideas"),
)
_LAST = ("model", "prompt_version", "recorded_at")
# Agents that a recording is filed under when it has none.
_NOBODY = "_shared"
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Characters of a failure's detail.
MOST_DETAIL = 400


def _pairs(value: Any) -> Any:
    """Return quotes as pairs, from the objects of a line."""
    if isinstance(value, list) and all(map(is_quote, value)):
        return tuple((item["message"], item["quote"]) for item in value)
    return value


@dataclass(frozen=True, config=ConfigDict(strict=True))
class Recording:
    """One recorded judgment: of kind ``proposition`` a verdict, of any other kind an ``answer``; or why there is none.

    Attributes:
        key: ``JudgeRequest.key`` or ``Question.key``; a line whose other fields do not give it is an error.
        persona: SHA-256 of the persona the judge was shown; None: it was shown none.
        trajectory: SHA-256 of the judged trajectory.
        subject: SHA-256 of the judged subject, of any other kind.
        sample: 0-based index of a repeated judgment.
        unscored: an answer without a score, or of any kind the reason why it failed.
        detail: of a failure, the error in one line.
        min_coverage: of a failure, the share (0-1) of judgments that had to be scored in the run that asked; None: all.
        evidence: pairs of local message id (``m3``) and quote.
        recorded_at: RFC 3339.
        signature: HMAC-SHA256 of the other fields; empty: it is not signed.
    """

    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    kind: str = PROPOSITION
    agent_id: str = ""
    dimension: str = ""
    proposition_id: str = ""
    claim: str = ""
    persona: str | None = None
    trajectory: str = ""
    subject: str = ""
    sample: Annotated[int, Field(ge=0)] = 0
    score: Annotated[int, Field(ge=SCALE[0], le=SCALE[-1])] | None = None
    unscored: Annotated[Unscored, Field(strict=False)] | None = None
    detail: str = ""
    min_coverage: Annotated[float, Field(ge=0, le=1)] | None = None
    reasoning: str = ""
    evidence: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs)] = ()
    ideas: Annotated[tuple[str, ...], Field(strict=False)] = ()
    label: str = ""
    answer: dict[str, Any] | None = None
    model: str | None = None
    prompt_version: str | None = None
    recorded_at: str = ""
    signature: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether it holds no answer, only that and why there was none."""
        return self.unscored is not None and not self.unscored.is_answer

    @property
    def judged(self) -> tuple[Any, ...]:
        """What the judge said, without the circumstances."""
        answer = None if self.answer is None else json.dumps(self.answer, sort_keys=True)
        return (self.score, self.unscored, self.reasoning, self.evidence, self.ideas, answer)

    @property
    def data(self) -> Mapping[str, Any]:
        """The answer as the judge gave it: of kind ``proposition`` in the form of the prompt's schema."""
        if self.answer is not None:
            return self.answer
        verdict = {
            "proposition_id": self.proposition_id,
            "evidence": [{"message": message, "quote": quote} for message, quote in self.evidence],
            "reasoning": self.reasoning,
            "ideas": list(self.ideas),
            "verdict": self.unscored.value if self.unscored else "scored",
            "score": self.score,
        }
        return {"verdicts": [verdict]}

    @property
    def as_answer(self) -> Answer:
        """The recorded answer, as a judge gives one."""
        return Answer(self.data, model=self.model, prompt_version=self.prompt_version, cached=True)

    @property
    def proper_key(self) -> str:
        """The key that the visible fields give."""
        if self.kind != PROPOSITION:
            return recording_key(answer_subject(self.kind, self.agent_id, self.subject), self.sample)
        return recording_key(shown_subject(self), self.sample)

    def to_line(self, secret: bytes | None = None) -> str:
        """Return the JSON line, ended by a line feed; ``secret``: signed with it."""
        # Empty fields without a meaning are left out.
        left_out = {name for name in ("agent_id", "sample", "ideas") if not getattr(self, name)}
        if self.kind == PROPOSITION:
            names, left_out = _OF_CLAIMS, left_out - {"agent_id"}
        else:
            names = ("agent_id", "label", "subject", "sample", "unscored" if self.has_failed else "answer")
        names = ("key", "kind", *names, *(("detail", "min_coverage") if self.has_failed else ()), *_LAST)
        data: dict[str, Any] = {name: getattr(self, name) for name in names if name not in left_out}
        if "evidence" in data:
            data["evidence"] = [{"message": message, "quote": quote} for message, quote in self.evidence]
        if secret is not None:
            data[SIGNATURE] = signature_of(data, secret)
        elif self.signature:
            data[SIGNATURE] = self.signature
        return json_line(data)

    @property
    def file(self) -> Path:
        """Where the recording is filed, relative to the recordings folder."""
        if self.kind == PROPOSITION:
            return Path(_safe(self.agent_id), f"{_safe(self.dimension)}.jsonl")
        return Path(_safe(self.kind), f"{_safe(self.agent_id)}.jsonl")


_FIELDS = {field.name for field in fields(Recording)}


def parse_line(line: str, secret: bytes | None = None, unsigned: bool = False) -> Recording:
    """Return the recording of a line, signed with ``secret`` unless it may be ``unsigned``; ValueError: the line is not valid."""
    data = json_object(line)
    for name in data.keys() - _FIELDS:
        raise ValueError(f"unknown field {name!r}{did_you_mean(name, _FIELDS)}")
    if secret is not None and not is_signed(data, secret):
        # Earlier releases signed texts that were not storable.
        if is_signed(json.loads(line), secret):
            data[SIGNATURE] = signature_of(data, secret)
        elif not unsigned:
            raise ValueError("not signed with PERSONA_RECORDINGS_SECRET")
    try:
        recording = Recording(**data)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        value = f" {shortened(json.dumps(wrong['input']), 60)}" if wrong["type"] != "missing" else ""
        raise ValueError(f"{wrong['loc'][0]!r}{value}: {wrong['msg'][0].lower()}{wrong['msg'][1:]}") from None
    if problem := _problem(recording):
        raise ValueError(problem)
    return recording


def _problem(item: Recording) -> str | None:
    """Return what in a recording does not fit together, or None."""
    is_claim, failed = item.kind == PROPOSITION, item.unscored is not None and item.unscored.is_failed_call
    said = item.score if is_claim else item.answer
    for name in ("dimension", "proposition_id") if is_claim else ():
        if not getattr(item, name):
            return f"{name!r} is missing"
    if (said is None) == (item.unscored is None):
        return f"exactly one of {'score' if is_claim else 'answer'!r} and 'unscored' has a value"
    if item.unscored and not (failed or (is_claim and item.unscored.is_answer)):
        return f"'unscored' is no reason that is recorded of kind {item.kind!r}: {item.unscored}"
    if not failed and (item.detail or item.min_coverage is not None):
        return "only what failed has 'detail' and 'min_coverage'"
    if item.detail != in_one_line(item.detail):
        return f"'detail' is not one line of at most {MOST_DETAIL} printable characters"
    if not (item.trajectory or item.subject):
        return "recorded by an older version, without the hash of what was judged"
    if item.key != item.proper_key:
        return "its key is not that of what the line says was judged: a field or the key was changed by hand"
    return None


def in_one_line(detail: str) -> str:
    """Return an error, which may be a server's text, on a line of bounded length."""
    return visible(detail)[:MOST_DETAIL].strip()


def _safe(name: str) -> str:
    if not name:
        return _NOBODY
    if not _SAFE_NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot name a recording's file; use letters, digits, '-' and '_', at most 64")
    return name


def read_recordings(
    path: Path, problems: list[Problem], secret: bytes | None, *, unsigned: bool = False
) -> list[tuple[int, Recording]]:
    """Return a file's recordings with their line numbers, as ``parse_line`` reads them; ``problems`` gets the other lines."""
    remedy = "correct the line or delete it and record again"
    return read_rows(path, lambda line: parse_line(line, secret, unsigned), problems, remedy=remedy)
