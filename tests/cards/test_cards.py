"""Character cards: personas of them and back without loss, whatever they hold; hostile files refused."""

import base64
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tavern_card import parse_card as their_parse
from tavern_card import parse_png_card, write_png_card
from tavern_card.png import _minimal_png

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.text import storable_data
from persona_pipeline.world.cards.files import Card, CardFormat, export_card, import_card, parse_card
from persona_pipeline.world.cards.images import write_png
from persona_pipeline.world.personas import load_persona
from tests.support.command_line import in_process
from tests.support.worlds import replace_in

PICTURE = _minimal_png()
FIELDS: dict[str, Any] = {
    "name": "Séra Phina",
    "description": "{{char}} guards the glade. {{user}} woke her.",
    "personality": "gentle, <BOT>-like",
    "scenario": "A glade.",
    "first_mes": "*You wake.*",
    "mes_example": "<START>\n{{user}}: Who are you?\n{{char}}: I am {{char}}.\nThe *guardian*.\n{{user}}: Oh.\n"
    "<START>\nSéra Phina: Rest.",
}
V1 = FIELDS
_MORE = {"system_prompt": "{{original}} Be brief.", "extensions": {"depth": {"a": [1, 2.5, None]}}, "tags": ["x"]}
V2 = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {**FIELDS, **_MORE}}
_MORE = {"nickname": "Sera", "assets": [{"type": "icon"}]}
V3 = {"spec": "chara_card_v3", "spec_version": "3.0", "data": {**FIELDS, **_MORE}}
CARDS = {"1": V1, "2": V2, "3": V3}


def packed(card: Any, name: str) -> bytes:
    text = json.dumps(card).encode("utf-8")
    if name == "json":
        return text
    if name == "png":
        return write_png(PICTURE, {b"ccv3" if "v3" in str(card.get("spec")) else b"chara": text})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("assets/icon.bin", b"\x00picture" * 50)
        archive.writestr("card.json", text)
    return out.getvalue()


def world_with(root: Path, data: bytes) -> Path:
    path = root.parent / "a card"
    path.write_bytes(data)
    assert import_card(root, path)[0] == "sera-phina"
    return root


@pytest.mark.parametrize("version", CARDS)
@pytest.mark.parametrize("name", list(CardFormat))
def test_a_card_becomes_a_persona_and_comes_back_the_same(small_root: Path, version: str, name: CardFormat) -> None:
    data = packed(CARDS[version], name)
    root = world_with(small_root, data)
    persona = load_persona(root, "sera-phina")
    called = "Sera" if version == "3" else "Séra Phina"
    assert persona.display_name == "Séra Phina"
    text = f"{called} guards the glade. the user woke her.\n\nPersonality: gentle, {called}-like\n\nScenario: A glade."
    assert persona.persona == text
    assert persona.aliases == (("Séra Phina", "Sera") if version == "3" else ("Séra Phina",))
    assert export_card(root, "sera-phina").data == data, "nothing was edited: the same bytes"
    picture = root.parent / "picture.png"
    picture.write_bytes(PICTURE)
    for other in CardFormat:
        exported = export_card(root, "sera-phina", other, picture if other is CardFormat.PNG else None).data
        assert parse_card(exported).card.data == CARDS[version]


def test_an_edited_persona_stands_in_the_card_and_everything_else_stays(small_root: Path) -> None:
    root = world_with(small_root, packed(V3, "charx"))
    replace_in(root / "personas" / "sera-phina.yaml", "guards the glade", "left the glade")
    exported = export_card(root, "sera-phina")
    assert "all of it stands in description" in exported.notes[0]
    found = parse_card(exported.data)
    data = found.card.data["data"]
    assert data["description"].startswith("Sera left the glade")
    assert (data["personality"], data["scenario"]) == ("", "")
    assert {key: data[key] for key in data.keys() - {"description", "personality", "scenario"}} == {
        key: V3["data"][key] for key in data.keys() - {"description", "personality", "scenario"}
    }
    with zipfile.ZipFile(io.BytesIO(exported.data)) as archive:
        assert archive.read("assets/icon.bin") == b"\x00picture" * 50
    assert "assets stay in sera-phina.charx" in export_card(root, "sera-phina", CardFormat.JSON).notes[1]
    with pytest.raises(ConfigError, match="needs a picture; name one with --image"):
        export_card(root, "sera-phina", CardFormat.PNG)


