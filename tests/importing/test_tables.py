"""Tables of other programs: however one export is spelt, the same messages are read, or the file is refused by name."""

import csv
import io
import json
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
ENCODINGS = ("utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be")


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
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


PRODUCTS: dict[str, tuple[str, bytes, list[tuple[str, str, str]] | str]] = {
    "Zendesk, tickets": (
        "tickets.csv",
        product("Id,Subject,Status,Requester,Assignee,Created at", "7,Parcel,open,Zoë,Otto,2026-03-14 09:00"),
        "the text is not clear",
    ),
    "Zendesk, comments": (
        "comments.csv",
        product(
            "ticket_id,id,author_id,author_name,author_role,body,html_body,public,created_at",
            "7,71,1,Zoë,end-user,Where is it?,<p>Where is it?</p>,true,2026-03-14T09:00:00Z",
            "7,72,2,Otto,agent,She is angry,<p>She is angry</p>,false,2026-03-14T09:01:00Z",
            "7,73,2,Otto,agent,It left.,<p>It left.</p>,true,2026-03-14T09:02:00Z",
        ),
        [("7", "Zoë", "Where is it?"), ("7", "Otto", "It left.")],
    ),
    "Zendesk, JSON": (
        "tickets.json",
        b'[{"id": 7, "comments": [{"id": 1, "author_id": 2, "body": "Hi", "created_at": "2026-03-14T09:00:00Z"}]}]',
        "comments",
    ),
    "Intercom": (
        "conversations.csv",
        product(
            "conversation_id,part_id,part_type,author_type,author_name,body,created_at",
            "7,1,comment,user,Zoë,Where is it?,1773478800",
            "7,2,comment,bot,Fin,It left.,1773478860",
            "7,3,note,admin,Otto,Ask her,1773478870",
        ),
        [("7", "Zoë", "Where is it?"), ("7", "Fin", "It left.")],
    ),
    "Intercom, API": (
        "conversation.json",
        json.dumps(
            {
                "type": "conversation",
                "source": {"body": "Hi", "author": {"name": "Zoë"}},
                "conversation_parts": {"conversation_parts": [{"body": "Ho", "created_at": 1, "author": {"name": "Fin"}}]},
            }
        ).encode(),
        "conversation_parts.conversation_parts (1)",
    ),
    "Freshdesk": (
        "tickets.csv",
        product("Ticket ID,Subject,Status,Priority,Agent,Created time,Full name", "7,Parcel,Open,Low,Otto,2026-03-14 09:00:00,Zoë"),
        "which column says the text is not clear",
    ),
    "Freshdesk, conversations": (
        "conversations.csv",
        product(
            "ticket_id,id,body_text,incoming,private,user_id,from_email,created_at",
            "7,1,Where is it?,true,false,5,zoe@example.com,2026-03-14T09:00:00Z",
            "7,2,Check that,false,true,6,otto@example.com,2026-03-14T09:00:30Z",
            "7,3,It left.,false,false,6,otto@example.com,2026-03-14T09:01:00Z",
        ),
        [("7", "zoe@example.com", "Where is it?"), ("7", "otto@example.com", "It left.")],
    ),
    "HubSpot": (
        "conversations.csv",
        product(
            "Thread ID,Message ID,Direction,Sender Name,Text,Created At",
            "7,1,INCOMING,Zoë,Where is it?,2026-03-14 09:00",
            "7,2,OUTGOING,Otto,It left.,2026-03-14 09:01",
        ),
        [("7", "Zoë", "Where is it?"), ("7", "Otto", "It left.")],
    ),
    "Crisp": (
        "messages.csv",
        product(
            "session_id,from,type,content,user_nickname,timestamp",
            "s7,user,text,Where is it?,Zoë,1773478800000",
            "s7,operator,note,Check,Otto,1773478830000",
            "s7,operator,text,It left.,Otto,1773478860000",
        ),
        [("s7", "customer", "Where is it?"), ("s7", "agent", "It left.")],
    ),
    "Front": (
        "messages.csv",
        product(
            "Message ID,Conversation ID,Direction,Author,From,To,Message date,Subject,Text",
            "m1,c7,Inbound,,zoe@example.com,help@example.com,2026-03-14 09:00:00,Parcel,Where is it?",
            "m2,c7,Outbound,Otto,help@example.com,zoe@example.com,2026-03-14 09:01:00,Parcel,It left.",
        ),
        [("c7", "customer", "Where is it?"), ("c7", "Otto", "It left.")],
    ),
    "Help Scout": (
        "threads.csv",
        product(
            "Conversation ID,Thread ID,Type,Created By,Body,Created At",
            "7,71,customer,Zoë,Where is it?,2026-03-14T09:00:00Z",
            "7,72,note,Otto,Check,2026-03-14T09:00:30Z",
            "7,73,message,Otto,It left.,2026-03-14T09:01:00Z",
        ),
        [("7", "Zoë", "Where is it?"), ("7", "Otto", "It left.")],
    ),
    "Gorgias": (
        "messages.csv",
        product(
            "Ticket ID,Message ID,From agent,Sender name,Body text,Sent datetime",
            "7,1,false,Zoë,Where is it?,2026-03-14T09:00:00Z",
        ),
        [("7", "Zoë", "Where is it?")],
    ),
    "one column of names": (
        "chats.csv",
        product("Ticket ID,Customer,Message,Created at", "7,Zoë,<p>Where is it?</p>,2026-03-14T09:00:00Z"),
        [("7", "Zoë", "Where is it?")],
    ),
    "Tidio": (
        "chat.csv",
        product("Date,Time,Visitor,Operator,Message", "14/03/2026,09:00,Zoë,,Where is it?", "14/03/2026,09:01,,Otto,It left."),
        [("chat", "Zoë", "Where is it?"), ("chat", "Otto", "It left.")],
    ),
    "LiveChat": (
        "chats.csv",
        product(
            "chat id,event id,author type,author name,message,date (UTC)",
            "K7,1,visitor,Zoë,Where is it?,03/14/2026 09:00:00 AM",
            "K7,2,agent,Otto,It left.,03/14/2026 09:01:00 AM",
        ),
        [("K7", "Zoë", "Where is it?"), ("K7", "Otto", "It left.")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "data", "outcome"), PRODUCTS.values(), ids=list(PRODUCTS))
def test_an_export_of_a_product_is_read_or_refused_by_name(
    tmp_path: Path, name: str, data: bytes, outcome: list[tuple[str, str, str]] | str
) -> None:
    if isinstance(outcome, str):
        with pytest.raises(ConfigError) as error:
            (tmp_path / name).write_bytes(data)
            source = Source(tmp_path / name, name)
            list(importer_of(source).rows(source, ReadOptions()))
        assert outcome in str(error.value)
        return
    (tmp_path / name).write_bytes(data)
    source = Source(tmp_path / name, name)
    found = [item for item in importer_of(source).rows(source, ReadOptions()) if not isinstance(item, Skipped)]
    assert [(m.found.channel, m.found.agent_id, m.found.text) for m in found if isinstance(m.found, Message)] == outcome
    assert len(found) == len(outcome)
    assert {item.found.extras.get("role") for item in found if isinstance(item.found, Message)} <= {
        "user",
        "assistant",
        None,
    }


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
    "two texts": (b"ticket,author,message,message,date\n1,ann,a,b,2026-03-01\n", "which column says the text"),
}


