"""A recorded judgment as a line of JSON, readable in a diff, sealed by a key of its visible fields, and signed."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from persona_pipeline.base.documents.json import canonical_json, json_line, json_object, read_rows, visible
from persona_pipeline.base.errors import ConfigError, Problem, did_you_mean
from persona_pipeline.judging.claims import is_quote
from persona_pipeline.judging.verdict import PROPOSITION, SCALE, Unscored, answer_subject, recording_key, shown_subject

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
_KEY = re.compile(r"[0-9a-f]{64}")
# Characters of a failure's detail.
MOST_DETAIL = 400


@dataclass(frozen=True)
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

    key: str
    kind: str = PROPOSITION
    agent_id: str = ""
    dimension: str = ""
    proposition_id: str = ""
    claim: str = ""
    persona: str | None = None
    trajectory: str = ""
    subject: str = ""
    sample: int = 0
    score: int | None = None
    unscored: Unscored | None = None
    detail: str = ""
    min_coverage: float | None = None
    reasoning: str = ""
    evidence: tuple[tuple[str, str], ...] = ()
    ideas: tuple[str, ...] = ()
    label: str = ""
    answer: Mapping[str, Any] | None = None
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
_STRINGS = (
    *("kind", "agent_id", "dimension", "proposition_id", "claim", "trajectory", "subject"),
    *("detail", "reasoning", "label", "recorded_at", "signature"),
)


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
    if not isinstance(data.get("key"), str) or not _KEY.fullmatch(data["key"]):
        raise ValueError("'key' is not a SHA-256 in hex")
    kind = data.get("kind", PROPOSITION)
    for name in _STRINGS:
        if not isinstance(data.get(name, ""), str):
            raise ValueError(f"{name!r} is not a string")
    if type(data.get("sample", 0)) is not int or data.get("sample", 0) < 0:
        raise ValueError("'sample' is not a whole number from 0")
    for name in ("persona", "model", "prompt_version"):
        if not isinstance(data.get(name), str | None):
            raise ValueError(f"{name!r} is neither a string nor null")
    data["unscored"] = _unscored(data, kind)
    if kind == PROPOSITION:
        data["evidence"] = _evidence(data.get("evidence", []))
        ideas = data.get("ideas", [])
        if not isinstance(ideas, list) or not all(isinstance(idea, str) for idea in ideas):
            raise ValueError("'ideas' is not a list of strings")
        data["ideas"] = tuple(ideas)
    recording = Recording(**data)
    if not (recording.trajectory or recording.subject):
        raise ValueError("recorded by an older version, without the hash of what was judged")
    if recording.key != recording.proper_key:
        raise ValueError("its key is not that of what the line says was judged: a field or the key was changed by hand")
    return recording


def _unscored(data: Mapping[str, Any], kind: str) -> Unscored | None:
    """Return why a line has no score; also check the fields that belong to it."""
    said = "score" if kind == PROPOSITION else "answer"
    for name in ("dimension", "proposition_id") if kind == PROPOSITION else ():
        if not data.get(name):
            raise ValueError(f"{name!r} is missing")
    answer, unscored = data.get(said), data.get("unscored")
    if (answer is None) == (unscored is None):
        raise ValueError(f"exactly one of {said!r} and 'unscored' has a value")
    if unscored is None:
        if kind != PROPOSITION and not isinstance(answer, dict):
            raise ValueError(f"a recording of kind {kind!r} has an object under 'answer'")
        if kind == PROPOSITION and (type(answer) is not int or answer not in SCALE):
            raise ValueError(f"score {json.dumps(answer)} is not a whole number from 0 to 9")
        _check_failure(data, False)
        return None
    known = [reason for reason in Unscored if reason.is_failed_call or (kind == PROPOSITION and reason.is_answer)]
    if unscored not in known:
        raise ValueError(f"'unscored' {json.dumps(unscored)} is none of {', '.join(known)}")
    _check_failure(data, Unscored(unscored).is_failed_call)
    return Unscored(unscored)


def _check_failure(data: Mapping[str, Any], failed: bool) -> None:
    detail, coverage = data.get("detail", ""), data.get("min_coverage")
    if not failed and (detail or coverage is not None):
        raise ValueError("only what failed has 'detail' and 'min_coverage'")
    if detail != in_one_line(detail):
        raise ValueError(f"'detail' is not one line of at most {MOST_DETAIL} printable characters")
    if coverage is not None and (type(coverage) not in (int, float) or not 0 <= coverage <= 1):
        raise ValueError("'min_coverage' is not a number from 0 to 1")


def in_one_line(detail: str) -> str:
    """Return an error, which may be a server's text, on a line of bounded length."""
    return visible(detail)[:MOST_DETAIL].strip()


def _evidence(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not all(map(is_quote, value)):
        raise ValueError("'evidence' is not a list of objects with 'message' and 'quote'")
    return tuple((item["message"], item["quote"]) for item in value)


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
