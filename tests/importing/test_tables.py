"""Tables of other programs: however one export is spelt, the same messages are read, or the file is refused by name."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.importing import ReadOptions, Skipped, Source
from persona_pipeline.importing.run import importer_of
from persona_pipeline.importing.tables import UnclearTableError
from persona_pipeline.importing.times import Times
from persona_pipeline.world.models import Message

# Ticket, author, side, time, text.
SAID = (
    ("T-1", "Jörg Müller", "customer", datetime(2026, 3, 14, 9, 0, tzinfo=UTC), 'Où est mon colis ? "Nr. 7", bitte'),
    ("T-1", "Otto", "agent", datetime(2026, 3, 14, 9, 0, tzinfo=UTC), "It left today;\nit comes on Monday."),
    ("T-2", "Zoë", "customer", datetime(2026, 3, 2, 23, 59, tzinfo=UTC), "¿Y el mío?\tGracias"),
    ("T-2", "Otto", "agent", datetime(2026, 4, 5, 0, 5, tzinfo=UTC), "It is here."),
)
# What a helpdesk calls ticket, author, type, time and text, and customer and agent.
HEADERS = {
    "en": ("Ticket ID", "Author", "Type", "Created at", "Message", "customer", "agent"),
    "de": ("Ticketnummer", "Absender", "Typ", "Erstellt am", "Nachricht", "Kunde", "Mitarbeiter"),
    "fr": ("Numéro de ticket", "Auteur", "Type", "Date de création", "Message", "Client", "Conseiller"),
    "es": ("ID de conversación", "Remitente", "Tipo", "Fecha", "Mensaje", "Cliente", "Agente"),
    "pt": ("Número do ticket", "Remetente", "Tipo", "Data de criação", "Mensagem", "Cliente", "Atendente"),
    "it": ("Numero ticket", "Mittente", "Ruolo", "Data e ora", "Messaggio", "Cliente", "Operatore"),
}
DATES: dict[str, Callable[[datetime], str]] = {
    "iso": lambda moment: moment.isoformat(),
    "iso without zone": lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}",
    "another zone": lambda moment: (moment + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S+02:00"),
    "day first": lambda moment: f"{moment:%d/%m/%Y %H:%M}",
    "month first": lambda moment: f"{moment:%m/%d/%Y %I:%M %p}",
    "dots": lambda moment: f"{moment:%d.%m.%Y, %H:%M:%S}",
    "named month": lambda moment: f"{moment:%b %d, %Y, %I:%M %p}",
    "serial": lambda moment: repr((moment - datetime(1899, 12, 30, tzinfo=UTC)) / timedelta(days=1)),
    "seconds": lambda moment: str(int(moment.timestamp())),
}
ENCODINGS = ("utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


def spelt(
    said: Sequence[tuple[str, str, str, datetime, str]],
    *,
    language: str = "en",
    delimiter: str = ",",
    encoding: str = "utf-8",
    date: str = "iso",
    newline: str = "\r\n",
    order: Sequence[int] = range(5),
) -> bytes:
    """Return one export as a program writes it."""
    *names, customer, agent = HEADERS[language]
    side = {"customer": customer, "agent": agent}
    rows = [[ticket, author, side[role], DATES[date](at), text] for ticket, author, role, at, text in said]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=newline)
    writer.writerows([row[place] for place in order] for row in [names, *rows])
    return text.getvalue().encode(encoding)


def messages_of(folder: Path, data: bytes, name: str = "export.csv", **reading: Any) -> list[Message]:
    path = folder / name
    path.write_bytes(data)
    source = Source(path, name)
    found = list(importer_of(source).rows(source, ReadOptions(**reading)))
    assert [item for item in found if not isinstance(getattr(item, "found", None), Message)] == []
    return [item.found for item in found]  # pyright: ignore[reportAttributeAccessIssue]


def seen(messages: Sequence[Message]) -> list[tuple[Any, ...]]:
    return [(m.id, m.channel, m.agent_id, m.extras["role"], m.text, m.created_at) for m in messages]


NINE = {
    "comma": {},
    "semicolon": {"delimiter": ";", "language": "de", "date": "dots"},
    "Excel's Unicode text": {"delimiter": "\t", "encoding": "utf-16", "date": "month first"},
    "a mark": {"encoding": "utf-8-sig", "language": "fr", "delimiter": ";", "date": "day first"},
    "Windows": {"encoding": "cp1252", "language": "es", "delimiter": ";", "date": "day first"},
    "no mark": {"encoding": "utf-16-le", "language": "it", "date": "iso without zone"},
    "big end": {"encoding": "utf-16-be", "language": "pt", "date": "another zone"},
    "serial": {"delimiter": "\t", "date": "serial", "newline": "\n"},
    "seconds": {"date": "seconds", "newline": "\n", "order": (4, 3, 2, 1, 0)},
}


@pytest.mark.parametrize("spelling", NINE.values(), ids=list(NINE))
def test_nine_spellings_of_one_export_are_the_same_messages(tmp_path: Path, spelling: dict[str, Any]) -> None:
    found = messages_of(tmp_path, spelt(SAID, **spelling))
    assert seen(found) == seen(messages_of(tmp_path, spelt(SAID)))
    sides = {"customer": "user", "agent": "assistant"}
    expected = [(ticket, who, sides[side], text) for ticket, who, side, _, text in SAID]
    assert [(m.channel, m.agent_id, m.extras["role"], m.text) for m in found] == expected
    assert found[0].created_at < found[1].created_at, "what was said in the same minute keeps its order"


@given(
    language=st.sampled_from([*HEADERS]),
    delimiter=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(ENCODINGS),
    date=st.sampled_from([*DATES]),
    newline=st.sampled_from(["\n", "\r\n"]),
    order=st.permutations(range(5)),
    texts=st.lists(st.text("aé ;,\t\"'\n|{[ß=9", min_size=1).filter(str.strip), min_size=1, max_size=6),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spelling_changes_no_message(tmp_path: Path, texts: list[str], **spelling: Any) -> None:
    said = [*SAID, *((f"T-{n}", "Zoë", "customer", SAID[0][3], text) for n, text in enumerate(texts))]
    assert seen(messages_of(tmp_path, spelt(said, **spelling))) == seen(messages_of(tmp_path, spelt(said)))


def test_rows_newest_first_are_the_same_conversation(tmp_path: Path) -> None:
    found = messages_of(tmp_path, spelt(SAID[::-1]))
    order = sorted(found, key=lambda message: (message.channel, message.created_at))
    assert [message.text for message in order] == [text for *_, text in SAID]


# What products export, as their public pages describe it: read, or refused by name.
def product(header: str, *rows: str) -> bytes:
    return "\n".join([header, *rows]).encode()


def seconds(at: int) -> dict[str, Any]:
    return {"created_at": 1773478800 + at}


def iso(at: int, key: str = "created_at") -> dict[str, Any]:
    return {key: f"2026-03-14T09:00:{at:02}Z"}


AT, NEXT, LAST = "2026-03-14T09:00:00Z", "2026-03-14T09:00:01Z", "2026-03-14T09:00:02Z"
ZOE, OTTO = {"id": 1, "name": "Zoë", "email": "z@x"}, {"id": 2, "name": "Otto", "email": "o@x"}
ASKED, NOTED, SAID_SO = "Where is it?", "She is angry", "It left."
BY_NAME = [("7", "Zoë", ASKED), ("7", "Otto", SAID_SO)]
BY_ID = [("7", "1", ASKED), ("7", "2", SAID_SO)]
BY_EMAIL = [("7", "z@x", ASKED), ("7", "o@x", SAID_SO)]
PRODUCTS: dict[str, tuple[str, bytes, list[tuple[str, str, str]] | str]] = {
    "Zendesk, tickets": (
        "tickets.csv",
        product("Id,Subject,Status,Requester,Assignee,Created at", "7,Parcel,open,Zoë,Otto,2026-03-14 09:00"),
        "has the speaker, the text;",
    ),
    "Zendesk, comments": (
        "comments.csv",
        product(
            "ticket_id,id,author_id,author_name,author_role,body,html_body,public,created_at",
            f"7,71,1,Zoë,end-user,{ASKED},<p>{ASKED}</p>,true,{AT}",
            f"7,72,2,Otto,agent,{NOTED},<p>{NOTED}</p>,false,{NEXT}",
            f"7,73,2,Otto,agent,{SAID_SO},<p>{SAID_SO}</p>,true,{LAST}",
        ),
        BY_NAME,
    ),
    "Freshdesk, tickets": (
        "tickets.csv",
        product("Ticket ID,Subject,Status,Priority,Agent,Created time,Full name", "7,Parcel,Open,Low,Otto,2026-03-14 09:00:00,Zoë"),
        "it is unclear which column has the text",
    ),
    "Front": (
        "messages.csv",
        product(
            "Message date,Message ID,Conversation ID,Direction,Inbox,Author,Contact name,From,To,Subject,Extract",
            f"2026-03-14 09:00:00,m1,7,Inbound,Help,,Zoë,z@x,help@x,Parcel,{ASKED}",
        ),
        "it is unclear which column has the text",
    ),
    "HubSpot, tickets": (
        "tickets.csv",
        product("Ticket ID,Ticket name,Ticket description,Create date,Ticket owner", "7,Parcel,Where?,2026-03-14 09:00,Otto"),
        "it is unclear which column has the speaker, the text, the time",
    ),
    "Gorgias": (
        "messages.csv",
        product(
            "Ticket ID,Message ID,Channel,Via,From agent,Sender name,Receiver name,Body text,Created datetime,Sent datetime",
            f"7,1,email,email,false,Zoë,Otto,{ASKED},{AT},{AT}",
            f"7,2,email,email,true,Otto,Zoë,{SAID_SO},{LAST},{LAST}",
        ),
        BY_NAME,
    ),
    "Salesforce, e-mails": (
        "EmailMessage.csv",
        product(
            "Id,ParentId,TextBody,HtmlBody,FromName,FromAddress,ToAddress,Incoming,Status,MessageDate",
            f"02s1,7,{ASKED},<p>{ASKED}</p>,Zoë,z@x,help@x,true,0,{AT}",
            f"02s2,8,{SAID_SO},<p>{SAID_SO}</p>,Otto,help@x,y@x,false,3,{LAST}",
        ),
        [("7", "Zoë", ASKED), ("8", "Otto", SAID_SO)],
    ),
    "Salesforce, comments": (
        "CaseComment.csv",
        product(
            "Id,ParentId,IsPublished,CommentBody,CreatedById,CreatedDate",
            f"00a1,7,1,{ASKED},1,{AT}", f"00a2,7,0,{NOTED},2,{NEXT}", f"00a3,7,1,{SAID_SO},2,{LAST}",
        ),
        BY_ID,
    ),
    "LiveChat, chats": (
        "chats.csv",
        product("conversationId,chat start date Europe/London,visitor nick,operator 1 nick,last rate",
                "7,2026-03-14 09:00,Zoë,Otto,good"),
        "it is unclear which column has the speaker, the text, the time",
    ),
    "Tidio, contacts": (
        "contacts.csv", product("ID,First name,Email,Created at", "1,Zoë,z@x,2026-03-14 09:00"), "has the speaker, the text;",
    ),
    "a column each": (
        "7.csv",
        product("Date,Time,Visitor,Operator,Message", f"14/03/2026,09:00,Zoë,,{ASKED}", f"14/03/2026,09:01,,Otto,{SAID_SO}"),
        BY_NAME,
    ),
    "one column of names": ("7.csv", product("Customer,Message,Created at", f"Zoë,<p>{ASKED}</p>,{AT}"), BY_NAME[:1]),
    "a tree of comments": (
        "7.csv",
        product("id,parent_id,author,text,created_at", f"1,,Zoë,{ASKED},{AT}", f"2,1,Otto,{SAID_SO},{LAST}"),
        BY_NAME,
    ),
    "Discord": (
        "general.csv",
        product("AuthorID,Author,Date,Content,Attachments,Reactions",
                f'"1","Zoë","{AT}","{ASKED}","",""', f'"2","Otto","{LAST}","{SAID_SO}","",""'),
        [("general", "Zoë", ASKED), ("general", "Otto", SAID_SO)],
    ),
    "Replika": (
        "chat.csv",
        product("Timestamp,From,Text,Reaction,ID",
                f"2026-03-14 09:00:00,Me,{ASKED},,a1", f"2026-03-14 09:01:00,Rep,{SAID_SO},Upvote,a2"),
        [("chat", "Me", ASKED), ("chat", "Rep", SAID_SO)],
    ),
    "WhatsApp, Android": (
        "7.txt",
        product(
            "14/03/2026, 08:59 - Messages and calls are end-to-end encrypted.",
            '14/03/2026, 09:00 - Zoë called it "a: b"', f"14/03/2026, 09:00 - Zoë: {ASKED}",
            "Second: line", "14/03/2026, 09:01 - Otto: <Media omitted>", f"14/03/2026, 09:02 - Otto: {SAID_SO}",
        ),
        [("7", "Zoë", f"{ASKED}\nSecond: line"), ("7", "Otto", SAID_SO)],
    ),
    "WhatsApp, iOS": (
        "7.zip/_chat.txt",
        product(
            "\u200e[3/14/26, 8:59:00\u202fAM] Otto: \u200eMessages and calls are end-to-end encrypted.",
            f"[3/14/26, 9:00:00\u202fAM] Zoë: {ASKED}", f"[3/14/26, 9:01:00\u202fAM] Otto: {SAID_SO}",
        ),
        BY_NAME,
    ),
    "WhatsApp, either order": ("7.txt", product(f"3/4/26, 09:00 - Zoë: {ASKED}"), "may begin with the day or with the month"),
    "prose": ("notes.txt", b"Hello, world\nthis is prose, with commas\n", "it is unclear"),
}  # fmt: skip
# What their APIs answer: refused with keys to map, by which it is read.
ANSWERS: dict[str, tuple[Any, list[tuple[str, str, str]] | str]] = {
    "Zendesk": (
        {"id": 7, "comments": [
            {"id": 71, "type": "Comment", "author_id": 1, "plain_body": ASKED, "public": True, **iso(0)},
            {"id": 72, "type": "Comment", "author_id": 2, "plain_body": NOTED, "public": False, **iso(1)},
            {"id": 73, "type": "Comment", "author_id": 2, "plain_body": SAID_SO, "public": True, **iso(2)},
        ]}, BY_ID,
    ),
    "Intercom": (
        {"type": "conversation", "id": "7", **seconds(0),
         "source": {"id": "s", "body": f"<p>{ASKED}</p>", "author": {**ZOE, "type": "user"}},
         "conversation_parts": {"conversation_parts": [
            {"id": "2", "part_type": "note", "body": NOTED, "author": {**OTTO, "type": "admin"}, **seconds(1)},
            {"id": "3", "part_type": "comment", "body": f"<p>{SAID_SO}</p>", "author": {**OTTO, "type": "bot"}, **seconds(2)},
            {"id": "4", "part_type": "close", "body": None, "author": {**OTTO, "type": "admin"}, **seconds(3)},
        ]}}, BY_NAME,
    ),
    "Freshdesk": (
        [{"id": n, "ticket_id": 7, "body_text": text, "incoming": n == 1, "private": n == 2,
          "user_id": n, "from_email": email, **iso(n)}
         for n, text, email in ((1, ASKED, "z@x"), (2, NOTED, "o@x"), (3, SAID_SO, "o@x"))], BY_EMAIL,
    ),
    "Front": (
        {"_results": [
            {"id": "m1", "type": "email", "is_inbound": True, "author": None, "text": ASKED, "recipients": [], **seconds(0)},
            {"id": "m2", "type": "email", "is_inbound": False, "author": OTTO, "text": SAID_SO, "recipients": [], **seconds(2)},
        ]}, [("file", "customer", ASKED), ("file", "Otto", SAID_SO)],
    ),
    "Help Scout": (
        {"id": 7, "_embedded": {"threads": [
            {"id": n, "type": kind, "body": text,
             "createdBy": {"id": who, "type": side, "first": "-", "email": email}, **iso(n, "createdAt")}
            for n, kind, text, who, side, email in (
                (1, "customer", ASKED, 1, "customer", "z@x"), (2, "note", NOTED, 2, "user", "o@x"),
                (3, "lineitem", None, 2, "user", "o@x"), (4, "message", SAID_SO, 2, "user", "o@x"))
        ]}}, BY_EMAIL,
    ),
    "Gorgias": (
        {"data": [
            {"id": 1, "ticket_id": 7, "from_agent": False, "public": True, "sender": ZOE,
             "body_text": ASKED, **iso(0, "sent_datetime")},
            {"id": 2, "ticket_id": 7, "from_agent": True, "public": False, "sender": OTTO,
             "body_text": NOTED, **iso(1, "sent_datetime")},
            {"id": 3, "ticket_id": 7, "from_agent": True, "public": True, "sender": OTTO,
             "body_text": SAID_SO, **iso(2, "sent_datetime")},
        ]}, BY_NAME,
    ),
    "HubSpot": (
        {"results": [
            {"id": str(n), "type": kind, "conversationsThreadId": "7", "createdBy": who, "text": text,
             **side, **iso(n, "createdAt")}
            for n, kind, who, text, side in (
                (1, "MESSAGE", "1", ASKED, {"direction": "INCOMING"}), (2, "COMMENT", "2", NOTED, {}),
                (3, "THREAD_STATUS_CHANGE", "S", None, {}), (4, "MESSAGE", "2", SAID_SO, {"direction": "OUTGOING"}))
        ]}, BY_ID,
    ),
    "Crisp": (
        {"data": [
            {"session_id": "7", "type": kind, "from": side, "content": text, "timestamp": 1773478800000 + n,
             "user": {"nickname": "-"}}
            for n, kind, side, text in (
                (1, "text", "user", ASKED), (2, "note", "operator", NOTED),
                (3, "file", "user", {"url": "u"}), (4, "text", "operator", SAID_SO))
        ]}, [("7", "customer", ASKED), ("7", "agent", SAID_SO)],
    ),
    "Drift": (
        {"data": {"messages": [
            {"id": n, "conversationId": 7, "author": {"id": who, "type": side}, "type": kind, "body": text,
             "createdAt": 1773478800000 + n}
            for n, who, side, kind, text in (
                (1, 1, "contact", "chat", ASKED), (2, 2, "user", "private_note", NOTED), (3, 2, "user", "chat", SAID_SO))
        ]}}, BY_ID,
    ),
    "LiveChat": (
        {"chats": [{"id": "K", "users": [ZOE, OTTO], "thread": {"id": "7", "events": [
            {"id": n, "type": kind, "text": text, "author_id": who, "visibility": seen, **iso(n)}
            for n, kind, text, who, seen in (
                (1, "message", ASKED, "1", "all"), (2, "system_message", "Archived", "", "all"),
                (3, "message", NOTED, "2", "agents"), (4, "message", SAID_SO, "2", "all"))
        ]}}]}, BY_ID,
    ),
    "Telegram": (
        {"chats": {"list": [{"name": "Otto", "id": 7, "messages": [
            {"id": 1, "type": "service", "date": AT, "actor": "Zoë", "action": "phone_call", "text": ""},
            {"id": 2, "type": "message", "date": NEXT, "from": "Zoë", "from_id": "user1", "text": ASKED},
            {"id": 3, "type": "message", "date": LAST, "from": "Otto", "from_id": "user2",
             "text": ["It ", {"type": "bold", "text": "left"}, "."]},
        ]}]}}, BY_NAME,
    ),
    "LibreChat": (
        {"conversationId": "7", "title": "New Chat", "messages": [
            {"messageId": "1", "sender": "Zoë", "isCreatedByUser": True, "text": ASKED, **iso(0, "createdAt")},
            {"messageId": "2", "sender": "Otto", "isCreatedByUser": False, "text": SAID_SO, **iso(1, "createdAt")},
        ]}, BY_NAME,
    ),
    "Teams": (
        {"value": [{"id": "1", "messageType": "message", "createdDateTime": AT, "from": {"user": ZOE},
                    "body": {"content": ASKED}}]},
        "its lists of objects are value (1)",
    ),
    "character.ai": (
        {"turns": [{"turn_key": {"chat_id": "7"}, "create_time": AT, "author": {"name": "Zoë"},
                    "candidates": [{"raw_content": ASKED}]}]},
        "its lists of objects are turns (1), turns.candidates (1)",
    ),
}  # fmt: skip


def outcome_of(folder: Path, name: str, data: bytes, **reading: Any) -> list[Message]:
    (path := folder / name).parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    source = Source(path, name)
    importer, options = importer_of(source, mapped=bool(reading)), ReadOptions(**reading)
    importer.require_clear(source, options)
    found = [item for item in importer.rows(source, options) if not isinstance(item, Skipped)]
    assert [item for item in found if not isinstance(item.found, Message)] == []
    return [item.found for item in found if isinstance(item.found, Message)]


def told(messages: Sequence[Message]) -> list[tuple[str | None, str, str]]:
    sides = [message.extras["role"] for message in messages if "role" in message.extras]
    assert sides in ([], ["user"], ["user", "assistant"])
    return [(message.channel, message.agent_id, message.text) for message in messages]


@pytest.mark.parametrize(("name", "data", "outcome"), PRODUCTS.values(), ids=list(PRODUCTS))
def test_an_export_of_a_product_is_read_or_refused_by_name(
    tmp_path: Path, name: str, data: bytes, outcome: list[tuple[str, str, str]] | str
) -> None:
    if isinstance(outcome, str):
        with pytest.raises(ConfigError) as error:
            outcome_of(tmp_path, name, data)
        assert outcome in str(error.value)
    else:
        assert told(outcome_of(tmp_path, name, data)) == outcome


@pytest.mark.parametrize(("value", "outcome"), ANSWERS.values(), ids=list(ANSWERS))
def test_an_answer_of_an_api_is_read_by_the_keys_that_its_refusal_advises(
    tmp_path: Path, value: Any, outcome: list[tuple[str, str, str]] | str
) -> None:
    data = json.dumps(value).encode()
    with pytest.raises(ConfigError) as error:
        outcome_of(tmp_path, "file.json", data)
    fields = dict(item.split("=") for item in re.findall(r"--map '([^' ]+=[a-z_]+)'", str(error.value)))
    if isinstance(outcome, str):
        assert outcome in str(error.value)
    else:
        assert told(outcome_of(tmp_path, "file.json", data, fields=fields)) == outcome


def test_a_chat_in_one_cell_is_refused_and_a_plan_is_not(tmp_path: Path) -> None:
    data = product(
        "CaseId,Name,Body,CreatedDate",
        f'7,Zoë,"<p>Chat Started: Monday</p>( 2s ) Zoë: Hi<br>( 1m 4s ) Otto: Ho<br>",{AT}',
    )
    with pytest.raises(AssertionError, match="whole chat in one text"):
        outcome_of(tmp_path, "LiveChatTranscript.csv", data)
    plan = "10:00 Breakfast: eggs\n11:00 Museum: art\n1. Name: x\n2. Date: y\n(1) Step: one\n(2) Step: two"
    (one,) = outcome_of(tmp_path, "plan.csv", product("Author,Body,CreatedDate", f'Otto,"{plan}",{AT}'))
    assert one.text == plan


def table(*rows: str) -> bytes:
    return "\n".join(["ticket,author,message,date", *rows]).encode()


REFUSED = {
    "either order": (
        table("1,ann,hi,03/04/2026", "1,bob,ho,05/04/2026"),
        "'03/04/2026' may begin with the day or with the month",
    ),
    "two orders": (table("1,ann,hi,13/04/2026", "1,bob,ho,04/13/2026"), "write all one way"),
    "Cyrillic": ("ticket,author,message,date\n1,Аня,Привет,2026-03-01\n".encode("cp1251"), "is not UTF-8"),
    "damaged UTF-8": (table("1,ann,grüße aus köln,2026-03-01\n") + b"1,bob,\xff,2026-03-01\n", "is not UTF-8 (byte"),
    "Mac Roman": ("ticket,author,message,date\n1,ann,schön,2026-03-01\n".encode("mac-roman"), "is not UTF-8"),
    "nothing in the texts": (
        table("1,ann,,2026-03-01", "1,bob,,2026-03-02"),
        "the column message is empty in every row",
    ),
    "two texts": (
        b"ticket,author,message,message,date\n1,ann,a,b,2026-03-01\n",
        "it is unclear which column has the text",
    ),
}


@pytest.mark.parametrize(("data", "says"), REFUSED.values(), ids=list(REFUSED))
def test_what_can_be_read_in_two_ways_is_not_read(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        messages_of(tmp_path, data)
    assert says in str(error.value)


def test_the_order_of_dates_is_said_with_the_column(tmp_path: Path) -> None:
    for order, day in (("day-first", "2026-04-03"), ("month-first", "2026-03-04")):
        found = messages_of(tmp_path, table("1,ann,hi,03/04/2026"), fields={"date": f"created_at:{order}"})
        assert f"{found[0].created_at:%Y-%m-%d}" == day


ODD_ROWS = {
    "a rounded id": ("1.23457E+11,ann,hi,2026-03-01", "is an id that a spreadsheet has rounded"),
    "no author": ("1,,hi,2026-03-01", "agent_id is missing"),
    "no time": ("1,ann,hi,", "created_at is missing"),
    "no date": ("1,ann,hi,soon", "date 'soon' is not a time"),
    "a zone of two places": ("1,ann,hi,2026-03-01 10:00 IST", "the time zone IST may be several"),
    "a cell too many": ("1,ann,hi,2026-03-01,more", "has more cells than the header"),
    "half a row": ("1,ann", "turn without text"),
    "a placeholder": ("1,ann,<Media omitted>,2026-03-01", "turn without text"),
}


@pytest.mark.parametrize(("row", "says"), ODD_ROWS.values(), ids=list(ODD_ROWS))
def test_a_row_that_cannot_be_read_is_named_and_stops_no_other(tmp_path: Path, row: str, says: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(table("1,ann,hello,2026-03-01", "", ",,,", row))
    source = Source(path, "x.csv")
    one, odd = sorted(importer_of(source).rows(source, ReadOptions()), key=lambda found: found.line)
    assert isinstance(getattr(one, "found", None), Message)
    assert (odd.line, says in str(getattr(odd, "reason", getattr(odd, "found", "")))) == (5, True)


def test_questions_beside_their_answers_are_two_messages_also_newest_first(tmp_path: Path) -> None:
    data = b"id,session,question,answer,timestamp\n8,s,When?,,2026-03-01T09:01:00Z\n7,s,Where?,<p>Here.</p>,2026-03-01T09:00:00Z\n"
    found = messages_of(tmp_path, data)
    assert found == sorted(found, key=lambda message: message.created_at)
    said = [(m.id, m.agent_id, m.extras["role"], m.text) for m in found]
    assert said == [
        ("s:7", "customer", "user", "Where?"),
        ("s:7:reply", "agent", "assistant", "Here."),
        ("s:8", "customer", "user", "When?"),
    ]


@pytest.mark.parametrize(
    ("header", "hour"),
    [("date (Europe/Berlin)", 8), ("date [UTC-05:00]", 14), ("date (local)", None), ("date (UTC)", 9)],
)
def test_a_zone_in_the_header_holds_for_the_column(tmp_path: Path, header: str, hour: int | None) -> None:
    data = f"ticket,author,message,{header}\n1,ann,hi,2026-03-01 09:00\n".encode()
    if hour is None:
        with pytest.raises(UnclearTableError, match="has the time"):
            messages_of(tmp_path, data)
        return
    assert messages_of(tmp_path, data)[0].created_at.hour == hour


TIMES = {
    "5. März 2026 um 10:05 Uhr": "10:05", "5 févr. 2026 à 10h05": None, "5 de março de 2026 às 10:05": "10:05",
    "Thu Mar 05 2026 10:05:00 GMT+0100 (CET)": "09:05", "2026/3/5 10:05:07 PM": "22:05", "05-Mar-26 10:05": "10:05",
    "20260305T100500Z": "10:05", "2026-03-05 10:05 PST": "18:05", "Mar 5, 2026, 10:05\u202fAM": "10:05",
}  # fmt: skip
NO_TIMES = ["10:05", "March 2026", "12", "soon", "26-03-05", "2026-03-05 10:05 IST", "31.02.2026"]


def test_a_time_is_read_in_six_languages_and_half_a_time_is_none() -> None:
    for text, clock in TIMES.items():
        moment = Times.of([text]).read(text)
        assert f"{moment:%Y-%m %H:%M}" == (f"2026-03 {clock}" if clock else "2026-02 10:05"), text
    for text in NO_TIMES:
        with pytest.raises(ValueError, match="is not a time that can be read"):
            Times("day-first").read(text)


def test_a_chat_in_geminis_form_is_read_as_one_of_openais(tmp_path: Path) -> None:
    turns = [("user", [{"text": "Where?"}]), ("model", [{"text": "Hm.", "thought": True}, {"text": "Here."}])]
    chat = {"created": 1773478800, "contents": [{"role": role, "parts": parts} for role, parts in turns]}
    found = messages_of(tmp_path, json.dumps(chat).encode(), "chat.jsonl")
    assert [(m.agent_id, m.text) for m in found] == [("user", "Where?"), ("assistant", "Here.")]
    assert "contents" not in found[0].extras