def test_an_agent_without_a_card_gets_a_new_one(small_root: Path) -> None:
    exported = export_card(small_root, "ann")
    persona = load_persona(small_root, "ann")
    theirs = their_parse(exported.data)
    assert (theirs["data"]["name"], theirs["data"]["description"]) == (persona.display_name, persona.persona)
    assert theirs["spec"] == "chara_card_v2"


@pytest.mark.parametrize("version", CARDS)
def test_the_oracle_reads_what_is_written_and_writes_what_is_read(version: str) -> None:
    ours = write_png(PICTURE, {b"chara": Card(CARDS[version]).text().encode("utf-8")})
    assert parse_png_card(ours) == their_parse(CARDS[version])
    theirs = write_png_card(their_parse(CARDS[version]), PICTURE)
    assert parse_card(theirs).card.persona == Card(their_parse(CARDS[version])).persona
    for name in ("name", "description", "mes_example"):
        assert their_parse(CARDS[version])["data"][name] == Card(CARDS[version]).field(name)


# Two keys that differ in what no file can hold would become one.
KEYS = st.text(st.characters(exclude_characters="\0"), max_size=6)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(
    fields=st.dictionaries(st.sampled_from([*FIELDS, "extensions", "character_book", "nickname", "x"]), VALUES),
    beside=st.dictionaries(KEYS, VALUES, max_size=3),
    text=st.text(st.characters(), min_size=1),
    version=st.sampled_from([1, 2, 3]),
    name=st.sampled_from(["json", "png", "charx"]),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_card_comes_back(
    fields: Any, beside: Any, text: str, version: int, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = {**fields, "name": "Ann", "description": text}
    card = {**beside, **data} if version == 1 else {**beside, "spec": f"chara_card_v{version}", "data": data}
    if version == 1:
        card.pop("data", None)
        card.pop("spec", None)
    root = tmp_path_factory.mktemp("world")
    (root / "personas").mkdir()
    path = root / "card"
    path.write_bytes(packed(card, name))
    try:
        agent_id, _ = import_card(root, path)
    except ConfigError as error:
        assert not Card(card).persona, error
        assert not list((root / "personas").iterdir())
        return
    assert export_card(root, agent_id).data == path.read_bytes()
    assert parse_card(export_card(root, agent_id, CardFormat.JSON).data).card.data == storable_data(card)
    assert parse_card(export_card(root, agent_id, CardFormat.CHARX).data).card.data == storable_data(card)


@given(at=st.integers(0, 2000), noise=st.binary(min_size=1, max_size=6), name=st.sampled_from(["json", "png", "charx"]))
@settings(max_examples=80, deadline=None)
def test_a_damaged_card_is_an_error_and_nothing_else(at: int, noise: bytes, name: str) -> None:
    data = bytearray(packed(V2, name))
    place = at % len(data)
    data[place : place + len(noise)] = noise
    try:
        parse_card(bytes(data))
    except ValueError as error:
        assert str(error)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunk(kind: bytes, body: bytes) -> bytes:
    return PICTURE[:8] + chunk(kind, body) + PICTURE[8:]


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/"), data)
    return out.getvalue()


BOMB = b" " * 17_000_000
ZIPPED_BOMB = zipped(**{"card.json": BOMB})
LYING = ZIPPED_BOMB.replace(struct.pack("<I", len(BOMB)), struct.pack("<I", 100))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (with_chunk(b"zTXt", b"chara\0\0" + zlib.compress(BOMB)), "card larger than 8,000,000 bytes"),
        (with_chunk(b"tEXt", b"chara\0" + base64.b64encode(BOMB)), "card larger than 8,000,000 bytes"),
        (with_chunk(b"tEXt", b"chara\0###"), "is not base64"),
        (with_chunk(b"zTXt", b"chara\0\0nonsense"), "has a damaged card"),
        (PICTURE, "has no character card"),
        (PICTURE[:-6], "is a damaged PNG"),
        (PICTURE[:8] + struct.pack(">I", 2**31) + b"tEXt", "is a damaged PNG"),
        (PICTURE[:8] + chunk(b"xxXx", b"") * 100_001, "more than 100,000 chunks"),
        (ZIPPED_BOMB, "has more in card.json than it may"),
        (LYING, "CHARX"),
        (zipped(**{"..__x": b"", "card.json": b"{}"}), "outside its folder"),
        (zipped(**{"__etc__x": b"", "card.json": b"{}"}), "outside its folder"),
        (zipped(x=b""), "there is no card.json in it"),
        (zipped(**{"card.json": b"{}"}), "it has no name"),
        (zipped(**{f"{n}": b"" for n in range(5001)}), "more than 5,000 files"),
        (b'{"name": "x", "name": "y"}', "stands twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff\xd8", "neither JSON, PNG nor CHARX"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "is a WebP, and cards are read from PNG, CHARX and JSON"),
        (b"\xff\xd8\xff\xe1", "is a JPEG, and cards are read from PNG, CHARX and JSON"),
        (b'{"name": 5}', "has no name"),
        (json.dumps({"name": "x" * 300}).encode(), "has a name longer than 256 characters"),
        (b'{"name": "x", "y": ' + b"[" * 120 + b"]" * 120 + b"}", "nested deeper than 100"),
        (b"[]", "is not an object"),
    ],
    ids=range(24),
)
def test_hostile_and_foreign_files_are_refused(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "personas").mkdir()
    path = tmp_path / "card.png"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"card\.png: ") as caught:
        import_card(tmp_path, path)
    assert says in str(caught.value)
    assert not list((tmp_path / "personas").iterdir())