@pytest.mark.parametrize(("data", "says"), REFUSED.values(), ids=list(REFUSED))
def test_what_can_be_read_in_two_ways_is_not_read(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        messages_of(tmp_path, data)
    assert says in str(error.value)


@pytest.mark.parametrize(("order", "day"), [("day-first", "2026-04-03"), ("month-first", "2026-03-04")])
def test_the_order_of_dates_is_said_with_the_column(tmp_path: Path, order: str, day: str) -> None:
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
        with pytest.raises(UnclearTableError, match="when it was sent"):
            messages_of(tmp_path, data)
        return
    assert messages_of(tmp_path, data)[0].created_at.hour == hour


TIMES = {
    "5. März 2026 um 10:05 Uhr": "10:05", "5 févr. 2026 à 10h05": None, "5 de março de 2026 às 10:05": "10:05",
    "Thu Mar 05 2026 10:05:00 GMT+0100 (CET)": "09:05", "2026/3/5 10:05:07 PM": "22:05", "05-Mar-26 10:05": "10:05",
    "20260305T100500Z": "10:05", "2026-03-05 10:05 PST": "18:05", "Mar 5, 2026, 10:05\u202fAM": "10:05",
}  # fmt: skip
NO_TIMES = ["10:05", "March 2026", "12", "soon", "26-03-05", "2026-03-05 10:05 IST", "31.02.2026"]


@pytest.mark.parametrize(("text", "clock"), TIMES.items())
def test_a_time_is_read_in_six_languages(text: str, clock: str | None) -> None:
    moment = Times.of([text]).read(text)
    assert f"{moment:%Y-%m %H:%M}" == (f"2026-03 {clock}" if clock else "2026-02 10:05")


@pytest.mark.parametrize("text", NO_TIMES)
def test_half_a_time_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time that can be read"):
        Times("day-first").read(text)


def test_a_chat_in_geminis_form_is_read_as_one_of_openais(tmp_path: Path) -> None:
    turns = [("user", [{"text": "Where?"}]), ("model", [{"text": "Hm.", "thought": True}, {"text": "Here."}])]
    chat = {"created": 1773478800, "contents": [{"role": role, "parts": parts} for role, parts in turns]}
    found = messages_of(tmp_path, json.dumps(chat).encode(), "chat.jsonl")
    assert [(m.agent_id, m.text) for m in found] == [("user", "Where?"), ("assistant", "Here.")]
    assert "contents" not in found[0].extras
