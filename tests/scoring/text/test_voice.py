import random
import subprocess
import sys

import pytest

from persona_pipeline.scoring.text.likeness import voice_similarity
from persona_pipeline.scoring.text.voices import VOICE, GramKind, nearness, text_vectors
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


def test_vectors_are_those_of_scikit_learn() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["Hello there,  World!\n", "hello, HELLO world a", " Beets. Bears.\tBattlestar", "", "ab"]
    for kind, analyzer in ((VOICE, "char"), (GramKind(3, 5, within_words=True), "char_wb")):
        theirs = TfidfVectorizer(
            analyzer=analyzer, ngram_range=(kind.low, kind.high), lowercase=False, sublinear_tf=True
        )
        expected = theirs.fit_transform(texts)
        found = text_vectors(texts, kind)
        assert found.shape == expected.shape
        assert found @ found.T == pytest.approx((expected @ expected.T).toarray(), abs=1e-5)


def test_nothing_here_imports_scikit_learn_pandas_or_scipy() -> None:
    program = (
        "import sys; from persona_pipeline.scoring.text.likeness import *; "
        "from persona_pipeline.scoring.text.voices import nearness; "
        "v = {'a': ['hello there you'] * 40, 'b': ['beets bears battlestar'] * 40}; "
        "voice_similarity(v), nearness(v, v); "
        "print(sorted({'sklearn', 'pandas', 'scipy'} & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.strip() == "[]"
