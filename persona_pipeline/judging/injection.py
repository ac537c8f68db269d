"""Messages that read as if they were written for the judge. They are reported, and never change a score."""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

import re2

from persona_pipeline.judging.injection_forms import folded, forms, is_written_apart, squeezed
from persona_pipeline.judging.injection_words import CONCEPTS
from persona_pipeline.world.models import Message
from persona_pipeline.world.trajectory import Entry, Trajectory

# Words of these meanings, in any order, within so many bytes of each other.
_TOGETHER: tuple[tuple[frozenset[str], int], ...] = (
    (frozenset({"drop", "rules", "before"}), 70),
    (frozenset({"give", "score", "top"}), 60),
    (frozenset({"address", "judge", "score"}), 80),
    (frozenset({"address", "judge", "top"}), 80),
    (frozenset({"address", "judge", "claim"}), 80),
    (frozenset({"judge", "give", "top"}), 70),
    (frozenset({"judge", "give", "claim"}), 70),
    (frozenset({"claim", "true", "before"}), 60),
    (frozenset({"claim", "give", "top"}), 60),
    (frozenset({"claim", "give", "true"}), 60),
    (frozenset({"drop", "judge", "give"}), 70),
    (frozenset({"drop", "score", "top"}), 80),
    (frozenset({"drop", "claim", "true"}), 80),
)
_MARKERS = (
    r"(?:system|sys|assistant|user|im_start|im_end|tool_result|tool_use|function_results?|transcript|instructions?|verdict"
    r"|inst|score|evidence)"
)
# Answers, roles and delimiters of the machinery. Gaps are short and bounded: RE2 is linear, and its automata stay small.
_FRAMES = (
    r"[\"']?(?:verdicts?|proposition_id|tool_result|tool_use_id)[\"']?\s*[:=]\s*[\[{\"']",
    r"[\"']score[\"']\s*:\s*\d",
    rf"<{{1,2}}\|?\s*/?\s*{_MARKERS}\b[^<>]{{0,40}}\|?>",
    r"(?:^|\n)\s*(?:#{1,4}\s*)?(?:assistant|human|developer)\s*(?:prompt|message)?\s*:\s*\S",
    r"(?:^|\n)\s*(?:#{1,4}\s*)?(?:system|instruction|response)\s*(?:prompt|message|update)?\s*(?:v\d)?\s*:\s*\n?\s*\S.{0,60}"
    r"(?:scor|rat(?:e|ing)|grad|award|lenien|nine|\b9\b|verdict|you are|ignore)",
    r"\[/?(?:inst|system(?: message)?|end(?: of)? (?:data|transcript|messages|conversation))\]",
    r"(?:-{3,}|={3,}|#{3,}|\bbegin|\bend)\s*(?:of )?(?:end of )?"
    r"(?:data|transcript|messages|conversation|evidence|evaluator|tool output|tool result)\b.{0,10}(?:-{3,}|={3,}|\n|\.|notes)",
    r"\bend[_ ]of[_ ]transcript\b",
    r"\brole\s*:\s*system\b",
    r"<!--.{0,40}(?:judge|grader|evaluat|score|award)",
    r"\b(?:new|updated|hidden) (?:system (?:prompt|instructions?)|rubric)\b",
    r"\brate (?:me|us|it|this) highly\b",
    r"#+ *evaluation result|grading instructions",
    r"(?:override|bypass|leniency|evaluation) (?:code|mode|enabled)",
    # So near each other that no third word is needed.
    r"\b(?:ignore|disregard|forget|override|skip|drop|no attention to|do not follow|don't follow)\b.{0,20}"
    r"\b(?:rubric|grading|judging|evaluation|scoring|criteria|the prompt|your prompt|guidelines)\b",
    r"\b(?:grade|rate|score|mark)\s+(?:this|it|that|me|us|everything|all)\b.{0,12}\b(?:9|nine|perfect|full|highest|top)\b",
    r"(?:^|[.!,:;]\s*)scores?\s?[:=]?\s?(?:9|nine)\b",
)
# Letters in one run: of any text, and of one that is written apart or without spaces.
_ALWAYS = (
    r"(?:ignore|disregard|forget|override)(?:all|the|any|every|your|these|those)?(?:of|the|your)?(?:previous|prior|above|earlier)"
    r"(?:instruction|rule|rubric|prompt|criteria|guideline)",
)
_RUNS = (
    r"(?:ignore|disregard|forget|override)(?:all|the|any|every|your|these|those)?(?:judging|grading|scoring)?"
    r"(?:instruction|rule|rubric|prompt|criteria|guideline)",
    r"(?:score|rate|grade|rating)(?:of|it|this|is|as|a|:)?(?:9|nine|perfect|full)",
    r"(?:give|award|assign)(?:it|this|me|a|the|full)?(?:score|scoreof|mark|point|grade)s?(?:9|nine|full|$)",
    r"judge(?:score|give|rate)",
    r"(?:score|rate)\d?judge",
)
# So that what is remembered stays within tens of megabytes.
_LONGEST_REMEMBERED = 5_000
# "At nine" is an hour and no score, and what nobody should forget is not to be dropped.
_HARMLESS = re2.compile(
    r"\b(?:at|by|until|till|past|around|before|after|since|um|ab|alle|las|às|as|o) (?:9|nine|neun|nove|nueve)\b"
    r"|\b(?:do not|don't|dont|never) (?:forget|ignore|skip)\b"
)
_OVERRIDES = "\u202d\u202e"
# Joiners in emoji and in Arabic or Indic words are ordinary; hidden runs between Latin letters are not.
_HIDDEN_IN_WORD = re2.compile(r"[A-Za-z][\x{ad}\x{180e}\x{200b}-\x{200d}\x{2060}-\x{2064}\x{feff}]+[A-Za-z]")
# A flag is a black flag, letters as tags, and a cancel tag.
_TAGS = re2.compile(r"[\x{e0020}-\x{e007e}]+\x{e007f}?")


