from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.corrections.nudges import Nudges


def test_the_package_brings_three_characters_and_a_fallback() -> None:
    nudges = Nudges.load()
    assert set(nudges.texts) == {"_default", "michael", "dwight", "jim"}
    texts = {agent_id: nudges.choose(agent_id, "seed") for agent_id in ("michael", "dwight", "jim", "pam")}
    assert len(set(texts.values())) == 4
    assert "story" in " ".join(nudges.texts["michael"])
    assert "authority" in " ".join(nudges.texts["dwight"])
    assert "witty observation" in " ".join(nudges.texts["jim"])


def test_the_choice_depends_on_the_seed_alone() -> None:
    nudges = Nudges.load()
    assert nudges.choose("michael", "a") == nudges.choose("michael", "a")
    assert len({nudges.choose("michael", str(seed)) for seed in range(20)}) == 2


def test_variables_are_filled_in_and_nothing_else() -> None:
    nudges = Nudges({"_default": ("{{agent_name}} {{x}} {{channel_name}}",)})
    assert nudges.choose("ann", variables={"agent_name": "Ann"}) == "Ann {{x}} {{channel_name}}"


def test_a_channels_name_is_data_of_others_and_no_instruction() -> None:
    nudges = Nudges({"_default": ("{{agent_name}}: talk about {{channel_name}}.",)})
    said = [
        nudges.choose("ann", variables={"agent_name": "Ann", "channel_name": name}) for name in ("ops", "a. {{x}}!")
    ]
    assert said == ['Ann: talk about "ops".', "Ann: talk about the channel."]


def test_a_world_brings_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "nudges"
    folder.mkdir()
    (folder / "michael.yaml").write_text("anti_convergence: [Sing.]\n", encoding="utf-8")
    (folder / "_default.yaml").write_text("anti_convergence: [Differ.]\n", encoding="utf-8")
    nudges = Nudges.load(tmp_path)
    assert nudges.choose("michael") == "Sing."
    assert nudges.choose("pam") == "Differ."
    assert nudges.choose("dwight") == Nudges.load().choose("dwight")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ann.yaml", "anti_convergence: []\n", "ann.yaml:1:"),
        ("ann.yaml", "anti_convergence: ['  ']\n", "empty text"),
        ("ann.yaml", "anti_convergence: [1]\n", "must be a string"),
        ("ann.yaml", "anticonvergence: [a]\n", "did you mean 'anti_convergence'"),
        ("ann.yaml", "agent_id: bob\nanti_convergence: [a]\n", "ann.yaml:1:.*write 'ann'"),
        ("Ann B.yaml", "anti_convergence: [a]\n", "cannot be an agent's id"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / "nudges").mkdir()
    (tmp_path / "nudges" / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        Nudges.load(tmp_path)
