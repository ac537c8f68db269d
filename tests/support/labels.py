"""Labels of judgments as earlier releases wrote them, for tests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.guard.labels.files import Label, LabellerKind, checked_label
from persona_pipeline.judging.verdict import JudgeRequest, recording_key
from persona_pipeline.world.models import grouped


def write_labels(folder: Path, labels: Sequence[Label]) -> None:
    """Write labels of judgments to the files of a folder, replacing them."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = sorted(labels, key=lambda item: (item.agent_id, item.proposition_id, item.claim, item.key, item.labeller))
    for name, own in grouped(ordered, lambda label: label.file).items():
        (folder / f"{name}.jsonl").write_text("".join(label.to_line() for label in own), encoding="utf-8")


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
