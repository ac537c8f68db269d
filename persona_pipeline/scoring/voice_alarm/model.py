"""An agent's voice as it was learnt (plain JSON), and its messages held against it one after another: a one-sided CUSUM
(Page, 1954) that knows where it began. A change is held against everyday language too: how assistants, support desks and
circulars write, in ten languages."""

import base64
import itertools
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import regex
from pydantic import BaseModel

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.scoring.style.rivals import worth
from persona_pipeline.scoring.text.agreement import UNKNOWN, language_of
from persona_pipeline.world.models import Message

# Half of them for characters, half for words.
COLUMNS = 1 << 16
_HALF = COLUMNS >> 1
# Scripts that put no blanks between words: each character is read as one, since a whole clause would hardly come again.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SPACES = regex.compile(r"\s\s+")
_WORD = regex.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]+")


def words_of(text: str) -> list[str]:
    """Return the words and marks of a text."""
    return _WORD.findall(text)


def hashed(text: str) -> list[tuple[Any, Any]]:
    """Return, of cased character 2-4-grams and of words and pairs of words, columns and 1 + ln of how often each stands there.

    How wide a comma is and how an accent is encoded is a keyboard's: texts are read in Unicode's form NFKC.
    """
    text = unicodedata.normalize("NFKC", text)
    words = [word.lower() for word in words_of(text)]
    pairs = [f"{first} {second}" for first, second in itertools.pairwise(words)]
    spaced = _SPACES.sub(" ", text)
    grams = (spaced[place : place + length] for length in (2, 3, 4) for place in range(len(spaced) - length + 1))
    return [_columns(Counter(grams), 0), _columns(Counter([*words, *pairs]), _HALF)]


def _columns(found: Counter[str], first: int) -> tuple[Any, Any]:
    marks = (zlib.crc32(gram.encode("utf-8", "surrogatepass")) for gram in found)
    columns = np.fromiter(marks, dtype=np.int64, count=len(found)) % _HALF + first
    return columns, 1 + np.log(np.fromiter(found.values(), dtype=float, count=len(found)))


def weighted(found: Sequence[tuple[Any, Any]], inverse_frequencies: Any) -> tuple[Any, Any]:
    """Return columns and values of the vector of a ``hashed`` message: characters and words each of length 1 before columns are
    added up."""
    parts = []
    for columns, values in found:
        values = values * inverse_frequencies[columns]
        length = float(np.linalg.norm(values))
        parts.append((columns, values / length if length else values))
    return np.concatenate([columns for columns, _ in parts]), np.concatenate([values for _, values in parts])


def inverse_frequencies(found: Sequence[Sequence[tuple[Any, Any]]]) -> Any:
    """Return how rare each column is among ``hashed`` messages: log((1 + messages) / (1 + those that have it)) + 1."""
    holders = np.zeros(COLUMNS)
    for parts in found:
        for columns, _ in parts:
            holders[np.unique(columns)] += 1
    return np.log((1 + len(found)) / (1 + holders)) + 1


def vectors(found: Sequence[Sequence[tuple[Any, Any]]], frequencies: Any) -> Any:
    """Return the ``weighted`` vectors of ``hashed`` messages as the rows of a sparse matrix."""
    from scipy import sparse

    rows = [weighted(parts, frequencies) for parts in found]
    starts = np.cumsum([0, *(len(columns) for columns, _ in rows)])
    values = np.concatenate([values for _, values in rows]).astype(np.float32)
    columns = np.concatenate([columns for columns, _ in rows]).astype(np.int32)
    # 32 bits, since liblinear takes no longer indices.
    matrix = sparse.csr_array((values, columns, starts.astype(np.int32)), (len(rows), COLUMNS))
    matrix.sum_duplicates()
    return matrix


# The sum that raises an alarm, and the most that one message adds to it.
ALARM = 1.0
_MOST_OF_THRESHOLD = 0.6
# A delay beyond this is no delay: the other's messages hardly tell, or speak for the agent.
MOST_DELAY = 1000.0


