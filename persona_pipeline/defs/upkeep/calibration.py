"""How far the judges can be believed, as far as people's labels tell."""

from collections.abc import Sequence

import dagster as dg

from persona_pipeline.calibration.calibrate import Calibration, DimensionCalibration
from persona_pipeline.defs.pictures import metadata
from persona_pipeline.defs.platform.failures import known_failures
from persona_pipeline.defs.platform.labels import OWNERS
from persona_pipeline.defs.platform.place import Place
from persona_pipeline.defs.platform.resources import WorldResource
from persona_pipeline.evaluation.calibrate import calibrate_world
from persona_pipeline.reporting.view import NOBODY, measured

BELIEVED, ENOUGH, CURRENT = "judge_beats_chance", "enough_labels", "labels_are_current"
COLUMNS = ("dimension", "judge", "judged", "labelled", "belief", "rank", "kappa", "bias", "people_would_give")
MOST_SHOWN = 5


def build_calibration(place: Place) -> dg.AssetsDefinition:
    """Return the calibration of a place's judges."""
    key = place.key("calibration")

    @dg.asset(
        key=key,
        group_name=place.path("evaluation"),
        owners=OWNERS,
        kinds={"python"},
        check_specs=[
            dg.AssetCheckSpec(
                BELIEVED, asset=key, description="No judge is no better than chance where people labelled enough."
            ),
            dg.AssetCheckSpec(
                ENOUGH, asset=key, description="Every dimension has the labels it takes to know its judge."
            ),
            dg.AssetCheckSpec(
                CURRENT,
                asset=key,
                description="No label is of a claim, a persona or messages that changed since.",
            ),
        ],
    )
    @place.bound
    def calibration(context: dg.AssetExecutionContext, world: WorldResource) -> dg.MaterializeResult:
        """How each judge agrees with people on each dimension, and what people would give. Judges nothing."""
        with known_failures():
            found = calibrate_world(world.open())
        chance = [_named(item) for item in found.dimensions if item.belief == "chance"]
        few = [f"{_named(item)}: {item.missing} missing" for item in found.dimensions if item.missing]
        return dg.MaterializeResult(
            metadata=calibration_metadata(found),
            check_results=[
                _check(BELIEVED, chance),
                _check(ENOUGH, few if any(item.people for item in found.dimensions) else [NOBODY]),
                _check(CURRENT, found.stale),
            ],
        )

    return calibration


def calibration_metadata(found: Calibration) -> metadata.Metadata:
    """Return a row a judge and dimension, and what to plot."""
    rows = [
        {
            "dimension": item.dimension,
            "judge": f"{item.judge_model} ({item.prompt_version})",
            "judged": item.judged,
            "labelled": item.labelled,
            "belief": item.belief,
            "rank": measured(item.agreement.rank),
            "kappa": measured(item.agreement.kappa),
            "bias": measured(item.agreement.bias, signed=True),
            "people_would_give": measured(item.people_mean),
        }
        for item in found.dimensions
    ]
    rewrite = [
        f"{i.dimension}/{c.proposition_id}: {c.rewrite}" for i in found.dimensions for c in i.claims if c.rewrite
    ]
    ranks: dict[str, float] = {}
    for item in found.dimensions:
        if item.agreement.rank.value is not None:
            ranks[f"rank_correlation/{item.dimension}"] = round(item.agreement.rank.value, 4)
    return {
        "calibration": metadata.table(rows, COLUMNS),
        "labelled": sum(item.labelled for item in found.dimensions),
        "labels_hash": found.labels_hash or "none",
        **ranks,
        **(
            {"rewrite_these_claims": metadata.table([{"claim": line} for line in rewrite], ("claim",))}
            if rewrite
            else {}
        ),
    }


def _named(item: DimensionCalibration) -> str:
    return f"{item.dimension} ({item.judge_model})"


def _check(name: str, wrong: Sequence[str]) -> dg.AssetCheckResult:
    more = f" and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
    return dg.AssetCheckResult(
        check_name=name,
        passed=not wrong,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"what": ("; ".join(wrong[:MOST_SHOWN]) + more) or "nothing"},
    )
