"""A Slack export: a folder a channel with a JSON file a day, and who the members are."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from persona_pipeline.base.documents.json import JsonError, strict_array
from persona_pipeline.base.errors import ConfigError, Problem
from persona_pipeline.importing.base import Found, Importer, ReadOptions, Skipped, Source, message_row, timestamp
from persona_pipeline.importing.records import records
from persona_pipeline.world.messages.files import Row

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
_TS = re.compile(r"(\d{1,11})\.(\d{1,6})")
_MEMBERS = ("users.json", "org_users.json")
# Lists of conversations, by what a conversation's folder is named after.
_LISTS = {"channels.json": "name", "groups.json": "name", "mpims.json": "name", "dms.json": "id"}
_SAID = (None, "bot_message", "me_message", "thread_broadcast", "file_share", "file_comment", "reply_broadcast")
_MARK = re.compile(r"<([^<>]*)>")
_BULKY = ("blocks", "attachments", "files")


class SlackExport(Importer):
    """Messages of channels and direct messages, under members' display names; ids are made of the conversation and the time."""

    name: ClassVar[str] = "slack"
    about: ClassVar[str] = (
        "a Slack export, as .zip or unpacked: a folder a channel with a JSON file a day, and users.json"
    )

    of_folders: ClassVar[bool] = True

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._conversations: dict[str, Mapping[str, Any]] = {}

    def recognises(self, source: Source) -> bool:
        return source.is_folder and bool(_days(source.path))

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
        folder, line = file.path.parent.name, 1
        try:
            for line, item in strict_array(file.text()):
                yield self._found(line, item, folder)
        except JsonError as error:
            yield Row(max(line, error.lineno), ValueError(f"is not JSON ({error.msg}); what follows is not read"))

    def _learn(self, root: Path) -> None:
        for members in _MEMBERS:
            for member in _listed(root / members):
                profile = member.get("profile")
                name = _name_of(profile) or _name_of(member)
                # What an app posts may say nothing but its number.
                bot = profile.get("bot_id") if isinstance(profile, dict) else None
                self._names |= {str(key): name for key in (member.get("id"), bot) if key}
        for name, key in _LISTS.items():
            for item in _listed(root / name):
                self._conversations[str(item.get(key))] = item

    def _found(self, line: int, item: Any, folder: str) -> Found:
        if not isinstance(item, dict):
            return Row(line, ValueError("is not an object; export it again"))
        kind = item.get("subtype")
        if item.get("type", "message") != "message" or kind not in _SAID:
            return Skipped(line, str(kind or item.get("type"))[:40])
        text = self._text(item)
        if not text.strip():
            return Skipped(line, "message without text")
        when = _TS.fullmatch(str(item.get("ts")))
        if when is None:
            return Row(line, ValueError(f"ts {str(item.get('ts'))[:40]!r} is no Slack time such as 1355517523.000005"))
        conversation = self._conversations.get(folder, {})
        seconds = timestamp(int(when[1]) + 0.0)
        moment = seconds.removesuffix("Z") + f".{when[2]:0<6}Z"
        user = str(item.get("user") or "")
        bulky = [key for key in _BULKY if key in item]
        beside = {key: value for key, value in item.items() if key not in ("type", "text", *bulky)}
        values = {
            **beside, **{key: item[key] for key in bulky},
            "id": f"slack:{conversation.get('id') or folder}:{item['ts']}", "agent_id": self._speaker(item),
            "text": text, "created_at": moment, "run_id": None, "channel": None, "recipient": None,
        }  # fmt: skip
        members = conversation.get("members")
        other = [str(member) for member in members if member != user] if isinstance(members, list) else []
        if len(other) == 1 and str(conversation.get("id")) == folder:
            values["recipient"] = self._names.get(other[0], other[0])
        else:
            values["channel"] = folder
        return message_row(line, values)

    def _speaker(self, item: Mapping[str, Any]) -> str:
        user, profile = item.get("user"), item.get("user_profile")
        if isinstance(user, str) and user in self._names:
            return self._names[user]
        bot = item.get("bot_profile")
        shown = (
            item.get("username"),
            _name_of(profile),
            _name_of(bot),
            self._names.get(str(item.get("bot_id"))),
            user,
            item.get("bot_id"),
        )
        return next((name for name in shown if isinstance(name, str) and name), "unknown")

    def _text(self, item: Mapping[str, Any]) -> str:
        text = item.get("text")
        if not (isinstance(text, str) and text.strip()):
            # What apps post often stands in attachments alone.
            listed = item.get("attachments")
            parts = [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else []
            said = (part.get("text") or part.get("fallback") for part in parts)
            text = "\n".join(part for part in said if isinstance(part, str))
        return html.unescape(_MARK.sub(self._mark, text))

    def _mark(self, match: re.Match[str]) -> str:
        """Return what people see for a mention, a channel or a link."""
        target, _, label = match[1].partition("|")
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


def _listed(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.is_file():
        for line, item in records(Source(path, str(path))):
            if isinstance(item, ValueError):
                raise ConfigError(Problem(str(item), str(path), line))
            yield item


def _name_of(profile: Any) -> str:
    if not isinstance(profile, dict):
        return ""
    shown = (profile.get(key) for key in ("display_name", "real_name", "name", "id"))
    return next((name.strip() for name in shown if isinstance(name, str) and name.strip()), "")
