"""What an agent is told before its turn: nudges back to its own voice, phrases to leave out, and the block they are written in."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from persona_pipeline.base.documents.yaml import load_document, validate_document
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.scoring.text.agreement import AgreementLexicon, agreement_ratio, no_lexicon, unread_language
from persona_pipeline.scoring.text.repetition import (
    MOST_USUAL,
    Repetition,
    excessive_repetition,
    find_repetition,
    usual_repetition,
)
from persona_pipeline.scoring.text.said_again import SaidAgain, find_said_again
from persona_pipeline.world.models import CorrectionSettings, Message, seed_from
from persona_pipeline.world.personas import find_yaml, is_agent_id, yaml_stems
from persona_pipeline.world.propositions.models import Catchphrase, PropositionSet, claim_variables, fill_template

NUDGES = "nudges"
FALLBACK = "_default"
_PACKAGED = Path(__file__).parent / "data" / NUDGES

NudgeText = Annotated[str, Field(min_length=1, max_length=2000)]


class _NudgeFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    agent_id: str | None = None
    anti_convergence: list[NudgeText] = Field(min_length=1)

    @field_validator("anti_convergence")
    @classmethod
    def _not_blank(cls, texts: list[str]) -> list[str]:
        if not all(text.strip() for text in texts):
            raise ValueError("holds an empty text")
        return texts


@dataclass(frozen=True)
class Nudges:
    """Texts by agent id; ``_default`` is for agents without their own.

    ``{{agent_name}}`` and, where it is known, ``{{channel_name}}`` are filled in.
    """

    texts: Mapping[str, tuple[str, ...]]

    @classmethod
    def load(cls, root: Path | None = None) -> "Nudges":
        """Return the nudges that come with the package, with those of a world's ``nudges`` folder in their place.

        Raises:
            ConfigError: a file of the folder is not valid; every problem of all of them.
        """
        texts = dict(_packaged())
        if root is not None and (root / NUDGES).is_dir():
            texts |= _read(root / NUDGES)
        return cls(texts)

    def choose(self, agent_id: str, *seed: str, variables: Mapping[str, str] | None = None) -> str:
        """Return one of the agent's texts; which one depends on the seed alone."""
        texts = self.texts.get(agent_id) or self.texts[FALLBACK]
        text = random.Random(seed_from(agent_id, *seed)).choice(texts)
        return fill_template(text, claim_variables(variables or {})).strip()


@cache
def _packaged() -> Mapping[str, tuple[str, ...]]:
    return _read(_PACKAGED)


def _read(folder: Path) -> dict[str, tuple[str, ...]]:
    texts: dict[str, tuple[str, ...]] = {}
    problems: list[Problem] = []
    for stem in yaml_stems(folder):
        try:
            path = find_yaml(folder, stem)
            if path is not None:
                texts[stem] = _texts(path, stem)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return texts


def _texts(path: Path, stem: str) -> tuple[str, ...]:
    document = load_document(path)
    if stem != FALLBACK and not is_agent_id(stem):
        raise ConfigError(Problem(f"{stem!r} cannot be an agent's id; name the file after the agent", str(path)))
    file = validate_document(_NudgeFile, document)
    if file.agent_id not in (None, stem):
        raise ConfigError(document.problem(("agent_id",), f"agent_id is not the file's name; write {stem!r}"))
    return tuple(file.anti_convergence)


HEADING = "### Conversation Guidance"


class Intervention(StrEnum):
    """The two that speak up before an agent writes."""

    ANTI_CONVERGENCE = "anti_convergence"
    REPETITION = "repetition_suppression"


@dataclass(frozen=True)
class Nudge:
    """One piece of guidance, and the share (0-1) that rose above its threshold."""

    kind: Intervention
    text: str
    share: float
    threshold: float


def guidance_block(nudges: Sequence[Nudge]) -> str | None:
    """Return the nudges under one heading; None when there is none."""
    if not nudges:
        return None
    return "\n\n".join([HEADING, *(nudge.text for nudge in nudges)])