def agnai(kind: str, **attributes: Any) -> dict[str, Any]:
    persona = {"kind": kind, "attributes": attributes}
    return {"kind": "character", "name": "Keeper", "persona": persona, "greeting": "Ahoy", "scenario": "An island"}


TINY_PERSON = {"name": "Keeper", "age": 60, "job": {"title": "keeper", "likes": ["tea"]}}
TINY = {"type": "TinyPerson", "persona": TINY_PERSON}


@pytest.mark.parametrize(
    ("card", "persona"),
    [
        (agnai("text", text=["keeps the lamp, never jokes"]), "keeps the lamp, never jokes\n\nScenario: An island"),
        (
            agnai("boostyle", job=["keeper"], mind=["calm", "dry"]),
            "job: keeper\nmind: calm, dry\n\nScenario: An island",
        ),
        (agnai("text", text="keeps the lamp"), "keeps the lamp\n\nScenario: An island"),
        (
            {**V2, "data": {"name": "Keeper", "description": ["calm", "dry"], "personality": {"job": "keeper"}}},
            "calm, dry\n\nPersonality: job: keeper",
        ),
        (agnai("attributes", text=["Not a text, {{char}}"]), "text: Not a text, Keeper\n\nScenario: An island"),
        (TINY, "age: 60\njob: title: keeper; likes: tea"),
        ({"name": "Keeper", "persona": "Keeps the lamp"}, "Keeps the lamp"),
    ],
    ids=["Agnai's text", "its attributes", "no list", "lists", "attributes called text", "TinyTroupe", "a text"],
)
def test_personas_of_other_programs_are_read(small_root: Path, card: Any, persona: str) -> None:
    (path := small_root.parent / "card").write_text(json.dumps(card), encoding="utf-8")
    assert import_card(small_root, path)[0] == "keeper"
    assert load_persona(small_root, "keeper").persona == persona
    assert export_card(small_root, "keeper").data == path.read_bytes()
    edited = Card(card).changed("Keeper", "He left the lamp.")
    assert (edited.persona, edited.name) == ("He left the lamp.", "Keeper"), "an edited text is all of the persona"


