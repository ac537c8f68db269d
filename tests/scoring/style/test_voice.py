import random
import subprocess
import sys

import pytest

from persona_pipeline.scoring.style.likeness import nearness, voice_similarity
from tests.support.waiting import PATIENCE

WORDS = [
    "paper",
    "sales",
    "client",
    "printer",
    "meeting",
    "report",
    "branch",
    "order",
    "invoice",
    "coffee",
    "warehouse",
    "phone",
]


def say(style: str, generator: random.Random) -> str:
    first, second = generator.sample(WORDS, 2)
    return {
        "loud": f"OH MY GOD the {first}!!! The {second} is the BEST!!!",
        "terse": f"False. The {first} precedes the {second}. Fact.",
        "lazy": f"ummm so like, the {first}... and the {second}, i guess?",
    }[style]


def conversation(styles: dict[str, str], count: int, seed: int) -> dict[str, list[str]]:
    generator = random.Random(seed)
    return {agent: [say(style, generator) for _ in range(count)] for agent, style in styles.items()}


DISTINCT = {"ann": "loud", "bob": "terse", "cyd": "lazy"}
MERGED = {"ann": "lazy", "bob": "lazy", "cyd": "lazy"}


def test_agents_who_sound_alike_are_more_similar() -> None:
    similarity = voice_similarity(conversation({"ann": "loud", "bob": "loud", "cyd": "terse"}, 12, 1))
    assert list(similarity) == [("ann", "bob"), ("ann", "cyd"), ("bob", "cyd")]
    assert similarity["ann", "bob"] > 2 * similarity["ann", "cyd"]


def test_one_voice_is_like_nobody() -> None:
    assert voice_similarity({"ann": ["hello"], "bob": [" "]}) == {}


def test_case_is_part_of_a_voice() -> None:
    quiet = voice_similarity({"a": ["the paper is here"], "b": ["the paper is here"]})
    loud = voice_similarity({"a": ["the paper is here"], "b": ["THE PAPER IS HERE"]})
    assert quiet["a", "b"] == pytest.approx(1)
    assert loud["a", "b"] < 0.1


def test_merged_voices_stand_out_against_the_same_agents_elsewhere() -> None:
    first, second = (conversation(DISTINCT, 30, seed) for seed in (2, 3))
    elsewhere = {name: [*first[name], *second[name]] for name in first}
    merged = nearness(conversation(MERGED, 10, 4), elsewhere)
    usual = nearness(conversation(DISTINCT, 10, 5), elsewhere)
    assert merged.n_references == 6
    assert merged.messages_per_agent == 10
    assert merged.z is not None
    assert merged.z > 4
    assert usual.z is not None
    assert abs(usual.z) < 3
    assert merged.missing is None


def test_scikit_learn_is_imported_when_a_voice_is_first_compared() -> None:
    program = (
        "import sys; from persona_pipeline.scoring.style import likeness; "
        "print(sorted({'sklearn', 'pandas', 'scipy'} & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.strip() == "[]"
