"""What a replay of corrections says, in words, tables and charts."""

from collections.abc import Iterator

from markupsafe import Markup

from persona_pipeline.corrections.replay.models import Correction, CorrectionReplay, Replay, RiskThreshold, Touched
from persona_pipeline.corrections.replay.risk import CONFIDENCE
from persona_pipeline.reporting.charts import ShareLine, roc_chart, threshold_chart
from persona_pipeline.reporting.claims.sheets import Page, Sheet
from persona_pipeline.reporting.view import format_usd

_NAMES = {
    Correction.ACTION_GATE: "action gate",
    Correction.ANTI_CONVERGENCE: "anti-convergence",
    Correction.REPETITION_SUPPRESSION: "repetition suppression",
}
_NOTE = (
    "Share of messages that a threshold holds (the gate: below it) or nudges (the others: above it); good and bad are those "
    "known to be so. > is what is set now. Thresholds that are left out touch what the one above them does."
)
_CHART_NOTE = (
    "In the charts the heavy line is all messages, the dashed one the known good, the dotted one the known bad; "
    "upright, dashed: set now, whole: proposed."
)


def replay_page(found: Replay) -> Page:
    """Return the page of a replay."""
    facts = [
        "Stored messages, looked at again as if each were on its way out, by today's personas and claims.",
        *found.notes,
        _CHART_NOTE,
    ]
    if found.calls:
        calls = f"{found.calls} judge call{'' if found.calls == 1 else 's'}"
        facts.append(f"{calls}, {'cost unknown' if found.usd is None else format_usd(found.usd)}.")
    if any(item.risk and item.risk.threshold is not None for item in found.results):
        facts.append(
            f"A proposed threshold touches at most the stated share of good messages, of all there are and of as many as were "
            f"known, with probability {CONFIDENCE:.0%} over which good ones were known; that they come in no order is assumed."
        )
    return Page(
        title="Corrections, replayed",
        facts=facts,
        findings=[said for item in found.results for said in _findings(item)],
        sheets=[sheet for item in found.results if (sheet := _sheet(item))],
        charts=[chart for item in found.results for chart in _charts(item)],
    )


def settings_of(found: Replay) -> dict[str, dict[str, float]]:
    """Return the proposed thresholds by agent and name of the setting."""
    settings: dict[str, dict[str, float]] = {}
    for item in found.results:
        if item.risk and item.risk.threshold is not None:
            settings.setdefault(item.agent_id, {})[item.correction.setting] = item.risk.threshold
    return settings


def _title(item: CorrectionReplay) -> str:
    return f"{item.agent_id}: {_NAMES[item.correction]}"


def _findings(item: CorrectionReplay) -> Iterator[tuple[str, str]]:
    title, now = _title(item), next((t for t in item.touched if t.threshold == item.threshold), None)
    why = "".join(f", {count} {reason.replace('_', ' ')}" for reason, count in item.unmeasured.items())
    seen = f"{item.measured} of {item.messages} messages measured{why}; {item.good} known good, {item.bad} known bad"
    state = "" if item.enabled else " (off)"
    yield (
        title,
        f"{seen}; {item.threshold:g}{state} " + (f"touches {_all(now)}" if now else "touches nothing that is known"),
    )
    if "unrecorded" in item.unmeasured:
        yield (
            title,
            "what is not recorded a live judge can say: --judge anthropic --record; --estimate tells what it takes",
        )
    if item.anyway:
        yield title, f"{item.anyway} are touched by openers, phrases and copies, whatever the threshold"
    if item.area:
        a = item.area
        yield title, f"area under the ROC {a.value:.3f} ({a.low:.3f} to {a.high:.3f}), {a.good} good and {a.bad} bad"
    if item.risk:
        yield title, _risk(item, item.risk)
    if item.correction is Correction.ACTION_GATE:
        yield title, _cost(item)


def _all(touched: Touched) -> str:
    return f"{touched.all:.1%}" + "".join(
        f", {share:.1%} of the {name}"
        for name, share in (("good", touched.good), ("bad", touched.bad))
        if share is not None
    )


def _risk(item: CorrectionReplay, risk: RiskThreshold) -> str:
    if risk.threshold is None:
        return f"no threshold for at most {risk.risk:.3g} of good ones: {risk.why}"
    bad = "" if risk.bad is None else f", {risk.bad:.1%} of the bad"
    return (
        f"set {item.correction.setting}: {risk.threshold:g} for at most {risk.risk:.1%} of good ones; it touches {risk.touched} "
        f"of {risk.good} of them, {risk.all:.1%} of all{bad}"
    )


def _cost(item: CorrectionReplay) -> str:
    cost = item.cost
    if cost is None:
        return "cost and delay of a message are not known: its gate has not run in this time, and no call was made"
    usd = "price unknown" if cost.usd is None else f"${cost.usd:.6f}"
    delay = "" if cost.p50_ms is None or cost.p95_ms is None else f", {cost.p50_ms:.0f} ms (p95 {cost.p95_ms:.0f})"
    return f"a message costs {usd}{delay}: {cost.source}, {cost.checks} checks"


def _sheet(item: CorrectionReplay) -> Sheet | None:
    if not item.touched:
        return None
    rows = [
        [
            f"{'> ' if touched.threshold == item.threshold else ''}{touched.threshold:g}",
            *("–" if share is None else f"{share:.1%}" for share in (touched.all, touched.good, touched.bad)),
        ]
        for before, touched in zip([None, *item.touched], item.touched, strict=False)
        if touched.threshold == item.threshold or not _same(before, touched)
    ]
    return Sheet(_title(item), ["threshold", "all", "good", "bad"], rows, _NOTE)


def _same(one: Touched | None, other: Touched) -> bool:
    return one is not None and (one.all, one.good, one.bad) == (other.all, other.good, other.bad)


def _charts(item: CorrectionReplay) -> Iterator[tuple[str, Markup]]:
    if not item.touched:
        return
    title = _title(item)
    lines = [
        ShareLine([touched.good for touched in item.touched], "d1"),
        ShareLine([touched.bad for touched in item.touched], "d2"),
        ShareLine([touched.all for touched in item.touched]),
    ]
    yield (
        f"{title}, share touched",
        threshold_chart(
            [touched.threshold for touched in item.touched],
            lines,
            title=f"{title}: share touched by threshold",
            now=item.threshold,
            chosen=item.risk.threshold if item.risk else None,
        ),
    )
    points = [(t.good, t.bad) for t in item.touched if t.good is not None and t.bad is not None]
    if points:
        yield f"{title}, bad ones touched over good ones", roc_chart(points, title=f"{title}: ROC")
