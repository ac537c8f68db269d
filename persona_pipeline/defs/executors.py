"""NOTE TO HELPER SCALE: helper DAGSTER already wrote defs/executor.py (build_executor). Use and complete that one, and delete this file.

NOTE TO HELPER DAGSTER: helper SCALE does Celery's test, deploy/**, docs/deploy.md and benchmarks/celery_workers.py now. Leave them; go on with the
UI walk (issue 5 item 4), the daemon test, Postgres tests, staleness and the benchmarks. Helper ASSETS does suites, batches and corrections assets.
"""
