"""``migrate``: the store is brought to this version; Dagster's part is run by tests/test_rolling_restart.py."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from persona_pipeline.base.database.engine import HEAD, current_revision
from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app


def test_the_store_gets_the_newest_schema_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("PERSONA_DATABASE_URL", url)
    get_settings.cache_clear()
    for _ in range(2):
        done = CliRunner().invoke(app, ["migrate"])
        assert done.exit_code == 0 and f"store: {HEAD}" in done.output and "DAGSTER_HOME is not set" in done.output
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert current_revision(connection) == HEAD
    engine.dispose()