CHANNEL_WINDOW = 10

SettingsOf = Callable[[str], CorrectionSettings]


class AntiConvergence:
    """Looks for agreement in the last ten messages of a channel. No judge, no database, nothing remembered.

    Args:
        settings: of all agents, or a function from an agent's id, such as ``StoredSettings``.
        nudges: by default the texts that come with the package.
        lexicon: by default English.
    """

    def __init__(
        self,
        settings: CorrectionSettings | SettingsOf,
        *,
        nudges: Nudges | None = None,
        lexicon: AgreementLexicon | None = None,
    ) -> None:
        self._settings_of: SettingsOf = settings if callable(settings) else lambda _: settings
        self._nudges = nudges or Nudges.load()
        self._lexicon = lexicon

    def nudge(self, agent_id: str, messages: Sequence[Message | str], *, agent_name: str = "") -> str | None:
        """Return the block to append to the agent's prompt for its next turn, or None.

        Args:
            messages: of one channel, oldest first; the last ten count. Direct messages never lead to a nudge.
        """
        found = self.find(agent_id, messages, agent_name=agent_name)
        return guidance_block([found]) if found and not self._settings_of(agent_id).shadow_mode else None

    def ratio(self, messages: Sequence[Message | str]) -> float | None:
        """Return the share (0-1) of agreeing messages that the threshold is held against; None: there is nothing to look at."""
        latest = messages[-CHANNEL_WINDOW:]
        if not latest or any(_is_direct(message) for message in latest) or self.unread(messages):
            return None
        return agreement_ratio([_words(message) for message in latest], self._lexicon)

    def unread(self, messages: Sequence[Message | str]) -> str:
        """Return why agreement in the last ten messages of a channel cannot be read, so that it never fires; "": it can."""
        language = unread_language([_words(message) for message in messages[-CHANNEL_WINDOW:]], self._lexicon)
        return no_lexicon(language) if language else ""

    def find(self, agent_id: str, messages: Sequence[Message | str], *, agent_name: str = "") -> Nudge | None:
        """Return the nudge behind the block, with the agreement ratio that led to it."""
        settings = self._settings_of(agent_id)
        ratio = self.ratio(messages) if settings.anti_convergence_enabled else None
        if ratio is None or not ratio > settings.convergence_threshold:
            return None
        latest = messages[-CHANNEL_WINDOW:]
        variables = {"agent_name": agent_name or agent_id}
        channels = {message.channel for message in latest if isinstance(message, Message)}
        if len(channels) == 1 and (channel := channels.pop()) is not None:
            variables["channel_name"] = channel
        text = self._nudges.choose(agent_id, _words(latest[-1]), variables=variables)
        return Nudge(Intervention.ANTI_CONVERGENCE, text, ratio, settings.convergence_threshold)


def _words(message: Message | str) -> str:
    return message if isinstance(message, str) else message.text


def _is_direct(message: Message | str) -> bool:
    return isinstance(message, Message) and message.is_direct


OWN_WINDOW = 5
# What an agent said lately may be the fault itself, and tells nothing of what is usual for it.
_LATELY = 50
OWN_HISTORY = MOST_USUAL + _LATELY + OWN_WINDOW
_MOST_PHRASES = 8
_MOST_CHARACTERS = 200

CatchphrasesOf = Callable[[str], Sequence[Catchphrase]]


def catchphrases_in(claims: PropositionSet | None) -> Sequence[Catchphrase]:
    """Return the catchphrases that an agent's claims of fluency name."""
    return claims.catchphrases if claims else ()


