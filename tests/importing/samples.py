"""One conversation as each program exports it: Ann and Bob in #general, with what such exports hold besides."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.worlds import write_jsonl

TEXTS = (
    ("ann", "Good morning! Did the <tests> & the build pass?", "2026-03-01T09:00:00Z"),
    ("bob", "They did.\nAll 4,790 – first try ✨", "2026-03-01T09:01:05Z"),
    ("ann", "ok", "2026-03-01T09:02:00Z"),
    ("bob", "They did.\nAll 4,790 – first try ✨", "2026-03-01T09:03:30Z"),
    ("ann", "You said so \"before\" | <3", "2026-03-01T09:05:00Z"),
)  # fmt: skip


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return path


def own(folder: Path, count: int) -> Path:
    rows = [
        {"id": f"m{n}", "agent_id": who, "channel": "general", "text": text, "created_at": at}
        for n, (who, text, at) in enumerate(TEXTS[:count])
    ]
    return write_jsonl(folder / "own.jsonl", rows)


def openai(folder: Path, count: int) -> Path:
    said: list[dict[str, Any]] = [{"role": "system", "content": "You are Bob."}]
    for n, (who, text, at) in enumerate(TEXTS[:count]):
        role = "user" if who == "ann" else "assistant"
        content = [{"type": "text", "text": text}] if n % 2 else text
        said.append({"role": role, "name": who, "content": content, "timestamp": at})
        if n == 1:
            call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            said.append({"role": "assistant", "content": None, "tool_calls": [call]})
            said.append({"role": "tool", "tool_call_id": "c1", "content": "42"})
    return write_jsonl(folder / "chats.jsonl", [{"conversation_id": "general", "messages": said}])


def slack(folder: Path, count: int) -> Path:
    root = folder / "export"
    members = [
        {"id": "U1", "name": "ann.a", "profile": {"display_name": "ann", "real_name": "Ann A"}},
        {"id": "U2", "name": "bob.b", "is_bot": True, "profile": {"display_name": "", "real_name": "bob"}},
    ]
    joined = {"subtype": "channel_join", "user": "U1", "text": "<@U1> has joined", "ts": "1772352000.000100"}
    items: list[dict[str, Any]] = [{"type": "message", **joined}]
    for n, (who, text, at) in enumerate(TEXTS[:count]):
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        seconds = int(datetime.fromisoformat(at).timestamp())
        item = {"type": "message", "user": "U1" if who == "ann" else "U2", "text": escaped, "ts": f"{seconds}.000000"}
        if n == 2:
            item |= {"thread_ts": items[1]["ts"], "edited": {"user": "U1", "ts": f"{seconds + 9}.000000"}}
        items.append(item)
    write_json(root / "users.json", members)
    write_json(root / "channels.json", [{"id": "C1", "name": "general"}])
    write_json(root / "general" / "2026-03-01.json", items)
    return root


def langfuse(folder: Path, count: int) -> Path:
    """Traces of a session, the last first, as the page lists them; each repeats what was said before."""
    rows = []
    for n in range(0, count, 2):
        history = [_chat(who, text) for who, text, _ in TEXTS[: n + 1]]
        row: dict[str, Any] = {"id": f"t{n}", "name": "chat", "timestamp": TEXTS[n][2], "sessionId": "general"}
        row["input"] = {"messages": history}
        if n + 1 < count:
            observation = {"id": f"o{n}", "type": "GENERATION", "startTime": TEXTS[n][2], "endTime": TEXTS[n + 1][2]}
            row["output"] = _chat(*TEXTS[n + 1][:2])
            row["observations"] = [{**observation, "input": history, "output": {"x": 1}}]
        rows.append(row)
    return write_jsonl(folder / "traces.jsonl", reversed(rows))


def langsmith(folder: Path, count: int) -> Path:
    """Runs of a thread: chains around calls of a model, messages as LangChain writes them."""
    rows = []
    for n in range(0, count, 2):
        inputs = {"messages": [[_langchain(who, text) for who, text, _ in TEXTS[: n + 1]]]}
        run = {
            "id": f"r{n}", "trace_id": f"r{n}", "dotted_order": f"2026Z{n}", "run_type": "chain", "name": "chain",
            "start_time": TEXTS[n][2].replace("Z", ""), "inputs": inputs, "extra": {"metadata": {"thread_id": "general"}},
        }  # fmt: skip
        if n + 1 < count:
            outputs = {"messages": [_langchain(who, text) for who, text, _ in TEXTS[: n + 2]]}
            run |= {"end_time": TEXTS[n + 1][2], "outputs": outputs}
            rows.append({**run, "id": f"r{n}-llm", "parent_run_id": f"r{n}", "run_type": "llm", "outputs": {}})
        rows.append(run)
    return write_json(folder / "runs.json", {"runs": rows})


def sillytavern(folder: Path, count: int) -> Path:
    rows: list[dict[str, Any]] = [
        {"user_name": "unused", "character_name": "unused", "create_date": "2026-3-1@09h00m00s", "chat_metadata": {}}
    ]
    forms = (
        *("2026-03-01T09:00:00.000Z", "2026-3-1@09h01m05s", "March 1, 2026 9:02am"),
        *(1772355810000, "2026-3-1 @9h 5m 0s 0ms"),
    )
    for n, (who, text, _) in enumerate(TEXTS[:count]):
        said = {"name": who, "is_user": who == "ann", "is_system": False, "mes": text, "send_date": forms[n]}
        if n == 1:
            said |= {"swipe_id": 1, "swipes": ["No.", text], "extra": {"model": "m"}}
        rows.append(said)
        if n == 1:
            note = {"name": "SillyTavern System", "is_user": False, "is_system": True, "mes": "Welcome"}
            rows.append({**note, "send_date": forms[1]})
    return write_jsonl(folder / "general.jsonl", rows)


def otlp(folder: Path, count: int) -> Path:
    """Spans of the current conventions, a line each: Bob looks something up before he answers."""

    def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "parts": list(parts)}

    def words(text: str) -> dict[str, Any]:
        return {"type": "text", "content": text}

    def span(trace: int, number: int, heard: list[Any], answer: Any, times: tuple[str, str]) -> dict[str, Any]:
        given = {
            "gen_ai.operation.name": "chat", "gen_ai.agent.name": "bob", "gen_ai.conversation.id": "general", "user.id": "ann",
            "gen_ai.input.messages": json.dumps(heard), "gen_ai.output.messages": json.dumps([answer]),
        }  # fmt: skip
        start, end = (str(int(datetime.fromisoformat(time).timestamp()) * 10**9) for time in times)
        made = {
            "traceId": f"{trace + 1:032x}", "spanId": f"{number:016x}", "startTimeUnixNano": start, "endTimeUnixNano": end,
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in given.items()],
        }  # fmt: skip
        return {"resourceSpans": [{"scopeSpans": [{"spans": [made]}]}]}

    rows, history = [], [message("system", words("You are Bob."))]
    looked = message("assistant", {"type": "tool_call", "id": "c1", "name": "look", "arguments": {}})
    result = message("tool", {"type": "tool_call_response", "id": "c1", "response": "42"})
    for n in range(0, count, 2):
        history.append(message("user", words(TEXTS[n][1])))
        rows.append(span(n, 1, history, looked, (TEXTS[n][2], TEXTS[n][2])))
        if n + 1 < count:
            answer = message("assistant", words(TEXTS[n + 1][1]))
            rows.append(span(n, 2, [*history, looked, result], answer, (TEXTS[n][2], TEXTS[n + 1][2])))
            history.append(answer)
    return write_jsonl(folder / "spans.jsonl", rows)


def chatgpt(folder: Path, count: int) -> Path:
    """A conversation as a tree: a system prompt, thoughts, a call of a tool, and an answer beside which another one stands."""
    nodes: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": ["n-system"]}}
    last = "root"

    def add(key: str, role: str, name: str | None, parts: list[Any], at: str, **more: Any) -> None:
        nonlocal last
        content = {"content_type": more.pop("kind", "text"), "parts": parts}
        moment = datetime.fromisoformat(at).timestamp()
        author = {"role": role, "name": name}
        message = {"id": key, "author": author, "create_time": moment, "content": content, "recipient": "all", **more}
        nodes[key] = {"id": key, "message": message, "parent": last, "children": []}
        nodes[last]["children"] = [*nodes[last].get("children", []), key] if last != "root" else [key]
        last = key

    add("n-system", "system", None, [""], TEXTS[0][2])
    for n, (who, text, at) in enumerate(TEXTS[:count]):
        if who == "bob":
            add(f"t{n}", "assistant", None, ["Thinking"], at, kind="thoughts")
            add(f"c{n}", "assistant", None, ["search()"], at, recipient="web")
        add(f"n{n}", "user" if who == "ann" else "assistant", who, [text], at, metadata={"model_slug": "m"})
    whole = {"title": "A talk", "create_time": 1, "mapping": nodes, "current_node": last, "conversation_id": "general"}
    return write_json(folder / "conversations.json", [whole])


def claude(folder: Path, count: int) -> Path:
    said = [
        {
            "uuid": f"m{n}",
            "sender": "human" if who == "ann" else "assistant",
            "text": "" if n % 2 else text,
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}],
            "created_at": at,
        }
        for n, (who, text, at) in enumerate(TEXTS[:count])
    ]
    return write_json(folder / "claude.json", [{"uuid": "general", "name": "A talk", "chat_messages": said}])


def discord(folder: Path, count: int) -> Path:
    said: list[dict[str, Any]] = [
        {
            "id": str(n),
            "type": "Reply" if n else "Default",
            "timestamp": at.replace("Z", "+00:00"),
            "content": text,
            "author": {"id": f"u-{who}", "name": f"{who}123", "nickname": who, "isBot": who == "bob"},
        }
        for n, (who, text, at) in enumerate(TEXTS[:count])
    ]
    said.insert(1, {"id": "j", "type": "GuildMemberJoin", "timestamp": TEXTS[0][2], "content": "Joined", "author": {}})
    place = {"guild": {"id": "1"}, "channel": {"id": "2", "name": "general"}}
    return write_json(folder / "discord.json", {**place, "exportedAt": TEXTS[0][2], "messages": said})


SAMPLES: dict[str, Callable[[Path, int], Path]] = {
    "messages": own,
    "openai": openai,
    "chatgpt": chatgpt,
    "claude": claude,
    "discord": discord,
    "slack": slack,
    "langfuse": langfuse,
    "langsmith": langsmith,
    "sillytavern": sillytavern,
    "otlp": otlp,
}


def _chat(who: str, text: str) -> dict[str, Any]:
    return {"role": "user" if who == "ann" else "assistant", "name": who, "content": text}


def _langchain(who: str, text: str) -> dict[str, Any]:
    kind = "HumanMessage" if who == "ann" else "AIMessageChunk"
    path = ["langchain", "schema", "messages", kind]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": text, "name": who}}
