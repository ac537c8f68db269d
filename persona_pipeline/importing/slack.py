"""A Slack export: a folder a channel with a JSON file a day, and who the members are."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.importing.base import (
    Found,
    Importer,
    ReadOptions,
    Skipped,
    Source,
    card_words,
    is_placeholder,
    list_of,
    object_of,
    spoken,
    timestamp,
)
from persona_pipeline.importing.records import each_record, records
from persona_pipeline.world.messages.files import Row

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
_TS = re.compile(r"(\d{1,11})\.(\d{1,6})")
_MEMBERS = ("users.json", "org_users.json")
# Lists of conversations, by what a conversation's folder is named after.
_LISTS = {"channels.json": "name", "groups.json": "name", "mpims.json": "name", "dms.json": "id"}
_SAID = (None, "bot_message", "me_message", "thread_broadcast", "file_share", "file_comment", "reply_broadcast")
_MARK = re.compile(r"<([^<>]*)>")
# Blocks without words; and elements that refer to something: sign, key of the id, and key of the label.
_WITHOUT_WORDS = ("image", "actions", "divider", "input", "file", "button", "call")
_TARGETS = {
    "user": ("@", "user_id", ""), "usergroup": ("!", "usergroup_id", ""), "broadcast": ("!", "range", ""),
    "channel": ("#", "channel_id", ""), "link": ("", "url", "text"),
}  # fmt: skip
_IN_A_LINE = ("rich_text_section", "rich_text_quote", "rich_text_preformatted")
_BULKY = ("blocks", "attachments", "files")


class SlackExport(Importer):
    """Messages of channels and direct messages, under members' display names; ids are made of the conversation and the time."""

    name: ClassVar[str] = "slack"
    about: ClassVar[str] = (
        "a Slack export, as .zip or unpacked: a folder a channel with a JSON file a day, and users.json"
    )

    of_folders: ClassVar[bool] = True
    looks_ahead = True

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        # Members by the ids of their apps.
        self._members: dict[str, str] = {}
        self._conversations: dict[str, Mapping[str, Any]] = {}

    def recognises(self, source: Source) -> bool:
        # Other programs write a file a day too.
        return source.is_folder and any('"ts"' in Source(day, day.name).beginning for day in _days(source.path))

    def files(self, source: Source) -> Sequence[Source]:
        if not source.is_folder:
            raise ConfigError(Problem("is no export; name its .zip, or the folder with users.json", source.name))
        days = _days(source.path)
        if not days:
            raise ConfigError(
                Problem("has no day files such as general/2026-03-01.json; is it an export?", source.name)
            )
        root = source.path if any((source.path / name).is_file() for name in _MEMBERS) else days[0].parent.parent
        self._learn(root)
        return [Source(path, str(Path(source.name) / path.relative_to(source.path))) for path in days]

    def rows(self, file: Source, options: ReadOptions) -> Iterator[Found]:
        self.require_no_fields(options)
        folder = file.path.parent.name
        if not file.beginning.lstrip().startswith("["):
            return iter([Row(1, ValueError("is no list of messages; export it again"))])
        return each_record(records(file), lambda line, item: [self._found(line, item, folder)])

    def _learn(self, root: Path) -> None:
        for members in _MEMBERS:
            for member in _listed(root / members):
                profile = object_of(member.get("profile"))
                name = _name_of(profile) or _name_of(member)
                # What an app posts may say nothing but its number.
                bot = profile.get("bot_id")
                self._names |= {str(key): name for key in (member.get("id"), bot) if key}
                self._members |= {str(bot): str(member.get("id"))} if bot else {}
        for name, key in _LISTS.items():
            for item in _listed(root / name):
                self._conversations[str(item.get(key))] = item

    def _found(self, line: int, item: Mapping[str, Any], folder: str) -> Found:
        kind = item.get("subtype")
        if item.get("type", "message") != "message" or kind not in _SAID:
            return Skipped(line, str(kind or item.get("type"))[:40])
        when = _TS.fullmatch(str(item.get("ts")))
        if when is None:
            raise ValueError(f"ts {str(item.get('ts'))[:40]!r} is no Slack time such as 1355517523.000005")
        conversation = self._conversations.get(folder, {})
        seconds = timestamp(int(when[1]) + 0.0)
        moment = seconds.removesuffix("Z") + f".{when[2]:0<6}Z"
        user = str(item.get("user") or "")
        bulky = [key for key in _BULKY if key in item]
        beside = {key: value for key, value in item.items() if key not in ("type", "text", *bulky)}
        account, name = self._account(item)
        values = {
            **beside, **{key: item[key] for key in bulky},
            "id": f"slack:{self._place(folder)}:{item['ts']}", "agent_id": name, "speaker_id": f"Slack account: {account}",
            "text": self._text(item), "created_at": moment, "run_id": None, "channel": None, "recipient": None,
        }  # fmt: skip
        other = [str(member) for member in list_of(conversation.get("members")) if member != user]
        if len(other) == 1 and str(conversation.get("id")) == folder:
            values |= {"recipient": self._names.get(other[0], other[0]), "recipient_id": f"Slack account: {other[0]}"}
        else:
            values |= {"channel": folder, "place_id": f"Slack channel: {self._place(folder)}"}
        return spoken(line, values, "message without text")

    def _place(self, folder: str) -> str:
        return str(self._conversations.get(folder, {}).get("id") or folder)

    def _account(self, item: Mapping[str, Any]) -> tuple[str, str]:
        """Return the id and the name of who says something. An app may speak under a name of its choice for each message."""
        user, app, chosen = (item.get(key) for key in ("user", "bot_id", "username"))
        if isinstance(user, str) and user in self._names and not (item.get("subtype") == "bot_message" and chosen):
            return user, self._names[user]
        profiles = _name_of(item.get("user_profile")), _name_of(item.get("bot_profile"))
        shown = (chosen, *profiles, self._names.get(str(app)), user, app)
        name = next((name for name in shown if isinstance(name, str) and name), "unknown")
        return f"app {name}" if chosen else str(user or self._members.get(str(app), app)), name

    def _text(self, item: Mapping[str, Any]) -> str:
        """Return the words of a message. Of an app with blocks these are what people see, and its text is for notifications."""
        text = self._marked(item.get("text"))
        in_blocks = self._words(item.get("blocks"))
        if is_placeholder(text) or (item.get("bot_id") and _letters(in_blocks) != _letters(text)):
            text = in_blocks or text
        if not is_placeholder(text):
            return text
        return "\n".join(filter(None, map(self._attached, map(object_of, list_of(item.get("attachments"))))))

    def _attached(self, part: Mapping[str, Any]) -> str:
        said = [
            *map(self._marked, card_words(part, ("pretext", "title", "text"), "title")),
            self._words(part.get("blocks")),
        ]
        fallback = self._marked(part.get("fallback"))
        return "\n".join(filter(None, said)) or ("" if is_placeholder(fallback) else fallback)

    def _words(self, block: Any) -> str:
        """Return the words of a block or of an element in one; pictures, buttons and fields to fill in have none."""
        if isinstance(block, list):
            return "\n".join(filter(None, map(self._words, block)))
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind in _WITHOUT_WORDS:
            return ""
        if kind in _TARGETS:
            sign, key, label = _TARGETS[kind]
            return self._mark_of(f"{sign}{block.get(key)}", str(block.get(label) or ""))
        if kind == "emoji":
            return f":{block.get('name')}:"
        inner = block.get("elements", block.get("rows"))
        if isinstance(inner, list):
            return "".join(map(self._words, inner)) if kind in _IN_A_LINE else self._words(inner)
        text = block.get("text", block.get("fallback"))
        said = self._words(text) if isinstance(text, dict) else text if kind == "text" else self._marked(text)
        return "\n".join(filter(None, (str(said or ""), self._words(block.get("fields")))))

    def _marked(self, text: Any) -> str:
        return html.unescape(_MARK.sub(self._mark, text)) if isinstance(text, str) else ""

    def _mark(self, match: re.Match[str]) -> str:
        target, _, label = match[1].partition("|")
        return self._mark_of(target, label)

    def _mark_of(self, target: str, label: str) -> str:
        """Return what people see for a mention, a channel or a link."""
        if target.startswith("@"):
            return f"@{label or self._names.get(target[1:], target[1:])}"
        if target.startswith("#"):
            return f"#{label or target[1:]}"
        if target.startswith("!"):
            return label or f"@{target[1:].split('^')[0]}"
        return f"{label} ({target})" if label and label != target.removeprefix("mailto:") else label or target


def _days(folder: Path) -> list[Path]:
    """Return the day files of a channel's folder, or of the folders in one."""
    found = [path for depth in ("*.json", "*/*.json") for path in folder.glob(depth) if _DAY.fullmatch(path.name)]
    return sorted(path for path in found if path.is_file())


def _letters(text: str) -> str:
    """Return the letters of a text, to compare it with one that is formatted otherwise."""
    return re.sub(r"\W+|_", "", text)


def _listed(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.is_file():
        for line, item in records(Source(path, str(path))):
            if isinstance(item, ValueError):
                raise ConfigError(Problem(str(item), str(path), line))
            yield item


def _name_of(profile: Any) -> str:
    shown = (object_of(profile).get(key) for key in ("display_name", "real_name", "name", "id"))
    return next((name.strip() for name in shown if isinstance(name, str) and name.strip()), "")
