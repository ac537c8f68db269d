"""Faults that break a character on purpose: functions of an agent's messages, the same for the same seed, and cases with them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path

import regex
from pydantic import BaseModel, Field

from persona_pipeline.base.documents.yaml import load_document, validate_document
from persona_pipeline.lab.claims.matrix import BORROWED, FaultColumn
from persona_pipeline.scoring.plan import AgentCase
from persona_pipeline.scoring.style.likeness import by_speaker
from persona_pipeline.scoring.text.agreement import language_of
from persona_pipeline.world.models import Message

_DATA = Path(__file__).parent / "data"

# Scripts that put no spaces between words, as far as there are words of theirs here.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー]"
_WITHOUT_SPACES = regex.compile(_UNSPACED)


class NotApplicableError(Exception):
    """The fault cannot be planted in these messages; the message says why."""


class LanguageWords(BaseModel, extra="forbid", frozen=True):
    """Words and stock lines of a language.

    Attributes:
        boilerplate: neutral lines that any polite assistant could have sent.
        denials: sentences that take ``{line}`` back.
        assent: replaces a message without content; pause: replaces a dash.
        fillers: words of emphasis and interjections; in scripts without spaces only at the beginning of a clause.
        swapped: lists of weekdays, months and numbers, lower case; a word is swapped for another of its list.
    """

    language: str
    boilerplate: list[str] = Field(min_length=10)
    denials: list[str] = Field(min_length=3)
    assent: str
    pause: str
    fillers: list[str]
    swapped: list[list[str]]


@dataclass(frozen=True)
class Material:
    """Material for breaking an agent's messages.

    Attributes:
        words: of the language of its messages; None: the language has no data.
        others: messages of each other agent, oldest first.
        names: of people around it.
    """

    words: LanguageWords | None = None
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Sequence[str] = ()

    def known_words(self) -> LanguageWords:
        """Return the words of the messages' language."""
        if self.words is None:
            known = ", ".join(words.language for words in all_words().values())
            raise NotApplicableError(
                f"there are no stock lines in the language of these messages; there are for {known}"
            )
        return self.words


@cache
def all_words() -> Mapping[str, LanguageWords]:
    """Return the words of each language that there are some of, by its code."""
    return {path.stem: validate_document(LanguageWords, load_document(path)) for path in sorted(_DATA.glob("*.yaml"))}


def words_of(texts: Sequence[str]) -> LanguageWords | None:
    """Return the words of the language of texts; None: it is not known, or has no data."""
    return all_words().get(language_of(texts)) if any(map(_WORD.search, texts)) else None


