"""What is said again of a conversation, and what only has the subject in common."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from persona_pipeline.scoring.text.said_again import (
    LIMIT,
    find_said_again,
    is_often,
    pair_text,
    said_again_statistics,
    said_again_text,
)
from persona_pipeline.world.models import Message
from persona_pipeline.world.propositions.models import Catchphrase

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
BETWEEN = [
    "The van leaves the yard at nine, unless the driver oversleeps once more.",
    "My sister painted the whole kitchen yellow and regrets every wall of it.",
    "Somebody parked a tractor across two bays behind the bakery.",
    "I would rather read the manual twice than phone that company.",
    "Rain until Thursday, they say, and then nothing but wind.",
    "Forty chairs, twelve tables, and not a single working microphone.",
]


def places(*texts: str) -> list[tuple[int, int]]:
    return [(item.place, item.earlier) for item in find_said_again([("c", text) for text in texts])]


def after(first: str, second: str) -> list[tuple[int, int]]:
    return places(first, *BETWEEN, second)


LAST = len(BETWEEN) + 1
# A line, the same in other words, and another of its subject that says something new.
LANGUAGES = {
    "en": (
        "The harbour ferry to the lighthouse stops running in November.",
        "In November the ferry from the harbour to the lighthouse stops.",
        "The lighthouse keeper sells honey on Sundays.",
    ),
    "ja": (
        "灯台行きの船は十一月から運休します。",
        "十一月からは灯台行きの船が運休です。",
        "港の食堂では焼き魚がおいしいですよ。",
    ),
    "ar": (
        "تتوقف العبارة إلى المنارة في شهر نوفمبر.",
        "في شهر نوفمبر تتوقف العبارة إلى المنارة.",
        "حارس المنارة يبيع العسل كل يوم أحد.",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_line_in_other_words_is_said_again_and_one_of_its_subject_is_not(language: str) -> None:
    line, again, anew = LANGUAGES[language]
    assert after(line, again) == [(LAST, 0)]
    assert after(line, line) == [(LAST, 0)]
    assert after(line, anew) == []


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([], id="nothing"),
        pytest.param([""], id="an empty message"),
        pytest.param(["", "", "...", "🙂", "🙂"], id="no words"),
        pytest.param([BETWEEN[0]], id="one message"),
        pytest.param(BETWEEN, id="all different"),
        pytest.param(["Okay.", *BETWEEN, "Okay."], id="a short answer"),
        pytest.param(
            [f"order{number} room{number} pier{number} gate{number}" for number in range(9)], id="other numbers"
        ),
        pytest.param([f"{BETWEEN[0]} {BETWEEN[0]}", *BETWEEN[1:]], id="twice in one message"),
    ],
)
def test_nothing_is_said_again(texts: list[str]) -> None:
    assert places(*texts) == []


def test_both_sentences_are_quoted_with_how_alike_they_are() -> None:
    first, second = f"Good to hear. {BETWEEN[0]}", f"{BETWEEN[0]} Do tell the others!"
    (found,) = find_said_again([("c", text) for text in (first, *BETWEEN[1:], second)])
    assert (found.line, found.earlier_line, found.limit) == (BETWEEN[0], BETWEEN[0], LIMIT)
    assert LIMIT < found.strength < 1


def test_the_earliest_of_equal_lines_is_named_and_each_repeat_is_found() -> None:
    assert places(BETWEEN[0], BETWEEN[1], BETWEEN[0], BETWEEN[2], BETWEEN[0]) == [(2, 0), (4, 0)]


def test_only_the_same_conversation_counts() -> None:
    greeting = "Hello, this is the harbour office, how may I help you today?"
    talks = [[greeting, line] for line in BETWEEN]
    apart = [(str(number), text) for number, talk in enumerate(talks) for text in talk]
    assert find_said_again(apart) == []
    assert len(find_said_again([("c", text) for _, text in apart])) == len(talks) - 1


def test_the_order_in_which_conversations_mingle_changes_nothing() -> None:
    generator = random.Random(3)
    words = [f"word{number}" for number in range(300)]
    talks = {
        name: [" ".join(generator.choices(words, k=9)) for _ in range(8)] + [f"{name} says {' '.join(words[:8])}"] * 2
        for name in ("a", "b", "c")
    }

    def found(turns: list[str]) -> list[tuple[str, str, float]]:
        left = {name: iter(texts) for name, texts in talks.items()}
        said = [(name, next(left[name])) for name in turns]
        return sorted((i.line, i.earlier_line, round(i.strength, 9)) for i in find_said_again(said))

    one_by_one = [name for name, texts in talks.items() for _ in texts]
    mingled = generator.sample(one_by_one, len(one_by_one))
    assert found(one_by_one) == found(mingled)
    assert len(found(mingled)) == len(talks)


def test_a_long_conversation_is_looked_back_at_for_two_hundred_messages() -> None:
    generator = random.Random(4)
    words = [f"word{number}" for number in range(4000)]
    others = [" ".join(generator.choices(words, k=9)) for _ in range(199)]
    assert places(BETWEEN[0], *others, BETWEEN[0]) == [(200, 0)]
    assert places(BETWEEN[0], *others, "One more.", BETWEEN[0]) == []


def test_a_catchphrase_in_its_range_is_no_repeat_and_above_it_is() -> None:
    texts = ["By the beard of Neptune and all his whales!", *BETWEEN, "By the beard of Neptune and all his whales!"]
    phrase = "by the beard of neptune and all his whales"
    said = [("c", text) for text in texts]
    assert len(find_said_again(said)) == 1
    assert find_said_again(said, [Catchphrase(phrase, 0.1, 0.5)]) == []
    assert len(find_said_again(said, [Catchphrase(phrase, 0.01, 0.1)])) == 1


def history(count: int, repeats: int) -> list[str]:
    """Messages of words of their own, of which every so manieth says the one before again with a third of it changed."""
    generator = random.Random(5)
    words = [f"{generator.choice('bdfgklmnprst')}{number}" for number in range(5000)]
    found: list[str] = []
    for number in range(count):
        line = generator.sample(words, 9)
        found.append(" ".join([*found[-1].split()[:6], *line[:3]] if repeats and number % repeats == 1 else line))
    return found


@pytest.mark.parametrize(
    ("known", "repeats", "found"),
    [
        pytest.param(0, 0, 1, id="nothing is known"),
        pytest.param(99, 5, 1, id="too little is known"),
        pytest.param(100, 5, 0, id="just enough is known"),
        pytest.param(400, 0, 1, id="it never says anything again"),
        pytest.param(400, 5, 0, id="it often says so much again"),
        pytest.param(400, 300, 1, id="once in three hundred is not often"),
    ],
)
def test_what_is_usual_for_an_agent_is_not_said_again(known: int, repeats: int, found: int) -> None:
    line, changed = "one two three four five six seven eight nine", "one two three four five six ten eleven twelve"
    said = [("before", text) for text in history(known, repeats)]
    said += [("now", line), *(("now", text) for text in BETWEEN), ("now", changed)]
    assert len(find_said_again(said, since=known, known=known)) == found


def messages(texts: list[str], start: int = 0) -> list[Message]:
    moment = NOON + timedelta(days=start)
    return [Message(f"m{start}-{n}", "ann", t, moment + timedelta(minutes=n), "c") for n, t in enumerate(texts)]


def test_statistics_quote_both_lines_and_say_whether_it_is_more_than_before() -> None:
    before, plain = messages(history(60, 0)), history(90, 0)[60:]
    steady = said_again_statistics(before, messages(plain, 1))
    assert (steady["messages"], steady["said_again"], steady["often"], steady["lines"]) == (30, 0, False, [])
    assert said_again_text(steady) == ""
    looped = [plain[0] if number % 4 == 3 else text for number, text in enumerate(plain)]
    found = said_again_statistics(before, messages(looped, 1))
    assert (found["said_again"], found["often"], found["before"]) == (7, True, {"messages": 60, "said_again": 0})
    first = {"id": "m1-3", "line": plain[0], "earlier_id": "m1-0", "earlier_line": plain[0]}
    assert first.items() <= found["lines"][0].items()
    assert said_again_text(found).startswith("; 7 of 30 messages say again what was said: ")
    assert pair_text({**first, "line": "x" * 100}) == f"'{'x' * 79}…' (m1-3) after {plain[0]!r} (m1-0)"


def test_of_what_was_said_before_the_newest_six_hundred_count() -> None:
    found = said_again_statistics(messages([f"word{n}" for n in range(700)]), messages([BETWEEN[0]], 1))
    assert (found["messages"], found["before"]) == (1, {"messages": 600, "said_again": 0})


def test_a_conversation_goes_on_from_before_the_window() -> None:
    found = said_again_statistics(messages(BETWEEN), messages([BETWEEN[2]], 1))
    assert [(item["id"], item["earlier_id"]) for item in found["lines"]] == [("m1-0", "m0-2")]


def test_of_many_messages_without_any_before_the_first_half_tells_what_was() -> None:
    found = said_again_statistics([], messages(history(200, 0)))
    assert (found["messages"], found["before"]["messages"]) == (100, 100)
    assert said_again_statistics([], messages(history(199, 0)))["messages"] == 199


@pytest.mark.parametrize(
    ("found", "of", "before", "of_before", "often"),
    [
        pytest.param(2, 2, 0, 400, False, id="two are never many"),
        pytest.param(20, 20, 0, 0, False, id="nothing is known"),
        pytest.param(3, 10, 0, 400, True, id="three of ten, none before"),
        pytest.param(3, 10, 100, 400, False, id="it always did"),
        pytest.param(3, 100, 4, 400, False, id="three of a hundred"),
        pytest.param(10, 100, 4, 400, True, id="ten of a hundred"),
        # By scipy.stats.betabinom 2.97 and 3.69 in a thousand; often is less than three.
        pytest.param(3, 10, 11, 400, True, id="just often"),
        pytest.param(3, 10, 12, 400, False, id="just not"),
        # 3.44 in a thousand by four messages before.
        pytest.param(8, 10, 0, 4, False, id="just not, where little is known"),
    ],
)
def test_what_is_often(found: int, of: int, before: int, of_before: int, often: bool) -> None:
    assert is_often(found, of, before, of_before) is often
