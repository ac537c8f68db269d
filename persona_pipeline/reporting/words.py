"""The words and number formats of every report."""

from persona_pipeline.evaluation.report import Conclusion, Result
from persona_pipeline.propositions.dimensions import DIMENSIONS

DIMENSION_LABELS = {name: item.heading for name, item in DIMENSIONS.items()}
UNSCORED_LABELS = {
    "no_evidence": "no evidence",
    "not_applicable": "not applicable",
    "refusal": "judge refused",
    "truncated": "answer cut off",
    "invalid_output": "invalid answer",
    "timeout": "timed out",
    "api_error": "API error",
    "budget": "budget spent",
    "unrecorded": "not recorded",
}
# What is concluded, as a person reads it.
VERDICTS = {Result.HELD: "in character", Result.FELL: "drifted", Result.CANNOT_TELL: "cannot be told"}
NOTHING_TO_JUDGE = "nothing to judge"
# Headings of columns where there is little room, by their labels.
SHORT_LABELS = {item.heading.lower(): item.short_label for item in DIMENSIONS.values() if item.short_label} | {
    "judged": "n/m"
}


def verdict_label(conclusion: Conclusion) -> str:
    """Return what is concluded in the words of every report."""
    return VERDICTS[conclusion.verdict] if conclusion.verdict else NOTHING_TO_JUDGE


def dimension_label(name: str) -> str:
    """Return the heading of a dimension."""
    return DIMENSION_LABELS.get(name, name.replace("_", " ").capitalize())


def unscored_label(reason: str | None) -> str:
    """Return a reason for a missing score in plain words."""
    return UNSCORED_LABELS.get(reason or "", (reason or "not evaluated").replace("_", " "))


def format_score(value: float | None, digits: int = 2) -> str:
    """Return a 0-9 score with fixed digits, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def format_delta(value: float | None, digits: int = 2) -> str:
    """Return a signed change with a real minus sign; what rounds to nothing is ``±0``; None is an empty string."""
    if value is None:
        return ""
    rounded = round(value, digits)
    if rounded == 0:
        return "±0"
    return f"{'+' if rounded > 0 else '−'}{abs(rounded):.{digits}f}"


def format_usd(value: float | None) -> str:
    """Return US dollars, to a hundredth of a cent below one dollar; None means that the price of a model is not known."""
    if value is None:
        return "unknown"
    return f"${value:.2f}" if value == 0 or value >= 1 else f"${value:.4f}"
