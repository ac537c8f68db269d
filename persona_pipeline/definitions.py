"""What Dagster loads: the world of the environment, which has this code location for itself."""

import gc
import json
import sys

# What is imported stays: looking through it for garbage as it comes was a fifth of the start of every process.
gc.disable()
try:
    import dagster as dg

    from persona_pipeline.defs.component import build_world
    from persona_pipeline.defs.platform.place import Place

    _PLACE = Place()
    # Of the jobs each names its own; this one is for what is materialized by hand.
    defs = dg.Definitions.merge(build_world(_PLACE), dg.Definitions(executor=_PLACE.executor))
finally:
    gc.freeze()
    gc.enable()

if __name__ == "__main__":
    # Doctor asks how many runs the instance in a folder has, and how many jobs are defined.
    with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
        print(json.dumps({"runs": instance.get_runs_count(), "jobs": len(list(defs.resolve_all_job_defs()))}))
