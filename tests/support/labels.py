"""Labels of judgments as earlier releases wrote them, for tests."""

from datetime import UTC, datetime

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.guard.labels.files import Label, LabellerKind, checked_label
from persona_pipeline.judging.verdict import JudgeRequest, recording_key


def label_of(
    request: JudgeRequest,
    answer: int | None,
    *,
    labeller: str,
    kind: LabellerKind = LabellerKind.PERSON,
    note: str = "",
    labelled_at: datetime | None = None,
) -> Label:
    """Return the label of a judgment. ``answer``: 0-9; None: not applicable. ``labelled_at``: default now."""
    subject = {name: value for name, value in request.subject.items() if name != "kind"}
    given = {"labeller": labeller, "labeller_kind": kind, "note": note}
    answered = {"score": answer, "unscored": "not_applicable" if answer is None else None}
    when = {"labelled_at": rfc3339(labelled_at or datetime.now(UTC)), "key": recording_key(request.subject)}
    return checked_label(Label, {**subject, **given, **answered, **when})
