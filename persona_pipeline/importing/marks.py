"""Users' marks on messages, as other tools export them, as labels: stars, thumbs, swipes and regenerations."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from persona_pipeline.base.documents.json import rfc3339
from persona_pipeline.guard.labels.messages import MarkSource, MessageLabel, message_label
from persona_pipeline.importing.base import list_of, words_of
from persona_pipeline.scoring.messages.verdicts import Role
from persona_pipeline.world.messages.files import cut_keys
from persona_pipeline.world.models import Message

# Keys of users' marks on a message; ``marks`` is a list of objects with name, value and by.
MARKS = "marks"
_RATINGS = ("stars", "rating", "thumbs", "feedback", "annotation")
_OTHER_TEXTS = {"swipes": MarkSource.SWIPE, "regenerations": MarkSource.REGENERATION}
KEYS = frozenset((MARKS, *_RATINGS, *_OTHER_TEXTS, "reactions"))
# Tools keep scores of all kinds together; these names belong to users' opinions of an answer.
_OF_USERS = re.compile(r"thumb|star|rating|feedback|annotation|\blike|voice|character|user[ _-]?score", re.IGNORECASE)
_UP = frozenset(("up", "thumbsup", "like", "liked", "positive", "good", "+1"))
_DOWN = frozenset(("down", "thumbsdown", "dislike", "disliked", "negative", "bad", "-1"))
_BY = ("by", "user", "user_id", "userId", "author", "authorUserId")
_INNER = ("rating", "score", "value", "thumbs", "stars")
# Of five stars: the fewest for a liked message, and the most for a disliked one.
_LIKED, _DISLIKED, _STARS = 4, 2, 5


def marks_of(message: Message, unread: Counter[str]) -> Iterator[MessageLabel]:
    """Yield labels from users' marks on an agent's message, in character where the user liked it; count other marks in ``unread``.

    A user is named by a digest, always the same: no name or address of a user comes into the repository.
    """
    extras = message.extras
    for name, source in _OTHER_TEXTS.items():
        # Formats that say who chose count only where a user chose.
        by = extras.get("swiped_by", None if "swipe_id" in extras else "")
        words = [words_of(text).strip() for text in list_of(extras.get(name)) if isinstance(text, str)]
        others = [text for text in words if text not in ("", message.text.strip())]
        if others and by is not None:
            yield _label(message, True, source, by)
            yield from (_label(message, False, source, by, text=text) for text in dict.fromkeys(others))
    given = [{"name": name, "value": extras[name]} for name in _RATINGS if name in extras]
    for mark in [*given, *(item for item in list_of(extras.get(MARKS)) if isinstance(item, Mapping))]:
        name, value = str(mark.get("name", "")), mark.get("value")
        found = _rated(name, value) if _OF_USERS.search(name) else None
        if found is None:
            shown = "" if isinstance(value, Mapping | list) else str(value)[:20]
            unread[f"{name[:40]} {shown}".strip()] += 1
            continue
        source, liked, rating = found
        yield _label(message, liked, source, _who(mark) or _who(value) or "", rating=rating)
    for reaction in list_of(extras.get("reactions")):
        name = str(reaction.get("name", "")).split("::")[0] if isinstance(reaction, Mapping) else ""
        if name in ("+1", "thumbsup", "-1", "thumbsdown"):
            for user in dict.fromkeys(map(str, list_of(reaction.get("users")))):
                yield _label(message, name in ("+1", "thumbsup"), MarkSource.THUMBS, user)
        else:
            unread[f"reaction {name[:40]}"] += 1
    for name in KEYS.intersection(cut_keys(extras)):
        unread[f"{name} too long to keep"] += 1


def _label(message: Message, liked: bool, source: MarkSource, by: Any, **more: Any) -> MessageLabel:
    user = hashlib.sha256(str(by).encode("utf-8", "surrogatepass")).hexdigest()[:8] if by else "unknown"
    verdict, moment = Role.IN if liked else Role.OUT, rfc3339(message.created_at)
    return message_label(message, verdict, f"user-{user}", source, labelled_at=moment, **more)


def _rated(name: str, value: Any) -> tuple[MarkSource, bool, float | None] | None:
    """Return the source of a rating, whether the user liked the message, and its number; None: it says neither."""
    if isinstance(value, Mapping):
        inner = next(((key, value[key]) for key in _INNER if value.get(key) is not None), None)
        return None if inner is None else _rated(f"{name} {inner[0]}" if inner[0] == "stars" else name, inner[1])
    if isinstance(value, str):
        word = re.sub(r"[\s_]", "", value).lower()
        if word in _UP | _DOWN:
            return MarkSource.THUMBS, word in _UP, None
        try:
            value = float(word)
        except ValueError:
            return None
    if isinstance(value, bool):
        return MarkSource.THUMBS, value, None
    if not isinstance(value, (int, float)):
        return None
    of_stars = "star" in name.lower()
    if value in (-1, 0, 1) and not of_stars:
        # One of five, or a thumb: who says "rating" may mean either.
        return None if value == 1 and name == "rating" else (MarkSource.THUMBS, value > 0, float(value))
    if not 1 <= value <= _STARS or _DISLIKED < value < _LIKED:
        return None
    return MarkSource.STARS, value >= _LIKED, float(value)


def _who(value: Any) -> Any:
    return next((value[key] for key in _BY if value.get(key)), None) if isinstance(value, Mapping) else None
