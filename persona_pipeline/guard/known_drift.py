"""Known drifts. A baseline is not taken over one, nor kept across one, unless a person accepts it and says why."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.base.errors import ConfigError, Problem, not_valid
from persona_pipeline.base.files import read_regular
from persona_pipeline.base.options import BASELINE_WINDOWS, PROPOSITION_DELTA, REGRESSION_DELTA
from persona_pipeline.base.shares import ShareDrop
from persona_pipeline.base.text import some
from persona_pipeline.guard.baselines.golden import baseline_path, windows_taken
from persona_pipeline.guard.baselines.models import Acceptance, Baseline
from persona_pipeline.guard.baselines.regression import TOLERANCE, Rules, dropped, golden_propositions
from persona_pipeline.guard.findings import window_options
from persona_pipeline.guard.report import AgentEvaluation, AgentReport, Finding, about, doubt_of, provider_of
from persona_pipeline.scoring.messages.verdicts import LOWEST_SHARE
from persona_pipeline.world.models import Window
from persona_pipeline.world.propositions.models import dimension_label

# Folder of drifts that `try` found, next to the golden files.
DRIFTS = "drifts"
ADHERENCE = "adherence"
OUT_OF_CHARACTER = "out_of_character"
# Adherence, 0-9, below which a window is not the character.
LOWEST_ADHERENCE = 6.0
# Scores that differ by less are shown as the same number.
_ROUNDED = 0.05
_SECOND = timedelta(seconds=1)


class KnownDrift(BaseModel, extra="forbid", frozen=True):
    """A time in which an agent is known to be out of character.

    Attributes:
        since: the first message out of character. ``until``: the last one; None: it continues.
        found: the evidence and its source, in one sentence.
    """

    agent_id: str
    since: datetime
    until: datetime | None = None
    found: str = Field(min_length=1)

    def overlaps(self, window: Window) -> bool:
        """Return whether some of the drift is in a window."""
        is_over = self.until is not None and window.start is not None and self.until <= window.start
        return self.since <= window.end and not is_over

    def command(self, options: Sequence[str] = ()) -> str:
        """Return the command that takes a baseline of the windows before the drift, with further options."""
        return command_before(self.agent_id, self.since - _SECOND, options)

    def is_accepted(self, accepted: Acceptance | None) -> bool:
        """Return whether a baseline was accepted although this drift had begun by then."""
        return accepted is not None and accepted.since is not None and self.since.date() <= accepted.day


def drift_path(folder: Path, agent_id: str) -> Path:
    """Return where a drift of an agent is kept in a folder of golden files."""
    return baseline_path(folder / DRIFTS, agent_id)


def load_drift(path: Path) -> KnownDrift | None:
    """Return the drift in a file, None without a file; ``ConfigError``: it is invalid, or about another agent."""
    if not path.exists():
        return None
    try:
        drift = KnownDrift.model_validate_json(read_regular(path))
    except ValidationError as error:
        raise not_valid(error, "{name}: {why}; restore it", str(path)) from error
    except OSError as error:
        raise ConfigError(Problem(f"cannot be read ({error.strerror or error}); restore it", str(path))) from error
    if drift.agent_id != path.stem:
        raise ConfigError(Problem(f"is about {drift.agent_id!r}; its agent_id must be {path.stem!r}", str(path)))
    return drift


@dataclass(frozen=True)
class Objections:
    """Objections to a window as the norm: known drifts in it, and its scores, a sentence each."""

    drifts: Sequence[KnownDrift] = ()
    scores: Sequence[str] = ()

    @property
    def reasons(self) -> list[str]:
        """All of it, a sentence each."""
        return [*(drift.found for drift in self.drifts), *self.scores]

    @property
    def since(self) -> datetime | None:
        """When the earliest drift began; None where no date is known."""
        return min((drift.since for drift in self.drifts), default=None)


def objections(evaluation: AgentEvaluation, drifts: Sequence[KnownDrift]) -> Objections:
    """Return the objections to the window of an evaluation."""
    window, own = evaluation.window, drift_of_messages(evaluation)
    known = [drift for drift in (*drifts, *filter(None, [own])) if drift.overlaps(window)]
    return Objections(known, list(_own_scores(evaluation, dated=own is not None)))


def drift_of_messages(evaluation: AgentEvaluation) -> KnownDrift | None:
    """Return the drift that the verdicts on messages show; None: they show none."""
    messages = evaluation.messages
    if messages is None or messages.drift is None:
        return None
    found = messages.text(evaluation.display_name).removesuffix(".")
    return KnownDrift(agent_id=evaluation.agent_id, since=messages.drift.since, found=found)


def _out_of_character(
    evaluation: AgentEvaluation, baseline: Baseline | None, drop: ShareDrop | None, kind: str
) -> list[Finding]:
    """Return a regression where an agent is out of character and no person accepted that.

    Any of these counts: a known date, a 95 % interval of the share in character wholly below 80 %, or a share below the baseline's
    (``drop``), which no acceptance covers. ``kind``: of the finding.
    """
    messages, found = evaluation.messages, drift_of_messages(evaluation)
    accepted = baseline.accepted if baseline else None
    is_known = found.is_accepted(accepted) if found else accepted is not None
    fell = drop is not None and drop.fell
    is_low = bool(found) or (messages is not None and messages.share.high < LOWEST_SHARE)
    if messages is None or not (fell or (is_low and not is_known)):
        return []
    text = messages.text(evaluation.display_name).removesuffix(".")
    if drop is not None and drop.fell and not found:
        text += f"; {100 * drop.drop:.0f} points below its baseline ({100 * drop.before:.0f} %), at least {100 * drop.low:.0f}"
    return [about(evaluation.agent_id, kind, text, dimension=ADHERENCE)]


def _own_scores(evaluation: AgentEvaluation, *, dated: bool) -> Iterator[str]:
    adherence = evaluation.dimensions.get(ADHERENCE)
    if adherence is None:
        return
    if adherence.score is not None and adherence.score < LOWEST_ADHERENCE - TOLERANCE:
        yield f"adherence is {adherence.score:.1f}, below {LOWEST_ADHERENCE:g}"
    if evaluation.messages and evaluation.messages.is_low and not dated:
        yield evaluation.messages.text(evaluation.display_name).removesuffix(".")


def lower(new: Baseline, old: Baseline | None, rules: Rules) -> list[str]:
    """Return dimensions and claims that are lower in a new baseline than the old one allows, as ``adherence 8.7 → 0.3``.

    Rules looser than the default are not used.
    """
    if old is None:
        return []
    found = [
        _change(dimension_label(name).lower(), old.dimensions[name], score)
        for name, score in new.dimensions.items()
        if name in old.dimensions
        and dropped(score, old.dimensions[name], min(rules.of(name).regression_delta, REGRESSION_DELTA))
    ]
    for name, claims in new.proposition_scores.items():
        before, points = golden_propositions(old, name), min(rules.of(name).proposition_delta, PROPOSITION_DELTA)
        found += [
            _change(f"claim {key}", before[key], score)
            for key, score in claims.items()
            if key in before and not key.startswith("_") and dropped(score, before[key], points)
        ]
    return found


def moved_text(new: Baseline, old: Baseline | None) -> str:
    """Return old and new numbers of changed dimensions, as ``adherence 6.0 → 8.7``; "" without a change."""
    before = old.dimensions if old else {}
    return ", ".join(
        _change(dimension_label(name).lower(), before[name], score)
        for name, score in new.dimensions.items()
        if name in before and abs(score - before[name]) > _ROUNDED
    )


def _change(name: str, before: float, now: float) -> str:
    return f"{name} {before:.1f} → {now:.1f}"


def refusal(evaluation: AgentEvaluation, against: Objections, drops: Sequence[str], *, has_history: bool) -> Finding:
    """Return the refusal of a baseline, with commands for the windows before and for accepting it.

    ``drops``: see ``lower``. ``has_history``: the agent has messages before the window.
    """
    below = [f"it is lower than the baseline that is there ({some(drops)})"] if drops else []
    text = f"no baseline was taken: {'; '.join([*against.reasons, *below])}"
    return _advised(evaluation, text, against, has_history=has_history)


def _advised(evaluation: AgentEvaluation, text: str, against: Objections, *, has_history: bool) -> Finding:
    """Return a finding on a known drift, with the remedy."""
    remedy, command = _remedy(evaluation, against, has_history=has_history)
    return about(evaluation.agent_id, "known_drift", text, remedy=remedy, command=command)


def with_known_drifts(
    report: AgentReport, baseline: Baseline | None, drifts: Sequence[KnownDrift], *, has_history: bool
) -> list[Finding]:
    """Return a report's findings with known drifts in its window and in the windows of its baseline.

    Where a drift is known, one finding that advises the windows before it replaces findings that advise a baseline of this window.
    """
    evaluation, against = report.evaluation, objections(report.evaluation, drifts)
    # A judge that cannot be believed says nothing of messages either.
    doubted = doubt_of(report.findings) is not None
    kind = "doubted" if doubted else OUT_OF_CHARACTER
    found = [*report.findings, *_out_of_character(evaluation, baseline, report.comparison.share_drop, kind)]
    if against.reasons and not doubted and any(item.kind == "no_baseline" for item in found):
        found = [item for item in found if item.kind != "no_baseline"]
        # What another finding says of its messages is said once.
        untold = [reason for reason in against.reasons if not any(reason in item.message for item in found)]
        text = f"no baseline, and {'; '.join(untold) or 'none can be taken of this window'}"
        found.append(_advised(evaluation, text, against, has_history=has_history))
    if baseline is None:
        return found
    if accepted := baseline.accepted:
        text = f"its baseline was accepted on {accepted.day}: {accepted.reason} ({some(accepted.by)})"
        found.append(about(evaluation.agent_id, "accepted", text))
    if (spanned := _spanned(baseline, evaluation, drifts, against)).reasons:
        text = f"its baseline was taken over a drift: {'; '.join(spanned.reasons)}"
        found.append(_advised(evaluation, text, spanned, has_history=has_history))
    return found


def _spanned(
    baseline: Baseline, evaluation: AgentEvaluation, drifts: Sequence[KnownDrift], against: Objections
) -> Objections:
    """Return the objections to a baseline's windows that no person accepted."""
    windows, adherence = windows_taken(baseline), baseline.dimensions.get(ADHERENCE)
    known = [drift for drift in drifts if any(drift.overlaps(window) for window in windows)]
    scores = []
    if baseline.accepted is None:
        if adherence is not None and adherence < LOWEST_ADHERENCE - TOLERANCE:
            scores.append(f"its adherence is {adherence:.1f}, below {LOWEST_ADHERENCE:g}")
        elif evaluation.window in windows:
            # The window that is judged now is the baseline's.
            scores += against.scores
    return Objections([drift for drift in known if not drift.is_accepted(baseline.accepted)], scores)