class VoiceProvenance(BaseModel, extra="forbid", frozen=True):
    """What a voice was learnt from.

    Attributes:
        persona_hash: of the persona it belongs to; another persona is another voice.
        first_message, last_message: ids of the agent's own messages; until: when the last was sent.
        messages, conversations: of the agent's own; others: messages of other agents; everyday: lines of everyday language.
        language: of the agent's own messages; ``unknown`` where it cannot be told.
        examples: how many of its own it never said: its character card has them as examples.
        false_alarms, horizon: share (0-1) of stretches of ``horizon`` own messages that raise an alarm.
    """

    agent_id: str
    persona_hash: str
    first_message: str
    last_message: str
    until: datetime
    messages: int
    conversations: int
    others: int
    language: str
    everyday: int
    false_alarms: float
    horizon: int
    examples: int = 0
    version: Literal[5] = 5


class VoiceSide(BaseModel, extra="forbid", frozen=True):
    """One of those whose voice might be taken for the agent's, and what a message says for it.

    Attributes:
        other: who; empty: anybody else. ``everyday``: no agent, but a kind of everyday language; see ``SECTIONS``.
        reference: the difference of scores (own - other) below which a message speaks for a change.
        scale: from that difference to what is added to the sum: log-odds as a share of what raises an alarm.
        cap: most that one message may add to the sum, or take from it.
        usual: mean of what the agent's own messages add (below 0).
        delay: after about how many messages of the other an alarm is expected, from the mean of what they add.
    """

    other: str
    reference: float
    scale: float
    cap: float
    usual: float
    everyday: bool = False
    delay: float = 0.0

    def step(self, difference: float) -> float:
        """Return what a message with this difference of scores adds to the sum."""
        return min(self.cap, max(-self.cap, self.scale * (self.reference - difference)))

    def shared(self, threshold: float, theirs: float) -> "VoiceSide":
        """Return the side with what messages add as shares of a threshold, ``theirs`` being the mean of what the other's add."""
        told = {name: getattr(self, name) / threshold for name in ("scale", "cap", "usual")}
        return self.model_copy(update=told | {"delay": threshold / max(theirs, threshold / MOST_DELAY)})


class VoiceModel(BaseModel, extra="forbid", frozen=True):
    """A voice that messages can be held against. A side's sum of 1 raises an alarm.

    Attributes:
        sides: the other voices, and kinds of everyday language; each has a sum of its own. None: too little is known to tell a
            change from how the agent varies, and there are no alarms.
        weights: base64 of 16-bit floats, sides x columns: own less the other's; inverse_frequencies: by column.
    """

    sides: tuple[VoiceSide, ...]
    provenance: VoiceProvenance
    weights: str = ""
    inverse_frequencies: str = ""

    @property
    def tells(self) -> bool:
        """Whether there are alarms at all."""
        return bool(self.sides)

    def differences(self, text: str) -> Any:
        """Return how much more a message is the agent's own than each side's."""
        weights, frequencies = self._arrays
        columns, values = weighted(hashed(text), frequencies)
        return worth(text) * (weights[:, columns] @ values)

    def steps(self, text: str) -> Any:
        """Return what a message adds to the sum of each side."""
        steps = [side.step(float(value)) for side, value in zip(self.sides, self.differences(text), strict=True)]
        # One message alone is never a change of voice, however unlike the agent.
        return np.minimum(steps, _MOST_OF_THRESHOLD)

    @cached_property
    def _arrays(self) -> tuple[Any, Any]:
        return unpacked(self.weights).reshape(len(self.sides), -1), unpacked(self.inverse_frequencies)


def packed(values: Any) -> str:
    """Return an array as base64 of little-endian 16-bit floats, deflated."""
    return base64.b64encode(zlib.compress(np.asarray(values, dtype="<f2").tobytes(), 1)).decode("ascii")


