"""The sample world keeps what the demo, the recordings and the documentation rely on."""

import json
import re
from collections import Counter
from datetime import UTC, datetime, time
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from persona_pipeline.base.documents.yaml import load_document
from persona_pipeline.scoring.text.agreement import agreement_ratio
from persona_pipeline.scoring.text.repetition import find_repetition

ROOT = Path(__file__).resolve().parents[1]
AGENTS = ("dwight", "jim", "michael", "pam")
STEADY = ("dwight", "jim", "pam")
CHANNELS = ("general", "sales")
WEEKS = (1, 2, 3)
DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
NO_PERSONA = ("consistency", "fluency", "convergence", "ideas_quantity")
DEFAULTS = {"adherence": 3, "consistency": 3, "fluency": 2, "convergence": 2, "ideas_quantity": 2}
FIRST_DAY = datetime(2026, 6, 1, tzinfo=UTC)
CONTRACTION = re.compile(r"\w(?:n't|'(?:ll|ve|re|m|d))\b|\b(?:it|that|he|she|there|what|who|let)'s\b", re.I)


class Line(NamedTuple):
    """One line of a message file."""

    file: str
    data: dict[str, Any]

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.data["created_at"])

    @property
    def week(self) -> int:
        return (self.moment - FIRST_DAY).days // 7 + 1

    @property
    def place(self) -> str:
        return self.data.get("channel", "direct")