def as_written(
    baseline: Baseline,
    old: Baseline | None,
    against: Objections,
    drops: Sequence[str],
    reason: str | None,
    now: datetime,
) -> Baseline | None:
    """Return a baseline to write, with its acceptance where there are objections; None: it is refused.

    Args:
        old: the current baseline.
        against, drops: see ``objections`` and ``lower``.
        reason: why a person accepts it; None: it is not accepted.
    """
    if not drops and (not against.reasons or _covers(old, baseline, against)):
        # An acceptance is kept while it applies: the same drift, or dimensions of that time.
        kept = old and (against.reasons or _is_partial(baseline, old))
        return baseline.model_copy(update={"accepted": old.accepted if old and kept else None})
    if reason is None:
        return None
    day = now.astimezone(UTC).date()
    accepted = Acceptance(reason=reason.strip(), day=day, by=[*against.reasons, *drops], since=against.since)
    return baseline.model_copy(update={"accepted": accepted})


def _covers(old: Baseline | None, new: Baseline, against: Objections) -> bool:
    """Return whether the old baseline's acceptance covers a new one: the same drifts, and adherence not lower."""
    if old is None or old.accepted is None or not all(drift.is_accepted(old.accepted) for drift in against.drifts):
        return False
    before, now = (item.dimensions.get(ADHERENCE) for item in (old, new))
    return before is None or now is None or now >= before - TOLERANCE


