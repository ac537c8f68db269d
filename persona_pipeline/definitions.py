"""The Dagster code location: definitions of the environment's world."""

import gc
import json
import sys

# Imported objects live as long as the process: collecting garbage meanwhile took a fifth of the start.
gc.disable()
try:
    import dagster as dg

    from persona_pipeline.defs.component import build_world
    from persona_pipeline.defs.platform.place import Place

    _PLACE = Place()
    # Jobs name their own executors; this one is for assets that are materialized by hand.
    defs = dg.Definitions.merge(build_world(_PLACE), dg.Definitions(executor=_PLACE.executor))
finally:
    gc.freeze()
    gc.enable()

if __name__ == "__main__":
    # `doctor` reads the number of runs in an instance and of jobs.
    with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
        print(json.dumps({"runs": instance.get_runs_count(), "jobs": len(list(defs.resolve_all_job_defs()))}))