def unpacked(text: str) -> Any:
    """Return the array of ``packed``, flat; kept as it is, since twice as wide a model of fifteen sides would be 4 MB."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<f2")


_QUOTED = 3


@dataclass(frozen=True)
class VoiceReading:
    """Of one message: what it adds to the sum, the sum after it (never below 0), and whether the sum is at the threshold."""

    message: Message
    step: float
    sum: float
    alarm: bool


@dataclass(frozen=True)
class VoiceAlarm:
    """An agent that no longer sounds like itself.

    Attributes:
        raised_at: the message at which the sum reached the threshold.
        began_at: the first message after the sum was last at zero: where the change most likely began.
        messages: how many of the agent's messages that took, ``began_at`` and ``raised_at`` included.
        quotes: the messages among them that are least like the agent, worst first.
        mean_step: mean of what they added to the sum; ``usual_step`` of the agent's own messages (below 0).
        like: what those messages read like, such as ``a stock assistant`` or another agent's id; "" for nobody it knows.
    """

    agent_id: str
    raised_at: Message
    began_at: Message
    messages: int
    quotes: tuple[Message, ...]
    mean_step: float
    usual_step: float
    like: str = ""

    @property
    def text(self) -> str:
        """The alarm as one sentence, without the quotes."""
        began, raised = self.began_at, self.raised_at
        return (
            f"{self.agent_id} has not sounded like itself since message {began.id} ({began.created_at.isoformat()})"
            f"{f', and reads like {self.like}' if self.like else ''}; "
            f"noticed at {raised.id} after {self.messages} of its messages"
        )


@dataclass
class VoiceWatch:
    """Follows one agent's messages as they come. One change is one alarm: the next can only come once the sum was at zero."""

    model: VoiceModel
    alarmed: bool = False
    _sums: list[float] = field(default_factory=list)
    # How many messages each side's sum has been above zero; what they were.
    _spells: list[int] = field(default_factory=list)
    _since: list[tuple[Message, list[float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sums = [0.0] * len(self.model.sides)
        self._spells = [0] * len(self.model.sides)

    @property
    def sum(self) -> float:
        """The highest of the sides' sums; 0 where there are none."""
        return max(self._sums, default=0.0)

    def read(self, message: Message) -> tuple[VoiceReading, VoiceAlarm | None]:
        """Return the reading of the agent's next message, and the alarm if it raises one."""
        if not self.model.sides:
            return VoiceReading(message, 0.0, 0.0, False), None
        steps = [float(step) for step in self.model.steps(message.text)]
        # Held at the threshold, so that an agent that has its voice back is soon believed.
        self._sums = [min(max(0.0, total + step), ALARM) for total, step in zip(self._sums, steps, strict=True)]
        self._spells = [spell + 1 if total > 0 else 0 for spell, total in zip(self._spells, self._sums, strict=True)]
        leading = max(range(len(steps)), key=lambda side: (self._sums[side], steps[side]))
        reading = VoiceReading(message, steps[leading], self.sum, self.sum >= ALARM)
        if self.sum == 0.0:
            self.alarmed = False
            self._since.clear()
            return reading, None
        if self.alarmed:
            return reading, None
        self._since = [*self._since, (message, steps)][-max(self._spells) :]
        if not reading.alarm:
            return reading, None
        self.alarmed = True
        return reading, self._alarm(leading)

    def _alarm(self, side: int) -> VoiceAlarm:
        since = [(message, steps[side]) for message, steps in self._since[-self._spells[side] :]]
        worst = sorted(since, key=lambda item: -item[1])[:_QUOTED]
        return VoiceAlarm(
            agent_id=self.model.provenance.agent_id,
            raised_at=since[-1][0],
            began_at=since[0][0],
            messages=len(since),
            quotes=tuple(message for message, _ in worst),
            mean_step=fmean(step for _, step in since),
            usual_step=self.model.sides[side].usual,
            like=self._like(side, [message.text for message, _ in since]),
        )

    def _like(self, side: int, texts: Sequence[str]) -> str:
        sides = self.model.sides
        stock = any(item.everyday and total > ALARM / 2 for item, total in zip(sides, self._sums, strict=True))
        if (sides[side].other and not sides[side].everyday) or not stock:
            return sides[side].other
        # Which kind's sum was first says little: they all rise together.
        apart = np.sum([self.model.differences(text) for text in texts], axis=0)
        nearest = min((n for n, item in enumerate(sides) if item.everyday), key=lambda n: float(apart[n]))
        return SECTIONS[sides[nearest].other]


def follow_voice(model: VoiceModel, messages: Iterable[Message]) -> tuple[list[VoiceReading], list[VoiceAlarm]]:
    """Return the readings of an agent's messages, oldest first, and the alarms they raise. Other agents' are passed over."""
    watch = VoiceWatch(model)
    readings: list[VoiceReading] = []
    alarms: list[VoiceAlarm] = []
    for message in messages:
        if message.agent_id == model.provenance.agent_id:
            reading, alarm = watch.read(message)
            readings.append(reading)
            if alarm:
                alarms.append(alarm)
    return readings, alarms


def highest_sums(steps: Any) -> Any:
    """Return the highest that any side's sum comes to over each sequence (sequence x message x side)."""
    totals = np.zeros((steps.shape[0], steps.shape[2]))
    highest = np.zeros(steps.shape[0])
    for number in range(steps.shape[1]):
        totals = np.maximum(0.0, totals + steps[:, number])
        highest = np.maximum(highest, totals.max(axis=1))
    return highest


# Changes this long before the first message that sounds different may have caused it.
BEFORE = timedelta(days=3)

MOST_CHANGES = 5


@dataclass(frozen=True)
class KnownChange:
    """Something that changed at a time: a commit, an edited persona, another model."""

    at: datetime
    what: str


@dataclass(frozen=True)
class VoiceChange:
    """An alarm, and the changes between three days before it began and when it was raised, the five nearest to its
    beginning, the nearest first."""

    alarm: VoiceAlarm
    changes: tuple[KnownChange, ...] = ()

    @property
    def text(self) -> str:
        """The finding in words, without quotes."""
        if not self.changes:
            return f"{self.alarm.text}; nothing is known to have changed around it"
        listed = "; ".join(f"{change.what} ({change.at.isoformat()})" for change in self.changes)
        return f"{self.alarm.text}; around it changed: {listed}"


def voice_change(alarm: VoiceAlarm, changes: Sequence[KnownChange]) -> VoiceChange:
    """Return an alarm with those of the changes, in any order, that may have caused it."""
    began, raised = alarm.began_at.created_at, alarm.raised_at.created_at
    around = [change for change in changes if began - BEFORE <= change.at <= raised]
    nearest = sorted(around, key=lambda change: (abs(began - change.at), change.what))
    return VoiceChange(alarm, tuple(nearest[:MOST_CHANGES]))


BACKGROUND = "background"
_DATA = Path(__file__).parent / "data"
# A line that begins a section, and what a voice that comes near it is said to read like.
SECTIONS = {
    "assistant": "a stock assistant",
    "courtesy": "a support desk's courtesies",
    "corporate": "a corporate circular",
    "smalltalk": "small talk",
}
# Most people's small talk is near every character that talks like people: held against, and no change of its own.
NO_CHANGE = "smalltalk"


def languages() -> list[str]:
    """Return the codes of the languages that come with the package."""
    return sorted(path.stem for path in _DATA.glob("*.txt"))


def everyday(texts: Sequence[str], root: Path | None = None) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the language of texts, and everyday lines in it as pairs of section and line; none where there are none.

    Args:
        root: a world's folder; what stands in its ``background/<language>.txt`` is added.

    Raises:
        ConfigError: a line of the world's file stands under no section.
    """
    language = language_of(texts)
    if language == UNKNOWN:
        return language, ()
    own = root / BACKGROUND / f"{language}.txt" if root else None
    return language, (*_packaged(language), *(_lines(own) if own and own.is_file() else ()))


@cache
def _packaged(language: str) -> tuple[tuple[str, str], ...]:
    path = _DATA / f"{language}.txt"
    return _lines(path) if path.is_file() else ()


def _lines(path: Path) -> tuple[tuple[str, str], ...]:
    found, section = [], ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.removeprefix("# ") in SECTIONS and line.startswith("# "):
            section = line.removeprefix("# ")
        elif line.strip() and not section:
            known = ", ".join(f"'# {name}'" for name in SECTIONS)
            raise ConfigError(
                Problem(f"this line stands under no section; begin one with a line {known}", str(path), number)
            )
        elif line.strip():
            found.append((section, line.strip()))
    return tuple(found)
