"""Texts for agents in their own language: nudges before a turn, feedback of the gate, and the files of these texts."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import regex
from pydantic import AfterValidator, BaseModel, Field

from persona_pipeline.base.documents.yaml import load_document, validate_document
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.scoring.text.agreement import (
    ENGLISH,
    UNKNOWN,
    AgreementLexicon,
    agreement_ratio,
    language_of,
    no_lexicon,
    unread_language,
)
from persona_pipeline.scoring.text.repetition import (
    MOST_USUAL,
    Repetition,
    excessive_repetition,
)
from persona_pipeline.scoring.text.said_again import SaidAgain, find_said_again
from persona_pipeline.scoring.text.tokens import SharedPhrase, tokenize
from persona_pipeline.world.models import CorrectionSettings, Message, seed_from
from persona_pipeline.world.personas import find_yaml, is_agent_id, yaml_stems
from persona_pipeline.world.propositions.models import (
    Catchphrase,
    PropositionSet,
    claim_variables,
    fill_template,
    template_variables,
)

NUDGES = "nudges"
FALLBACK = "_default"
_PACKAGED = Path(__file__).parent / "data" / NUDGES
_OF_A_LANGUAGE = re.compile(rf"{FALLBACK}\.([a-z]{{2,3}})")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is an empty text")
    return text


def _holding(*names: str) -> AfterValidator:
    """Check that a text holds these placeholders and no others."""

    def checked(text: str) -> str:
        if sorted(template_variables(text)) != sorted(names):
            raise ValueError(f"needs the placeholders {', '.join(f'{{{{{name}}}}}' for name in names)} and no others")
        return text

    return AfterValidator(checked)


NudgeText = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_not_blank)]
_SharedText = Annotated[NudgeText, _holding("phrase", "messages", "count")]
_ClaimText = Annotated[NudgeText, _holding("claim", "reason")]


class RepetitionTexts(BaseModel, extra="forbid"):
    """Texts about repetition: each phrase and opener in quotes, with the number of messages that have it."""

    request: NudgeText
    phrase: _SharedText
    openers: NudgeText
    opener: _SharedText
    latest: NudgeText


class GateTexts(BaseModel, extra="forbid"):
    """Texts about a rejected message; ``your_message`` replaces ``{{action}}`` in claims.

    ``out`` replaces ``rejected`` for a message that is out of character. ``go_on``, of release 0.2, is read and ignored.
    """

    rejected: Annotated[NudgeText, _holding("score", "threshold")]
    missing: _ClaimText
    avoid: _ClaimText
    instead: Annotated[NudgeText, _holding("advice")]
    rewrite: NudgeText
    your_message: NudgeText
    out: Annotated[NudgeText, _holding("quote", "reason")] = 'Not sent, out of character: "{{quote}}" {{reason}}'
    go_on: str | None = None


# A file need not have every text.
_ABSENT: Any = None


class AgentTexts(BaseModel, extra="forbid"):
    """Everything the corrections say to an agent; in a file any of it, and for which agent and language it is."""

    agent_id: str = _ABSENT
    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] = _ABSENT
    heading: NudgeText = _ABSENT
    anti_convergence: list[NudgeText] = Field(_ABSENT, min_length=1)
    repetition: RepetitionTexts = _ABSENT
    said_again: Annotated[NudgeText, _holding("earlier", "line")] = _ABSENT
    gate: GateTexts = _ABSENT

    @property
    def texts(self) -> dict[str, Any]:
        """Those that are there, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set - {"agent_id", "language"}}


@dataclass(frozen=True)
class Nudges:
    """A world's own texts by the name of their file: an agent, ``_default.<language>`` or ``_default``; behind them the package's.

    ``{{agent_name}}`` and, where it is known, ``{{channel_name}}`` are filled in.
    """

    own: Mapping[str, AgentTexts] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path | None = None) -> "Nudges":
        """Return the texts of a world's ``nudges`` folder before those that come with the package.

        Raises ``ConfigError``: a file of the folder is not valid; every problem of all of them.
        """
        return cls(_read(root / NUDGES) if root is not None and (root / NUDGES).is_dir() else {})

    def of(self, agent_id: str, language: str = ENGLISH) -> AgentTexts:
        """Return the texts for an agent in a language.

        The first file that has a text decides: the agent's own, then ``_default.<language>``, then ``_default``; each time the
            world's
        before the package's, but the world's ``_default`` before all of the package's for many. Files that name another language
        are skipped. A language without a file gets English.
        """
        packaged, of_language = _packaged(), f"{FALLBACK}.{language}"
        fits = {None, language}
        if of_language not in {*packaged, *self.own}:
            fits.add(ENGLISH)
        found = packaged[FALLBACK].texts
        for files, stem in (
            (packaged, of_language),
            *((self.own, stem) for stem in (FALLBACK, of_language)),
            *((files, agent_id) for files in (packaged, self.own)),
        ):
            if (file := files.get(stem)) is not None and file.language in fits:
                found |= file.texts
        return AgentTexts(**found)

    def choose(
        self, agent_id: str, *seed: str, language: str = ENGLISH, variables: Mapping[str, str] | None = None
    ) -> str:
        """Return one of the agent's texts against agreement; which one depends on the seed alone."""
        text = random.Random(seed_from(agent_id, *seed)).choice(self.of(agent_id, language).anti_convergence)
        return fill_template(text, claim_variables(variables or {})).strip()