def _is_partial(new: Baseline, old: Baseline) -> bool:
    """Return whether a dimension of the old baseline is kept in the new one."""
    before, now = (item.provenance.get("dimensions", {}) for item in (old, new))
    return any(now.get(name) == before.get(name) for name in old.dimensions)


def _remedy(evaluation: AgentEvaluation, against: Objections, *, has_history: bool) -> tuple[str, str]:
    """Return the remedy for a drifted window in a sentence, and its first command."""
    start, provider = evaluation.window_start, provider_of(evaluation)
    last = against.since - _SECOND if against.since else start if has_history else None
    options, agents = window_options(evaluation), f"--agents {shlex.quote(evaluation.agent_id)}"
    # `baseline` takes no --since.
    is_odd = any(option.startswith("--since") for option in options)
    command = "evaluate --update-baseline" if is_odd else "baseline"
    accept = " ".join([f"persona-pipeline {command}", agents, *options, '--accept "reason"'])
    if last is None:
        return f"correct the agent, or accept it as it is: `{accept}`", accept
    kept = [option for option in options if not option.startswith(("--as-of", "--since"))]
    # Windows before are judged by the same judge; of a model they are not recorded yet.
    judge = [f"--judge {provider} --record"] if provider else []
    before = command_before(evaluation.agent_id, last, [*kept, *judge])
    return f"take the baseline from before the drift: `{before}`; or accept the agent as it is: `{accept}`", before


def command_before(agent_id: str, last: datetime, options: Sequence[str] = ()) -> str:
    """Return the command that takes a baseline of the windows up to a time, with further options."""
    said = [f"--agents {shlex.quote(agent_id)}", f"--as-of {rfc3339(last)}", f"--windows {BASELINE_WINDOWS}", *options]
    return f"persona-pipeline baseline {' '.join(said)}"
