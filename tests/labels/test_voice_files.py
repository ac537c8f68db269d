"""Labels of a voice from the shell: given with thumbs, listed, exported, imported and checked."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from persona_pipeline.base.settings import get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.guard.labels.files import LABELS, write_label_files
from persona_pipeline.guard.labels.voice import MarkSource, VoiceLabel, voice_label
from persona_pipeline.world.models import Message
from tests.labels.voices import START


@pytest.fixture
def root(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERSONA_ROOT", str(sample_root))
    get_settings.cache_clear()
    return sample_root


def test_labels_of_a_voice_are_listed_and_come_back_from_a_file(root: Path, tmp_path: Path) -> None:
    said = [Message(f"m{on}", "pam", f"It is {on}.", START, "general") for on in (True, False)]
    given = [voice_label(item, item.id == "mTrue", "ada", MarkSource.PERSON) for item in said]
    write_label_files(VoiceLabel, root / LABELS, given)
    listed = CliRunner().invoke(app, ["labels", "list", "--voice"])
    assert "pam" in listed.stdout
    path = tmp_path / "voice.csv"
    assert CliRunner().invoke(app, ["labels", "export", "--voice", "--output", str(path)]).exit_code == 0
    before = (root / LABELS / "voice.jsonl").read_bytes()
    (root / LABELS / "voice.jsonl").unlink()
    assert CliRunner().invoke(app, ["labels", "import", "--voice", str(path)]).exit_code == 0
    assert (root / LABELS / "voice.jsonl").read_bytes() == before
    assert CliRunner().invoke(app, ["validate", str(root / LABELS / "voice.jsonl")]).exit_code == 0


@pytest.mark.parametrize("option", ["--voice", "--terminal"])
def test_an_option_of_earlier_releases_is_refused(root: Path, option: str) -> None:
    assert CliRunner().invoke(app, ["label", "pam", option]).exit_code == 2