@cache
def _packaged() -> Mapping[str, AgentTexts]:
    return _read(_PACKAGED)


def _read(folder: Path) -> dict[str, AgentTexts]:
    files: dict[str, AgentTexts] = {}
    problems: list[Problem] = []
    for stem in yaml_stems(folder):
        try:
            path = find_yaml(folder, stem)
            if path is not None:
                files[stem] = _file(path, stem)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return files


def _file(path: Path, stem: str) -> AgentTexts:
    document = load_document(path)
    named = _OF_A_LANGUAGE.fullmatch(stem)
    if named is None and stem != FALLBACK and not is_agent_id(stem):
        remedy = f"name the file after the agent, or after its language: {FALLBACK}.de"
        raise ConfigError(Problem(f"{stem!r} cannot be an agent's id; {remedy}", str(path)))
    file = validate_document(AgentTexts, document)
    if file.agent_id not in (None, stem):
        raise ConfigError(document.problem(("agent_id",), f"agent_id is not the file's name; write {stem!r}"))
    if not file.texts:
        raise ConfigError(
            Problem("holds no text; write anti_convergence, repetition, said_again, gate or heading", str(path))
        )
    if named is None:
        return file
    if file.language not in (None, named[1]):
        raise ConfigError(document.problem(("language",), f"language is not the file's name; write {named[1]!r}"))
    return file.model_copy(update={"language": named[1]})


# Words (signs of Chinese and Japanese) that identify a language. Shorter texts are read together with earlier ones.
_TELLING_WORDS = 8


def language_told(*said: Sequence[str]) -> str:
    """Return the language of the first group of texts with enough words, else of all groups together."""
    for texts in said:
        if sum(len(tokenize(text)) for text in texts) >= _TELLING_WORDS and (found := language_of(texts)) != UNKNOWN:
            return found
    return language_of([text for texts in said for text in texts])


HEADING = "### Conversation Guidance"


class Intervention(StrEnum):
    """The two that speak up before an agent writes."""

    ANTI_CONVERGENCE = "anti_convergence"
    REPETITION = "repetition_suppression"


@dataclass(frozen=True)
class Nudge:
    """One piece of guidance, the share (0-1) that rose above its threshold, and the heading in the language of its text."""

    kind: Intervention
    text: str
    share: float
    threshold: float
    heading: str = HEADING


def guidance_block(nudges: Sequence[Nudge]) -> str | None:
    """Return the nudges under one heading; None when there is none."""
    if not nudges:
        return None
    return "\n\n".join([nudges[0].heading, *(nudge.text for nudge in nudges)])


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
        self._nudges = nudges or Nudges()
        self._lexicon = lexicon

    def nudge(self, agent_id: str, messages: Sequence[Message | str], *, agent_name: str = "") -> str | None:
        """Return the block to append to the agent's prompt for its next turn, or None.

        Args:
            messages: of a single channel, oldest first; the last ten count. Direct messages never lead to a nudge.
        """
        found = self.find(agent_id, messages, agent_name=agent_name)
        return guidance_block([found]) if found and not self._settings_of(agent_id).shadow_mode else None

    def ratio(self, messages: Sequence[Message | str]) -> float | None:
        """Return the share (0-1) of agreeing messages that the threshold is held against; None: there is nothing to look at."""
        latest = messages[-CHANNEL_WINDOW:]
        direct = any(isinstance(message, Message) and message.is_direct for message in latest)
        if not latest or direct or self.unread(messages):
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
        own = [message.text for message in latest if isinstance(message, Message) and message.agent_id == agent_id]
        language = language_told(own, [_words(message) for message in latest])
        text = self._nudges.choose(agent_id, _words(latest[-1]), language=language, variables=variables)
        heading = self._nudges.of(agent_id, language).heading
        return Nudge(Intervention.ANTI_CONVERGENCE, text, ratio, settings.convergence_threshold, heading)


def _words(message: Message | str) -> str:
    return message if isinstance(message, str) else message.text