def reads_as_injection(text: str) -> bool:
    """Whether a message shows a known pattern of an attack on a judge; a hint, which errs both ways.

    All of the text is read, in time linear in its length.
    """
    return _read(text) if len(text) <= _LONGEST_REMEMBERED else _read.__wrapped__(text)


@lru_cache(maxsize=4096)
def _read(text: str) -> bool:
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if _hides(text):
        return True
    return any(_matches(form) for form in dict.fromkeys(forms(text)))


@lru_cache(maxsize=256)
def suspicious_entries(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the outside ids of the entries that read as an injection, names included, in order."""
    return tuple(entry.message_id for entry in trajectory.entries if any(map(reads_as_injection, _texts_of(entry))))


@dataclass(frozen=True)
class SuspiciousMessage:
    """A message, or a name in it, that reads as written for the judge. ``where``: ``text`` or the name's part of the message."""

    message_id: str
    agent_id: str
    where: str


def suspicious_messages(messages: Iterable[Message]) -> list[SuspiciousMessage]:
    """Return the messages that read as an injection, names included, in order: the findings of ``--fail-on injection``."""
    found = []
    for message in messages:
        parts = {
            "text": message.text,
            "channel": message.channel,
            "recipient": message.recipient,
            "agent_id": message.agent_id,
        }
        where = next((name for name, text in parts.items() if text and reads_as_injection(text)), None)
        if where is not None:
            found.append(SuspiciousMessage(message.id, message.agent_id, where))
    return found


def _texts_of(entry: Entry) -> Iterable[str]:
    return filter(None, (entry.text, entry.speaker, entry.channel, entry.recipient))


def _hides(text: str) -> bool:
    if text.isascii():
        return False
    if any(sign in text for sign in _OVERRIDES) or _HIDDEN_IN_WORD.search(text):
        return True
    return any(not run.endswith("\U000e007f") or len(run) > 8 for run in _TAGS.findall(text))


def _matches(plain: str) -> bool:
    encoded = _HARMLESS.sub(b" ", plain.encode("utf-8"))
    if any(pattern.search(encoded) for pattern in _compiled(_FRAMES)) or _means(encoded):
        return True
    run = squeezed(plain)
    patterns = (*_ALWAYS, *_RUNS) if is_written_apart(plain) else _ALWAYS
    return any(pattern.search(run) for pattern in _compiled(patterns))


def _means(encoded: bytes) -> bool:
    """Whether words of some rule's meanings stand near each other, each meaning by a word of its own."""
    hits = sorted((match.start(), name) for name, pattern in _concepts().items() for match in pattern.finditer(encoded))
    last: dict[str, tuple[int, ...]] = {}
    for place, name in hits:
        # One word may have two meanings: the one before it is kept, so that each meaning finds a word of its own.
        last[name] = (*last.get(name, ())[-1:], place)
        for meanings, reach in _TOGETHER:
            if name in meanings and meanings <= last.keys() and _near([last[item] for item in meanings], place - reach):
                return True
    return False


def _near(places: Iterable[tuple[int, ...]], earliest: int) -> bool:
    return any(min(chosen) >= earliest and len(set(chosen)) == len(chosen) for chosen in itertools.product(*places))


@cache
def _concepts() -> dict[str, re2._Regexp]:
    return {name: re2.compile("|".join(map(_stem, words.split()))) for name, words in CONCEPTS.items()}


def _stem(word: str) -> str:
    whole = word.endswith("_")
    plain = folded(word.rstrip("_").replace("~", " "))
    pattern = re.escape(plain).replace(r"\ ", r"[\s,.:'-]{1,3}")
    start = r"\b" if plain[:1].isascii() and plain[:1].isalnum() else ""
    # RE2 knows the borders of ASCII words only.
    end = r"\b" if whole and plain[-1:].isascii() else ""
    return start + pattern + end


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re2._Regexp, ...]:
    options = re2.Options()
    options.dot_nl = True
    return tuple(re2.compile(pattern, options) for pattern in patterns)
