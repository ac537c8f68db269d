"""Small values between the steps of one run, kept in Dagster's own event log: every host can read them, no shared disk."""

import json
from typing import Any

import dagster as dg

from persona_pipeline.defs.platform.dagster_internals import handled_outputs

VALUE, MAPPING_KEY = "value", "mapping_key"


class EventLogValues(dg.IOManager):
    """Keeps JSON values as metadata of the event that reports an output. Meant for kilobytes; they go when the run is deleted."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store a value.

        Raises:
            TypeError: it is no JSON.
        """
        if obj is not None:
            context.add_output_metadata({VALUE: json.dumps(obj), MAPPING_KEY: context.mapping_key or ""})

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the value an upstream step of the same run stored.

        Raises:
            LookupError: there is none.
        """
        upstream = context.upstream_output
        assert upstream is not None
        wanted = (upstream.step_key, upstream.name, upstream.mapping_key or "")
        # From the newest on: a retried step may have stored twice.
        for step, output, metadata in handled_outputs(context.instance, upstream.run_id):
            stored: dict[str, Any] = {key: value.value for key, value in metadata.items()}
            if (step, output, stored.get(MAPPING_KEY)) == wanted and VALUE in stored:
                return json.loads(stored[VALUE])
        raise LookupError(f"step {upstream.step_key} stored no value in run {upstream.run_id}")


@dg.io_manager
def event_log_values() -> EventLogValues:
    """Values between the steps of one run."""
    return EventLogValues()