@cache
def lines() -> tuple[Line, ...]:
    return tuple(
        Line(path.stem, json.loads(line))
        for path in sorted((ROOT / "messages").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    )


def texts(agent_id: str, *weeks: int) -> list[str]:
    return [line.data["text"] for line in lines() if line.data["agent_id"] == agent_id and line.week in weeks]


@cache
def proposition_file(dimension: str, stem: str) -> dict[str, Any]:
    return load_document(ROOT / "propositions" / dimension / f"{stem}.yaml").data


def agent_files(agent_id: str) -> list[dict[str, Any]]:
    folders = [name for name in DIMENSIONS if (ROOT / "propositions" / name / f"{agent_id}.yaml").is_file()]
    return [proposition_file(folder, agent_id) for folder in folders]


def rate(phrase: str, messages: list[str]) -> float:
    return sum(message.lower().count(phrase) for message in messages) / len(messages)


def test_messages_are_three_working_weeks_in_order_of_time() -> None:
    assert {line.file for line in lines()} == {"general", "sales", "direct"}
    days = {line.moment.date() for line in lines()}
    assert len(days) == 15
    assert {day.weekday() for day in days} == {0, 1, 2, 3, 4}
    assert (min(days).isoformat(), max(days).isoformat()) == ("2026-06-01", "2026-06-19")
    assert len({line.data["id"] for line in lines()}) == len(lines())
    assert len({line.moment for line in lines()}) == len(lines())
    for name in (*CHANNELS, "direct"):
        moments = [line.moment for line in lines() if line.file == name]
        assert moments == sorted(moments)
    # A window of seven days that ends at the newest message is one week.
    last = {week: max(line.moment for line in lines() if line.week == week) for week in WEEKS}
    assert [last[week].strftime("%a %H:%M") for week in last] == ["Fri 17:01", "Fri 17:05", "Fri 17:12"]


def test_message_fields() -> None:
    for line in lines():
        place = "recipient" if line.file == "direct" else "channel"
        assert set(line.data) == {"id", "agent_id", "text", "created_at", place}
        assert line.data["agent_id"] in AGENTS
        assert line.data["text"].strip()
        assert line.moment.utcoffset() is not None
        assert time(8, 30) <= line.moment.time() <= time(17, 30)
        others = {*AGENTS} - {line.data["agent_id"]}
        assert line.data[place] in (others if place == "recipient" else {line.file})


def test_messages_are_spread_evenly() -> None:
    for week in WEEKS:
        counts = Counter((line.data["agent_id"], line.place) for line in lines() if line.week == week)
        assert 82 <= counts.total() <= 88
        for agent_id in AGENTS:
            places = {place: counts[agent_id, place] for place in (*CHANNELS, "direct")}
            assert 20 <= sum(places.values()) <= 23, (agent_id, places)
            assert all(7 <= places[channel] <= 10 for channel in CHANNELS), (agent_id, places)
            assert 3 <= places["direct"] <= 6, (agent_id, places)


def test_texts_are_unique_before_the_drift_and_for_the_steady_agents() -> None:
    unique = [text for agent_id in AGENTS for text in texts(agent_id, 1, 2)]
    unique += [text for agent_id in STEADY for text in texts(agent_id, 3)]
    assert [text for text, count in Counter(unique).items() if count > 1] == []


def test_repetition_agreement_and_lost_catchphrases_appear_with_the_drift_only() -> None:
    for agent_id, week in product(AGENTS, WEEKS):
        said, drifts = texts(agent_id, week), (agent_id, week) == ("michael", 3)
        share, ratio = find_repetition(said).share, agreement_ratio(said)
        assert (share > 0.5 and ratio > 0.5) if drifts else (share < 0.05 and ratio < 0.15), (agent_id, week)
        for phrase in proposition_file("fluency", agent_id)["catchphrases"]:
            uses, (least, most) = rate(phrase["phrase"], said), (phrase["min_rate"], phrase["max_rate"])
            assert (uses == 0.0 < least) if drifts else (least <= uses <= most), (agent_id, week, phrase)


def test_a_catchphrase_belongs_to_one_agent() -> None:
    for agent_id in AGENTS:
        others = [text for other in AGENTS if other != agent_id for text in texts(other, 1, 2, 3)]
        for phrase in proposition_file("fluency", agent_id)["catchphrases"]:
            assert rate(phrase["phrase"], others) == 0.0


def test_voices_differ_in_what_can_be_counted() -> None:
    dwight, jim, pam = (texts(agent_id, 1, 2, 3) for agent_id in STEADY)
    michael = texts("michael", 1, 2)
    assert [text for text in dwight if CONTRACTION.search(text) or "!" in text] == []
    assert [text for text in jim if "!" in text] == []
    assert sum("!" in text for text in michael) == len(michael)
    assert sum("(" in text for text in pam) / len(pam) > 0.9
    assert not any("(" in text for text in [*dwight, *jim, *michael])
    words = {
        name: sum(len(text.split()) for text in said) / len(said)
        for name, said in {"jim": jim, "dwight": dwight, "pam": pam, "michael": michael}.items()
    }
    assert words["jim"] < words["dwight"] < words["michael"]
    assert words["jim"] < words["pam"] < words["michael"]


def test_personas() -> None:
    assert tuple(sorted(path.stem for path in (ROOT / "personas").glob("*.yaml"))) == AGENTS
    for agent_id in AGENTS:
        persona = load_document(ROOT / "personas" / f"{agent_id}.yaml").data
        assert set(persona) == {"agent_id", "display_name", "persona", "corrections"}
        assert persona["agent_id"] == agent_id
        assert persona["display_name"].lower().startswith(agent_id)
        assert len(persona["persona"].split("\n\n")) >= 4
        assert "never does" in persona["persona"]
    assert load_document(ROOT / "personas" / "michael.yaml").data["corrections"]["action_gate_enabled"] is True


def test_defaults_and_agents_have_claims_of_every_kind() -> None:
    for dimension in DIMENSIONS:
        default = proposition_file(dimension, "_default")
        assert default["dimension"] == dimension
        assert len(default["propositions"]) == DEFAULTS[dimension]
        assert any(proposition.get("inverted") for proposition in default["propositions"])
        assert default["include_personas"] is (dimension not in NO_PERSONA)
    for agent_id in AGENTS:
        files = agent_files(agent_id)
        assert {file["agent_id"] for file in files} == {agent_id}
        own = [proposition for file in files for proposition in file["propositions"]]
        assert 6 <= len(own) <= 10
        assert any(proposition.get("inverted") for proposition in own)
        assert len({proposition["weight"] for proposition in own}) >= 3


def test_propositions_are_complete() -> None:
    paths = sorted((ROOT / "propositions").glob("*/*.yaml"))
    ids: list[str] = []
    for path in paths:
        assert path.read_text(encoding="utf-8").startswith(
            "# yaml-language-server: $schema=../../schemas/propositions.json\n"
        )
        for proposition in proposition_file(path.parent.name, path.stem)["propositions"]:
            ids.append(proposition["id"])
            assert re.fullmatch(r"[a-z]+(?:-[a-z]+)*", proposition["id"])
            assert "{{agent_name}}" in proposition["claim"]
            assert proposition["recommendations_for_improvement"].strip()
            if path.parent.name in NO_PERSONA:
                names = "|".join(AGENTS)
                assert not re.search(names, proposition["claim"], re.I), "speakers may be anonymous"
    assert [name for name, count in Counter(ids).items() if count > 1] == []


@cache
def conversations() -> tuple[tuple[str, str, str], ...]:
    """Who said what in which conversation."""
    rows = (ROOT / "suites/answers/conversations.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(
        (row["id"], message.get("name", "pam"), message["content"])
        for row in map(json.loads, rows)
        for message in row["output_messages"]
    )


def test_no_two_lines_of_the_conversations_are_alike() -> None:
    assert Counter(name for name, _, _ in conversations()) == dict.fromkeys(
        ("wedding-stationery", "lost-parcel", "bowling-flag", "jar-labels", "birthday-card"), 40
    )
    assert len({text for _, _, text in conversations()}) == 200


def test_who_talks_to_pam_sounds_as_in_the_messages() -> None:
    said = {agent_id: [text for _, speaker, text in conversations() if speaker == agent_id] for agent_id in AGENTS}
    assert [len(said[agent_id]) for agent_id in AGENTS] == [40, 40, 20, 100]
    assert [text for text in said["dwight"] if CONTRACTION.search(text) or "!" in text] == []
    assert [text for text in said["jim"] if "!" in text] == []
    assert all("!" in text for text in said["michael"])
    assert not any("(" in text for speaker in ("dwight", "jim", "michael") for text in said[speaker])