OWN_WINDOW = 5
# Recent messages may be the fault, so they do not show the usual level.
_LATELY = 50
OWN_HISTORY = MOST_USUAL + _LATELY + OWN_WINDOW
_MOST_PHRASES = 8
_MOST_CHARACTERS = 200

CatchphrasesOf = Callable[[str], Sequence[Catchphrase]]


def catchphrases_in(claims: PropositionSet | None) -> Sequence[Catchphrase]:
    """Return the catchphrases that an agent's claims of fluency name."""
    return claims.catchphrases if claims else ()


class RepetitionSuppression:
    """Finds repetition in an agent's last five messages, and earlier copies of the last one in the same conversation.

    No judge, no database, nothing remembered.

    Args:
        settings: of all agents, or a function from an agent's id, such as ``StoredSettings``.
        catchphrases: an agent's; by default none is exempt.
        nudges: by default the texts that come with the package.
    """

    def __init__(
        self,
        settings: CorrectionSettings | SettingsOf,
        *,
        catchphrases: CatchphrasesOf | None = None,
        nudges: Nudges | None = None,
    ) -> None:
        self._settings_of: SettingsOf = settings if callable(settings) else lambda _: settings
        self._nudges = nudges or Nudges()
        self._catchphrases_of = catchphrases or (lambda _: ())

    def check(self, agent_id: str, messages: Sequence[Message | str]) -> str | None:
        """Return the block to append to the agent's prompt for its next turn, or None.

        Args:
            messages: oldest first, from all channels; the agent's own last five count, and the last 200 of the conversation (plain
                texts are its own, in one conversation). 100 and more messages, up to 50 before the newest, show the agent's
                usual level.
        """
        found = self.find(agent_id, messages)
        return guidance_block([found]) if found and not self._settings_of(agent_id).shadow_mode else None

    def said_again(self, agent_id: str, messages: Sequence[Message | str]) -> SaidAgain | None:
        """Return the repetition of earlier lines of the conversation in the agent's last message; places count its own messages."""
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
        if repetition:
            share, threshold = repetition.share, settings.repetition_threshold
        elif again:
            share, threshold = again.strength, again.limit
        else:
            return None
        texts = self._nudges.of(agent_id, language_told(latest))
        told = [_request(texts.repetition, repetition, latest)] if repetition else []
        if again:
            lines = {"earlier": _quoted(again.earlier_line), "line": _quoted(again.line)}
            told.append(fill_template(texts.said_again, lines))
        return Nudge(Intervention.REPETITION, "\n".join(told), share, threshold, texts.heading)


def _own(agent_id: str, messages: Sequence[Message | str]) -> tuple[list[str], list[str]]:
    """Return an agent's last messages, and those before its recent ones."""
    own = [_words(m) for m in messages if isinstance(m, str) or m.agent_id == agent_id]
    return own[-OWN_WINDOW:], own[: -OWN_WINDOW - _LATELY]


def _request(texts: RepetitionTexts, repetition: Repetition, messages: Sequence[str]) -> str:
    def told(text: str, shared: SharedPhrase, more: str = "") -> str:
        said = as_written(shared.phrase, messages)
        counts = {"messages": str(shared.messages), "count": str(len(messages))}
        return f"- {fill_template(text, {'phrase': _quoted(said, more), **counts})}"

    lines = [texts.request, *(told(texts.phrase, item) for item in repetition.phrases[:_MOST_PHRASES])]
    if repetition.openers:
        lines += [texts.openers, *(told(texts.opener, item, _MORE) for item in repetition.openers)]
    return "\n".join([*lines, texts.latest, *(f"- {_quoted(message)}" for message in messages)])


_MORE = "…"
# Signs between letters, and within words, that are not part of a phrase.
_BETWEEN, _WITHIN = r"[^\p{L}\p{N}_]*", r"[^\p{L}\p{N}_\s]*"


def as_written(phrase: str, messages: Sequence[str]) -> str:
    """Return a phrase, tokens joined by spaces, in the letters and marks of the first message that has it, on one line.

    Scripts without spaces so get none between their letters.
    """
    words = phrase[:_MOST_CHARACTERS].split()
    letters = (_WITHIN.join(regex.escape(sign) for sign in word if not regex.match(r"\p{M}", sign)) for word in words)
    pattern = regex.compile(_BETWEEN.join(letters) + r"\p{M}*", regex.IGNORECASE)
    found = next(filter(None, map(pattern.search, messages)), None)
    written = " ".join(found[0].split()) if found else phrase
    return written + _MORE if len(phrase) > _MOST_CHARACTERS else written


def _quoted(text: str, more: str = "") -> str:
    cut = text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + _MORE
    # As JSON, a line break stays inside its line.
    return json.dumps(cut if cut.endswith(_MORE) else cut + more, ensure_ascii=False)
