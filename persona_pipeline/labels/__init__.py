"""Labels: what people, or another model, say of judgments that the judge gave too. What a judge is measured against."""

from persona_pipeline.labels.files import (
    LABELS,
    Label,
    LabellerKind,
    label_of,
    load_label_file,
    load_labels,
    write_labels,
)
from persona_pipeline.labels.session import Judgment
from persona_pipeline.labels.staleness import StaleLabel, stale_labels

__all__ = [
    "LABELS",
    "Judgment",
    "Label",
    "LabellerKind",
    "StaleLabel",
    "label_of",
    "load_label_file",
    "load_labels",
    "stale_labels",
    "write_labels",
]
