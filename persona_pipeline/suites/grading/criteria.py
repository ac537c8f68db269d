"""Criteria of a rubric: how they are written, and how a judge's checks become a score."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from persona_pipeline.base.documents.json import list_schema, object_schema
from persona_pipeline.suites.format.models import StrictFields, Text, Weight
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.format.text import stringify
from persona_pipeline.suites.grading.judge_questions import ANALYTIC_RULES, CHECKLIST_RULES
from persona_pipeline.suites.grading.results import Grade, SuiteVerdict
from persona_pipeline.suites.grading.statistics import weighted_mean

TOP, GOOD = 10, 7
# Stands for a criterion that is wrong, which is said already.
PLACEHOLDER = {"id": "rubric-1", "outcome": "-"}


class ScoreRange(StrictFields):
    """What the whole scores from ``low`` to ``high`` (0-10) mean."""

    score_range: list[int] = Field(min_length=2, max_length=2)
    outcome: Text

    @model_validator(mode="after")
    def _is_a_range(self) -> "ScoreRange":
        low, high = self.score_range
        if not 0 <= low <= TOP or not 0 <= high <= TOP:
            raise ValueError(f"score_range [{low}, {high}] must lie in 0-{TOP}")
        if low > high:
            raise ValueError(f"score_range [{low}, {high}]: min must be <= max")
        return self


class Criterion(StrictFields):
    """One thing to check: met or not, or a score from 0 to 10 where the group has score ranges."""

    id: Text
    outcome: Text | None = None
    weight: Weight = 1.0
    required: bool = False
    required_min_score: int | None = Field(None, ge=0, le=TOP)
    score_ranges: list[ScoreRange] | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> "Criterion":
        if self.score_ranges is None:
            if self.outcome is None:
                raise ValueError(f"criterion {self.id!r} needs an outcome")
            return self
        # Every whole score from 0 to 10 lies in exactly one range.
        seen: set[int] = set()
        for item in self.score_ranges:
            low, high = item.score_range
            numbers = set(range(low, high + 1))
            if seen & numbers:
                raise ValueError(f"Overlapping score_ranges at {', '.join(map(str, sorted(seen & numbers)))}")
            seen |= numbers
        if missing := sorted(set(range(TOP + 1)) - seen):
            said = f"missing coverage for scores: {', '.join(map(str, missing))}"
            raise ValueError(f"Incomplete score_ranges coverage: {said}. Ranges must cover all integers 0-{TOP}.")
        return self

    @property
    def minimum(self) -> int | None:
        """The 0-10 score below which the group scores 0, None without one."""
        return TOP if self.required and self.required_min_score is None else self.required_min_score

    def asked(self) -> dict[str, Any]:
        return self.model_dump(include={"id", "outcome", "score_ranges"}, exclude_none=True)


def prepare_criteria(value: Any, key: str, entry: ConfigEntry, label: str, reader: Reader) -> Any:
    """Return a list of criteria as mappings: text is an outcome that is required, ids are made up, range maps are spelled out."""
    if not isinstance(value, list) or not value:
        wanted = "hold at least one criterion" if isinstance(value, list) else "be a list of criteria"
        reader.fail(entry, f"{label}: {key} must {wanted}", key)
        return [PLACEHOLDER]
    prepared: list[Any] = []
    places: dict[str, int] = {}
    for index, item in enumerate(value):
        if isinstance(item, str):
            item = {"id": f"rubric-{index + 1}", "outcome": item, "required": True}
        elif isinstance(item, dict):
            item = {"id": f"rubric-{index + 1}"} | {name: part for name, part in item.items() if part is not None}
            if "description" in item and "outcome" not in item:
                place = (key, index, "description")
                reader.deprecated(entry, f"{label}: {key}[{index}].description", "rename it to outcome", *place)
                item["outcome"] = item.pop("description")
            ranges: Any = item.get("score_ranges")
            if isinstance(ranges, dict):
                item["score_ranges"] = _spell_out(ranges, index, key, entry, label, reader)
        else:
            reader.fail(entry, f"{label}: {key}[{index}] must be a text or a mapping with outcome", key, index)
            item = {**PLACEHOLDER, "id": f"rubric-{index + 1}"}
        identity = item["id"]
        if isinstance(identity, str) and places.setdefault(identity, index) != index:
            reader.fail(entry, f"{label}: {key}[{index}]: id {identity!r} stands twice; rename one", key, index)
        prepared.append(item)
    return prepared


def _spell_out(
    ranges: Mapping[str, Any], index: int, key: str, entry: ConfigEntry, label: str, reader: Reader
) -> list[dict[str, Any]]:
    """Turn lower bounds, ``{0: Bad, 5: OK, 8: Good}``, into ranges; the last one runs to 10."""
    where = f"{label}: {key}[{index}].score_ranges"
    numbers = {name: int(name) for name in ranges if name.isascii() and name.isdigit() and int(name) <= TOP}
    readable = len(numbers) == len(ranges) > 0
    if not readable or min(numbers.values()) != 0:
        said = " must start at 0" if readable else f": keys must be whole numbers from 0 to {TOP}"
        reader.fail(entry, f"{where}{said}", key, index, "score_ranges")
        return [{"score_range": [0, TOP], "outcome": "-"}]
    ordered = sorted(numbers, key=numbers.__getitem__)
    ends = [*(numbers[name] - 1 for name in ordered[1:]), TOP]
    spans = zip(ordered, ends, strict=True)
    return [{"score_range": [numbers[name], end], "outcome": ranges[name]} for name, end in spans]


def is_analytic(criteria: Sequence[Criterion]) -> bool:
    """Return whether a group is scored from 0 to 10: one of its criteria speaks of such scores."""
    return any(item.score_ranges or item.required_min_score is not None for item in criteria)


def checks_asked(criteria: Sequence[Criterion], task: str | None = None) -> str:
    """Return what a judge is asked to check, after a task where there is one."""
    from persona_pipeline.judging.claims import plain_json

    listed = f"Check these criteria:\n{plain_json({'criteria': [item.asked() for item in criteria]})}"
    return listed if task is None else f"{task}\n\n{listed}"


def rules_and_schema(criteria: Sequence[Criterion]) -> tuple[str, dict[str, Any]]:
    """Return how a judge checks criteria, and the JSON schema of its reply. Reasons come before the decision."""
    check: dict[str, Any] = {"id": {"type": "string"}, "reasoning": {"type": "string"}}
    if is_analytic(criteria):
        rules, check["score"] = ANALYTIC_RULES, {"type": "integer", "enum": list(range(TOP + 1))}
    else:
        rules, check["satisfied"] = CHECKLIST_RULES, {"type": "boolean"}
    checks = list_schema(object_schema(check))
    return rules, object_schema({"checks": checks, "overall_reasoning": {"type": "string"}})


def reply_problem(data: Any, criteria: Sequence[Criterion]) -> str | None:
    """Return what is wrong with a judge's reply, None when every criterion is checked exactly once."""
    analytic = is_analytic(criteria)
    checks = data.get("checks") if isinstance(data, Mapping) else None
    if not isinstance(checks, list) or not all(isinstance(item, Mapping) for item in checks):
        return f"the reply has no list of checks: {stringify(data)[:60]}"
    ids = [item.get("id") for item in checks]
    wanted = [item.id for item in criteria]
    if sorted(map(str, ids)) != sorted(wanted):
        missing = [identity for identity in wanted if identity not in ids]
        return f"the reply must check every criterion once; missing: {missing}, given: {ids}"
    for item in checks:
        value = item.get("score" if analytic else "satisfied")
        if analytic and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOP):
            return f"check {item['id']!r} has no whole score from 0 to {TOP}, but {stringify(value)[:60]}"
        if not analytic and not isinstance(value, bool):
            return f"check {item['id']!r} must say true or false for satisfied, not {stringify(value)[:60]}"
    return None