def boilerplate(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Every message becomes a stock courtesy: the drift towards the model's default voice."""
    return _drawn(material.known_words().boilerplate, len(texts), generator)


def _drawn(lines: Sequence[str], count: int, generator: random.Random) -> list[str]:
    """Return this number of lines in random order; none is repeated before all are used."""
    found: list[str] = []
    while len(found) < count:
        found += generator.sample(lines, len(lines))
    return found[:count]


_FEWEST_LINES = 5


def borrowed(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Every message becomes a line that one other agent really said: personas mixed up, or a voice taken over."""
    spoken = {agent: [line for line in lines if line.strip()] for agent, lines in material.others.items()}
    agent = max(sorted(spoken), key=lambda name: len(spoken[name]), default=None)
    if agent is None or len(spoken[agent]) < min(_FEWEST_LINES, len(texts)):
        raise NotApplicableError("no other agent has said enough in its channels")
    return _drawn(spoken[agent], len(texts), generator)


_FIRST_SENTENCE = regex.compile(r"^.*?(?:[.!?؟](?=\s|$)|[。！？])|^.+", regex.DOTALL)
_LONGEST = 120


def contradiction(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """In every second message the agent goes on as before and then takes back its message before that one."""
    denials = material.known_words().denials
    if len(texts) < 2:
        raise NotApplicableError("it said one thing only, and there is nothing to take back")
    first = generator.randrange(len(denials))
    found = list(texts)
    for turn, place in enumerate(range(1, len(texts), 2)):
        denial = denials[(first + turn) % len(denials)].replace("{line}", _line(texts[place - 1]))
        found[place] = texts[place] + " " * (_WITHOUT_SPACES.search(denials[0]) is None) + denial
    return found


def _line(text: str) -> str:
    sentence = _FIRST_SENTENCE.search(" ".join(text.split()))
    return (sentence[0] if sentence else "")[:_LONGEST].strip(" .!?¡¿؟。！？")


_ASIDE = regex.compile(r"\s*[(（][^()（）]*[)）]")
_PICTURE = regex.compile(r"[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f\u200d\u20e3♪♡☆]+")
_STRETCHED = regex.compile(r"(\p{L})\1{2,}|[〜～]+")
_SHOUTED = regex.compile(r"\b\p{Lu}{4,}\b")
_ENDING = regex.compile(r"\s*(?:[!?！？؟.。…]*[!！…][!?！？؟.。…]*|\.{2,}|[?？؟]{2,})")
# Spanish marks of a question stay where its end did.
_OPENING = regex.compile(r"¡|¿(?![^.]*\?)")
_QUOTES = regex.compile(r"[\"“”„«»「」『』*_~`]")
_DASH = regex.compile(r"\s+[-–—]+\s+|[–—―]+")
_SENTENCE = regex.compile(r"(^|[.?!。？؟]\s+)(¿?\p{Ll})")
_OPEN_END = regex.compile(r"[\p{L}\p{M}\p{N}]$")
_LETTER = regex.compile(r"\p{L}")
# Punctuation left around a full stop by a removed word.
_LEFT_OVER = regex.compile(r"(?<=[?？؟])[\s,،，、]*[.。]|[\s,،，、]*([.。])(?:[\s,،，、]*[.。])*")
_LOOSE = " ,.،。，、"


def flattened(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Emphasis, asides, emoji, shouting and fillers go, and every sentence ends in a full stop: what is said stays, how goes."""
    words = material.words
    fillers = regex.compile("(?!)")
    if words is not None:
        alternatives = "|".join(map(regex.escape, sorted(words.fillers, key=len, reverse=True)))
        begins, ends = (r"(?<=^|[\p{P}\s])", "") if _WITHOUT_SPACES.search(alternatives) else (r"\b", r"(?!\w)")
        fillers = regex.compile(rf"{begins}(?:{alternatives}){ends}[,!،，、]*\s*", regex.IGNORECASE)
    assent, pause = (words.assent, words.pause) if words else ("OK.", ", ")
    return [_flat(text, fillers, pause) or assent for text in texts]


def _flat(text: str, fillers: "regex.Pattern[str]", pause: str) -> str:
    unspaced = len(_WITHOUT_SPACES.findall(text)) * 2 > len(_LETTER.findall(text))
    stop = "。" if unspaced else "."
    text = _PICTURE.sub("", _ASIDE.sub("", text))
    text = _SHOUTED.sub(lambda match: match[0].capitalize(), _QUOTES.sub("", text))
    text = _STRETCHED.sub(lambda match: match[1] or "", text)
    text = _OPENING.sub("", _ENDING.sub(stop, _DASH.sub(pause, text)))
    text = _LEFT_OVER.sub(lambda match: match[1] or "", " ".join(fillers.sub("", text).split())).lstrip(_LOOSE)
    text = _SENTENCE.sub(lambda match: match[1] + match[2].upper(), text)
    return text + stop if _OPEN_END.search(text) else text


# Messages for each repeated line.
_STRETCH = 8


def repetition(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """A few of its own messages replace all others: in character, but in a loop."""
    distinct = sorted({text for text in texts if text.strip()})
    if len(distinct) < 3:
        raise NotApplicableError("it said fewer than three different things")
    lines = generator.sample(distinct, max(1, round(len(distinct) / _STRETCH)))
    return [lines[place % len(lines)] for place in range(len(texts))]


# In the middle of a sentence; in German every noun.
_NAME = regex.compile(r"(?<=[\p{Ll},;] )\p{Lu}\p{Ll}{2,}\b")
_SPACED = rf"[[\p{{L}}\p{{M}}]--{_UNSPACED}]"
_WORD = regex.compile(rf"(?<!{_SPACED}){_SPACED}{{2,}}|{_UNSPACED}{{2,}}", regex.V1)


def wrong_facts(texts: Sequence[str], material: Material, generator: random.Random) -> list[str]:
    """Numbers, weekdays, months and names are swapped for others, each the same way throughout; the manner stays."""
    swaps: dict[str, str] = {}
    for group in material.words.swapped if material.words else ():
        swaps |= _swapped(group, generator)
    spoken = {match[0] for text in texts for match in _NAME.finditer(text)}
    # Scripts without capitals have no small letters either.
    around = {word for name in material.names for word in _WORD.findall(name) if not word[0].islower()}
    swaps |= _swapped(sorted(name for name in spoken | around if name.lower() not in swaps), generator)
    # Words of a script without spaces are found anywhere, the longest first.
    within = "|".join(sorted(filter(_WITHOUT_SPACES.match, swaps), key=len, reverse=True))
    words = regex.compile(rf"{within or '(?!)'}|(?<!{_SPACED}){_SPACED}{{2,}}|\p{{Nd}}+", regex.V1)

    def other(match: "regex.Match[str]") -> str:
        found = match[0]
        if found[0].isdecimal():
            return _other_number(found, generator)
        if (swap := swaps.get(found) or swaps.get(found.lower())) is None:
            return found
        return swap.capitalize() if found[0].isupper() and swap[0].islower() else swap

    return [words.sub(other, text) for text in texts]


def _swapped(group: Sequence[str], generator: random.Random) -> dict[str, str]:
    """Map each member to another one."""
    if len(group) < 2:
        return {}
    mixed = generator.sample(group, len(group))
    return dict(zip(mixed, [*mixed[1:], mixed[0]], strict=True))


def _other_number(digits: str, generator: random.Random) -> str:
    """Return another number of as many digits of the same script, without a zero in front."""
    if len(digits) > 15:
        return digits[::-1] if digits != digits[::-1] else "1" + digits[1:-1] + "2"
    lowest = 10 ** (len(digits) - 1) if len(digits) > 1 else 0
    span = 9 * lowest or 10
    other = lowest + (int(digits) - lowest + generator.randrange(1, span)) % span
    zero = ord(digits[0]) - int(digits[0])
    return "".join(chr(zero + int(digit)) for digit in str(other))


# Breaks an agent's messages, oldest first, and returns as many. The first line of its docstring describes the fault. Raises
# ``NotApplicableError`` where the fault cannot be planted.
Operator = Callable[[Sequence[str], Material, random.Random], list[str]]

FAULTS: Mapping[str, Operator] = {
    "boilerplate": boilerplate,
    BORROWED: borrowed,
    "repetition": repetition,
    "flattened": flattened,
    "contradiction": contradiction,
    "wrong_facts": wrong_facts,
}


# Fewer broken messages leave the agent itself: nothing that a claim should see.
FEWEST_CHANGED = 1 / 3
_MOST_LINES = 400


def material_of(case: AgentCase) -> Material:
    """Return the material for faults in an agent's messages. The others' lines come from before the window if possible."""
    texts = [message.text for message in case.messages]
    now = by_speaker(chain.from_iterable(case.channels.values()))
    before = case.history
    lines = {
        agent: said if len(said := before.get(agent, [])) >= len(texts) else [*said, *now.get(agent, [])]
        for agent in {*now, *before}
    }
    others = {agent: said[-_MOST_LINES:] for agent, said in sorted(lines.items()) if agent != case.agent_id}
    return Material(words_of(texts), others, [case.name_of(agent) for agent in sorted({*others, case.agent_id})])


def break_case(case: AgentCase, name: str, seed: int = 0) -> FaultColumn:
    """Return a case with a fault in the agent's own messages of the window: ids, times, places and all others' stay as they are."""
    texts = [message.text for message in case.messages]
    generator = random.Random(case.seed("fault", name, str(seed)))
    fault = FaultColumn(name=name, what=(FAULTS[name].__doc__ or "").partition("\n")[0])
    try:
        broken = FAULTS[name](texts, material_of(case), generator)
    except NotApplicableError as error:
        return fault.model_copy(update={"why_not": str(error)})
    changed = sum(old != new for old, new in zip(texts, broken, strict=True)) / len(texts)
    if changed < FEWEST_CHANGED:
        why = f"it changes only {changed:.0%} of the messages"
        return fault.model_copy(update={"changed": changed, "why_not": why})
    planted = with_texts(case, dict(zip((m.id for m in case.messages), broken, strict=True)))
    return fault.model_copy(update={"changed": changed, "case": planted})


def with_texts(case: AgentCase, texts: Mapping[str, str]) -> AgentCase:
    """Return the case with other texts of some messages, by id."""

    def told(messages: Sequence[Message]) -> list[Message]:
        return [replace(m, text=texts[m.id]) if m.id in texts else m for m in messages]

    return replace(
        case,
        messages=told(case.messages),
        channels={channel: told(messages) for channel, messages in case.channels.items()},
    )