@pytest.mark.parametrize(
    "card",
    [
        agnai("text", text=[""]),
        {"name": "Keeper", "scenario": "An island", "bio": ["keeps the lamp"], "lore": ["old"]},
        {"name": "Keeper", "first_mes": "Ahoy"},
        {"name": "Keeper", "scenario": "An island", "persona": 5},
        {**V2, "data": {"name": "Keeper", "scenario": "An island", "description": 5}},
    ],
)
def test_a_card_without_a_persona_in_a_known_form_is_refused(small_root: Path, card: Any) -> None:
    (path := small_root.parent / "card").write_text(json.dumps(card), encoding="utf-8")
    says = r"says nothing of the character: .* in a form that is not known; it has .*name"
    with pytest.raises(ConfigError, match=says):
        import_card(small_root, path)


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0en\0chara\0" + base64.b64encode(json.dumps(V2).encode()),
        b"\1\0\0\0" + zlib.compress(base64.b64encode(json.dumps(V2).encode())),
        b"\0\0\0\0" + json.dumps(V2).encode(),
    ],
    ids=["plain", "compressed", "not in base64"],
)
def test_a_card_in_international_text_is_read(body: bytes) -> None:
    picture = with_chunk(b"iTXt", b"chara\0" + body)
    assert parse_card(picture).card.data == V2
    assert parse_card(write_png(picture, {b"chara": json.dumps(V3).encode()})).card.data == V3


def test_nothing_is_overwritten_and_no_name_leads_outside(small_root: Path) -> None:
    root = world_with(small_root, packed(V2, "json"))
    path = root.parent / "a card"
    with pytest.raises(ConfigError, match=r"sera-phina.yaml: is there already; remove it, or name another agent"):
        import_card(root, path)
    path.write_text(json.dumps({**V1, "name": "../../etc/passwd"}), encoding="utf-8")
    assert import_card(root, path)[0] == "etc-passwd"
    path.write_text(json.dumps({**V1, "name": "桜"}), encoding="utf-8")
    with pytest.raises(ConfigError, match="whose letters make no id; name the agent with --agent"):
        import_card(root, path)
    assert import_card(root, path, "sakura")[0] == "sakura"
    with pytest.raises(ConfigError, match="is not allowed"):
        import_card(root, path, "../sakura")


def test_cards_from_the_command_line(
    small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = in_process(small_root, monkeypatch, capsys)
    path = tmp_path / "card.png"
    path.write_bytes(packed({**V2, "data": {**V2["data"], "name": "Ann"}}, "png"))
    done = run("personas", "import", str(path), "--agent", "ann-too")
    assert (done.returncode, done.stdout) == (0, "ann-too: personas/ann-too.yaml, cards/ann-too.png\n"), done.stderr
    assert "messages under 'Ann' are not its own: that is another agent's name" in done.stderr
    done = run("validate", str(small_root / "cards"), str(small_root / "personas"))
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out.json"
    done = run("personas", "export", "ann-too", "--format", "json", "--output", str(out))
    assert (done.returncode, json.loads(out.read_text(encoding="utf-8"))["data"]["name"]) == (0, "Ann"), done.stderr
    done = run("personas", "export", "ann-too", "--output", str(out))
    assert (done.returncode, "exists; name another with --output" in done.stderr) == (2, True)
    (small_root / "cards" / "ann-too.png").write_bytes(PICTURE)
    done = run("validate", str(small_root / "cards"))
    assert (done.returncode, "ann-too.png: has no character card" in done.stderr + done.stdout) == (2, True)