def grade_checks(data: Mapping[str, Any], criteria: Sequence[Criterion]) -> Grade:
    """Return the grade of a reply without problems.

    Checklist: weight of what is satisfied over all weight. Analytic: weighted mean of score / 10. Either is 0 and fails when a
    required criterion is not met, or a score is below its minimum (10 for a required one).
    """
    analytic = is_analytic(criteria)
    checks = {item["id"]: item for item in data["checks"]}
    hits, misses = [], []
    scores: list[tuple[float, float]] = []
    gated = False
    for criterion in criteria:
        check = checks[criterion.id]
        share = check["score"] / TOP if analytic else float(check["satisfied"])
        if analytic:
            short = criterion.minimum is not None and check["score"] < criterion.minimum
            met = check["score"] >= GOOD and not short
        else:
            met = bool(check["satisfied"])
            short = criterion.required and not met
        gated = gated or short
        scores.append((share, criterion.weight))
        text = f"[{criterion.id}] {criterion.outcome or ''}".rstrip() + f": {check.get('reasoning') or ''}".rstrip(": ")
        (hits if met else misses).append(text)
    details: dict[str, Any] = {}
    if analytic:
        raw = {identity: item["score"] for identity, item in checks.items()}
        details = {"raw_scores": raw, "normalization": "score / 10", "aggregation": "weighted_average"}
    reasoning, mean = data.get("overall_reasoning"), weighted_mean(scores)
    return Grade(
        0.0 if gated else mean or 0.0,
        hits,
        misses,
        reasoning if isinstance(reasoning, str) and reasoning else None,
        SuiteVerdict.FAIL if gated else None,
        details or None,
        empty=mean is None and not gated,
    )
