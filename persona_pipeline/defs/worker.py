"""The Celery worker, configured by the environment alone: ``celery -A persona_pipeline.defs.worker worker --concurrency 4``."""

from celery import Celery
from dagster_celery.config import DEFAULT_CONFIG, dict_wrapper
from dagster_celery.make_app import make_app
from dagster_celery.tasks import create_task

from persona_pipeline.defs.settings import orchestration


def _application() -> Celery:
    settings = orchestration()
    transport = {**DEFAULT_CONFIG["broker_transport_options"], "visibility_timeout": settings.celery_lost_seconds}
    config = {**DEFAULT_CONFIG, "broker_transport_options": transport, "broker_connection_retry_on_startup": True}
    return make_app(
        {
            "broker": settings.celery_broker,
            "backend": settings.celery_backend,
            "config_source": dict_wrapper(config),
        }
    )


app = _application()
# A step may be executed twice: it writes the same rows, and judgments already paid for are in the store. So it leaves the queue
# when it is done, not when it begins, and goes back when its process was killed.
execute_plan = create_task(app, acks_late=True, reject_on_worker_lost=True)