class RepetitionSuppression:
    """Looks for repetition in an agent's last five messages, and for what its last one said earlier in the same conversation.

    No judge, no database, nothing remembered.

    Args:
        settings: of all agents, or a function from an agent's id, such as ``StoredSettings``.
        catchphrases: an agent's; by default none is exempt.
    """

    def __init__(
        self, settings: CorrectionSettings | SettingsOf, *, catchphrases: CatchphrasesOf | None = None
    ) -> None:
        self._settings_of: SettingsOf = settings if callable(settings) else lambda _: settings
        self._catchphrases_of = catchphrases or (lambda _: ())

    def check(self, agent_id: str, messages: Sequence[Message | str]) -> str | None:
        """Return the block to append to the agent's prompt for its next turn, or None.

        Args:
            messages: oldest first, from all channels; the agent's own last five count, and of the conversation of the last
                200 (texts are taken to be its own, in one conversation). Where it said 100 and more up to 50 messages
                before, those tell what is usual for it.
        """
        found = self.find(agent_id, messages)
        return guidance_block([found]) if found and not self._settings_of(agent_id).shadow_mode else None

    def measure(self, agent_id: str, messages: Sequence[Message | str]) -> Repetition:
        """Return how far the agent's last messages repeat one another, too much or not."""
        latest, history = _own(agent_id, messages)
        catchphrases = self._catchphrases_of(agent_id)
        return find_repetition(latest, catchphrases, usual_repetition(history, catchphrases))

    def said_again(self, agent_id: str, messages: Sequence[Message | str]) -> SaidAgain | None:
        """Return what the agent's last message says again of its conversation, places counted among its own messages."""
        own = [m for m in messages if isinstance(m, str) or m.agent_id == agent_id]
        said = [("", m) if isinstance(m, str) else (m.conversation, m.text) for m in own]
        known = max(0, len(said) - OWN_WINDOW - _LATELY)
        found = find_said_again(said, self._catchphrases_of(agent_id), since=max(0, len(said) - 1), known=known)
        return found[0] if found else None

    def find(self, agent_id: str, messages: Sequence[Message | str]) -> Nudge | None:
        """Return the nudge behind the block, with the share of repetition (which an opener, phrase or copy does not need).

        Of a line that is said again and nothing else, how alike it is to the earlier one takes the place of the share.
        """
        settings = self._settings_of(agent_id)
        if not settings.repetition_suppression_enabled:
            return None
        latest, history = _own(agent_id, messages)
        catchphrases = self._catchphrases_of(agent_id)
        repetition = excessive_repetition(latest, settings.repetition_threshold, catchphrases, history)
        again = self.said_again(agent_id, messages)
        texts = [_request(repetition, latest)] if repetition else []
        texts += [_reminder(again)] if again else []
        if repetition:
            share, threshold = repetition.share, settings.repetition_threshold
        elif again:
            share, threshold = again.strength, again.limit
        else:
            return None
        return Nudge(Intervention.REPETITION, "\n".join(texts), share, threshold)


def _own(agent_id: str, messages: Sequence[Message | str]) -> tuple[list[str], list[str]]:
    """Return an agent's last messages, and what it said before lately."""
    own = [_words(m) for m in messages if isinstance(m, str) or m.agent_id == agent_id]
    return own[-OWN_WINDOW:], own[: -OWN_WINDOW - _LATELY]


def _request(repetition: Repetition, messages: Sequence[str]) -> str:
    count = len(messages)
    lines = [
        "Your last messages repeat themselves. Say what you have to say in new words, and leave these phrases out:"
    ]
    lines += [f'- "{_cut(item.phrase)}" (in {item.messages} of {count})' for item in repetition.phrases[:_MOST_PHRASES]]
    if repetition.openers:
        lines.append("Begin differently from:")
        lines += [f'- "{_cut(item.phrase)} ..." (begins {item.messages} of {count})' for item in repetition.openers]
    lines.append("What you wrote last, oldest first:")
    lines += [f"- {json.dumps(_cut(message), ensure_ascii=False)}" for message in messages]
    return "\n".join(lines)


SAID_AGAIN = (
    "You said this before in the same conversation: {{earlier}}\n"
    "Your last message said it again: {{line}}\nGo on from there, or say something new."
)


def _reminder(again: SaidAgain) -> str:
    quoted = {"earlier": again.earlier_line, "line": again.line}
    return fill_template(SAID_AGAIN, {k: json.dumps(_cut(v), ensure_ascii=False) for k, v in quoted.items()})


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
