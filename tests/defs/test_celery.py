"""Steps on Celery workers: hosts that share nothing but a database. tests/test_rolling_restart.py runs them."""

from persona_pipeline.definitions import defs


def test_no_step_reads_a_file_another_left() -> None:
    """What steps give each other goes through the store: by default it would be a pickle on the writer's disk."""
    read = {
        (node.name, output.output_def.io_manager_key)
        for job in defs.resolve_all_job_defs()
        for node in job.nodes
        for item, outputs in job.dependency_structure.input_to_upstream_outputs_for_node(node.name).items()
        if not item.input_def.dagster_type.is_nothing
        for output in outputs
    }
    assert read == set()
