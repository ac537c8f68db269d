"""Where steps run: in the run's own process, or on Celery workers on any number of hosts."""

import dagster as dg

from persona_pipeline.defs.platform.settings import OrchestrationSettings


def build_executor(settings: OrchestrationSettings) -> dg.ExecutorDefinition:
    """Return the executor of the settings.

    A step costs 0.05 s in the run's process and 2 to 3 s in one of its own; judge calls wait inside the step. So more
    processes help only where one host is not enough.

    Raises:
        ImportError: Celery is asked for and its extra is not installed.
    """
    if settings.executor != "celery":
        return dg.in_process_executor
    try:
        from dagster_celery import celery_executor
    except ImportError as error:
        raise ImportError("PERSONA_EXECUTOR=celery needs the extra: pip install 'persona-pipeline[celery]'") from error
    return celery_executor.configured({"broker": settings.celery_broker, "backend": settings.celery_backend})
