"""The Celery worker, configured by the environment: ``celery -A persona_pipeline.defs.platform.worker worker --concurrency 4``."""

from persona_pipeline.defs.platform.dagster_internals import celery_application
from persona_pipeline.defs.platform.settings import orchestration

_SETTINGS = orchestration()
app, execute_plan = celery_application(_SETTINGS.celery_broker, _SETTINGS.celery_backend, _SETTINGS.celery_lost_seconds)
