"""Scenes of an interview: those that ship, and a file of one's own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.judging.claims import reads_as_injection
from persona_pipeline.lab.scenes import KINDS, interview_scenes, shipped_scenes, spoken_languages
from persona_pipeline.scoring.text.agreement import language_of
from persona_pipeline.testing import WorldBuilder
from persona_pipeline.world.world import World

LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "nl", "pt", "zh")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    builder = WorldBuilder(tmp_path_factory.mktemp("world")).persona(
        "ann", "Ann is dry, brief and never says sorry to anybody."
    )
    builder.claim("adherence", "dry", "{{agent_name}} never uses more words than she has to")
    return builder.persona("uta", "Uta ist trocken und sagt nie, dass ihr etwas leid tut.").open()


@pytest.mark.parametrize("language", LANGUAGES)
def test_scenes_ship_in_a_language(language: str) -> None:
    scenes = shipped_scenes([language])
    assert language_of([line for scene in scenes for line in scene.turns]) == language
    assert {scene.kind for scene in scenes} == set(KINDS) - {"language", "claim"}
    assert all(len(scene.turns) >= (12 if scene.kind == "long" else 2) for scene in scenes)
    assert not [line for scene in scenes for line in scene.turns if reads_as_injection(line)]
    assert len({scene.id for scene in scenes}) == len({scene.hash for scene in scenes}) == 18


def test_other_languages_are_small_talk_of_their_own() -> None:
    scenes = shipped_scenes(["de-CH", "xx", "en"])
    assert [scene.id for scene in scenes if scene.language == "en"] == [
        "language-en-1",
        "language-en-2",
        "language-en-3",
    ]
    assert {scene.language for scene in scenes if scene.kind != "language"} == {"de"}
    assert {scene.language for scene in shipped_scenes(["xx"])} == {"en"}


def test_languages_are_those_of_the_persona_without_messages(world: World) -> None:
    assert (spoken_languages(world, "ann"), spoken_languages(world, "uta")) == (["en"], ["de"])
    assert interview_scenes(world, "uta")[0].language == "de"
    assert {scene.kind for scene in interview_scenes(world, "ann", kinds=["meta"])} == {"meta"}


SCENE = {"id": "a", "kind": "meta", "turns": ["Who are you?"]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"scenes": []}, "scenes"),
        ({"scenes": [{**SCENE, "kind": "menace"}]}, "kind"),
        ({"scenes": [{**SCENE, "turns": [" "]}]}, "turns"),
        ({"scenes": [{**SCENE, "id": "A b"}]}, "id"),
        ({"scenes": [{**SCENE, "trn": []}]}, "trn"),
        ({"scenes": [SCENE, SCENE]}, "stands twice"),
        ({"agent_id": "bob", "scenes": [SCENE]}, "not the file's name"),
    ],
)
def test_a_file_that_is_not_valid_is_said_with_its_line(tmp_path: Path, data: Any, said: str) -> None:
    world = WorldBuilder(tmp_path).persona("ann", "Ann.").open()
    path = tmp_path / "interviews" / "ann.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(data), "utf-8")
    with pytest.raises(ConfigError) as error:
        interview_scenes(world, "ann")
    assert said in str(error.value) and f"{path}:" in str(error.value)


def test_a_file_of_ones_own_is_what_is_asked(tmp_path: Path) -> None:
    world = WorldBuilder(tmp_path).persona("ann", "Ann.").open()
    (tmp_path / "interviews").mkdir()
    (tmp_path / "interviews" / "ann.yaml").write_text(yaml.safe_dump({"scenes": [SCENE]}), "utf-8")
    assert [scene.id for scene in interview_scenes(world, "ann")] == ["a"]
    with pytest.raises(ConfigError, match="no scene of these kinds: long"):
        interview_scenes(world, "ann", kinds=["long"])
    with pytest.raises(ConfigError, match="did you mean 'pressure'"):
        interview_scenes(world, "ann", kinds=["presure"])
