"""One measured step of `benchmarks/scale.py`, in a process of its own, with whatever release its interpreter has installed.

Prints one line of JSON: ``seconds`` and ``cpu`` of the step without imports, ``megabytes`` at most of the whole process, and what
it counted.
The world is PERSONA_ROOT, its store PERSONA_DATABASE_URL, Dagster's folder DAGSTER_HOME.
"""

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

# The interpreter's own release first, and only then the folder of this one.
import persona_pipeline  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

Counted = dict[str, object]
ROOT = Path(os.environ["PERSONA_ROOT"])


def sync() -> Counted:
    """Bring the message files into the store."""
    from persona_pipeline.world import World

    world = World.open(ROOT, os.environ["PERSONA_DATABASE_URL"])
    return _timed(lambda: {"problems": len(world.sync_messages().problems)})


def record() -> Counted:
    """Write a recorded judgment for every question."""
    from benchmarks.scale import record_everything

    return _timed(lambda: {"judgments": record_everything(ROOT, os.environ["PERSONA_DATABASE_URL"])})


def runs(count: str) -> Counted:
    """Save so many finished runs of everybody."""
    from benchmarks.scale import write_runs

    return _timed(lambda: {"runs": write_runs(ROOT, os.environ["PERSONA_DATABASE_URL"], int(count))})


def day() -> Counted:
    """Evaluate the newest day of one agent."""
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.world import World
    from tests.support.evaluating import planned_requests

    world = World.open(ROOT, os.environ["PERSONA_DATABASE_URL"])
    request = EvaluationRequest(agents=["agent-0003"], window="1d")
    return _timed(lambda: {"questions": len(planned_requests(world, request))})


def look() -> Counted:
    """Let both sensors look, report what they saw as the daemon does, and look again; last after an edited persona."""
    import dagster as dg

    from persona_pipeline.definitions import defs
    from persona_pipeline.defs.platform.resources import WorldResource

    def tick(name: str) -> dg.SensorResult | dg.SkipReason:
        with dg.build_sensor_context(instance=instance, resources={"world": WorldResource(root=str(ROOT))}) as context:
            result = defs.resolve_sensor_def(name)._raw_fn(context)
        assert isinstance(result, dg.SensorResult | dg.SkipReason)
        return result

    def both() -> tuple[float, float, int, int]:
        """Return the seconds and CPU seconds of looking, how many events were seen, and assets of agents asked for."""
        started, cpu = time.perf_counter(), time.process_time()
        seen = tick("source_changes")
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        events = list(seen.asset_events) if isinstance(seen, dg.SensorResult) else []
        for event in events:
            instance.report_runless_asset_event(event)
        if isinstance(seen, dg.SensorResult):
            for request in seen.dynamic_partitions_requests or ():
                if isinstance(request, dg.AddDynamicPartitionsRequest):
                    instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        started, began = time.perf_counter(), time.process_time()
        asked = dg.evaluate_automation_conditions(defs, instance).total_requested
        seconds, cpu = seconds + time.perf_counter() - started, cpu + time.process_time() - began
        return seconds, cpu, len(events), asked

    with dg.DagsterInstance.get() as instance:
        # Of thousands a look records some, and the next goes on.
        pieces = [both()]
        while pieces[-1][2]:
            pieces.append(both())
        idle = [both() for _ in range(7)]
        persona = ROOT / "personas" / "agent-0003.yaml"
        persona.write_text(persona.read_text(encoding="utf-8") + " ", encoding="utf-8")
        edited, edited_cpu, changed, _ = both()
        assert changed == 1, changed
    found, cpu = [seconds for seconds, *_ in idle], [seconds for _, seconds, *_ in idle]
    return {
        "first": pieces[0][0],
        "worst of the first": max(seconds for seconds, *_ in pieces),
        "looks until all is recorded": len(pieces) - 1,
        "events": sum(events for _, _, events, *_ in pieces),
        "idle": statistics.median(found),
        "idle cpu": statistics.median(cpu),
        "worst idle": max(found),
        "edited": edited,
        "edited cpu": edited_cpu,
    }


def _timed(step: Callable[[], Counted]) -> Counted:
    started, cpu = time.perf_counter(), time.process_time()
    counted = step()
    return {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu, **counted}


STEPS: dict[str, Callable[..., Counted]] = {
    "sync": sync,
    "record": record,
    "runs": runs,
    "day": day,
    "look": look,
}

if __name__ == "__main__":
    result = STEPS[sys.argv[1]](*sys.argv[2:])
    result["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))
