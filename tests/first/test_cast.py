"""Who is an agent, and the world that is begun with them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.cli.world.checking import check_world
from persona_pipeline.lab.first import MOST_AGENTS, cast_of, typical_lines, world_files
from persona_pipeline.world.models import Message
from persona_pipeline.world.names import Aliases, alias_problems, same_name
from persona_pipeline.world.personas import is_agent_id
from persona_pipeline.world.world import World, template_world, write_new
from tests.first.worlds import FIRST_DAY, drifted, lines_of, support, together


def said(name: str, count: int, talks: int = 3, **extras: Any) -> list[Message]:
    return [
        Message(f"{name}-{n}", name, f"line {n}", FIRST_DAY, f"{name}-{n % talks}", extras=extras) for n in range(count)
    ]


# Marks of agents and of people, by format.
ROLES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "openai": ({"role": "assistant"}, {"role": "user"}),
    "sillytavern": ({"is_user": False}, {"is_user": True}),
    "slack": ({"bot_id": "B1"}, {"user": "U1"}),
    "otlp": ({"span_id": "1"}, {"span_id": "1", "told": "bot"}),
}


def test_roles_tell_agents_from_people_and_without_roles_it_is_who_says_enough() -> None:
    for of_agents, of_people in ROLES.values():
        cast = cast_of([*said("ann", 50, **of_people), *said("bot", 3, **of_agents)])
        assert (list(cast.names), cast.people, cast.why) == (["bot"], {"ann": 50}, "from the roles in the export")
    for speakers, agents in (
        ({"ann": (40, 3), "bob": (40, 1), "cyd": (29, 5)}, ["ann"]),
        ({"ann": (20, 2), "bob": (3, 2), "cyd": (1, 1)}, ["ann", "bob"]),
        ({"ann": (1, 1)}, ["ann"]),
    ):
        cast = cast_of([item for name, shape in speakers.items() for item in said(name, *shape)])
        assert (sorted(cast.names), "no roles" in cast.why) == (agents, True)


def test_who_is_named_is_what_was_said() -> None:
    messages = [*said("ann", 50), *said("bot", 50, role="assistant")]
    options: list[dict[str, Any]] = [
        {"agents": ["ANN"]},
        {"people": ["bot"]},
        {"agents": ["ann", "bot"], "people": ["bot"]},
    ]
    assert [list(cast_of(messages, **given).names) for given in options] == [["ann"]] * 3


def test_a_name_that_nobody_has_is_said_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="--people anne: no message is by 'anne'; did you mean 'ann'"):
        cast_of(said("ann", 3), people=["anne"])
    with pytest.raises(ConfigError, match="name one with --agent NAME"):
        cast_of(said("ann", 3), people=["ann"])


def test_more_agents_than_can_be_looked_at_are_named() -> None:
    cast = cast_of([item for n in range(MOST_AGENTS + 2) for item in said(f"a{n:03}", 40)])
    assert (len(cast.names), cast.left_out) == (MOST_AGENTS, ["a050", "a051"])


SHOWN = st.characters(categories=["L", "M", "N", "P", "S"], include_characters=" ")


@given(st.lists(st.text(SHOWN, min_size=1, max_size=12).filter(str.strip), max_size=8))
def test_every_message_is_its_agents_in_the_world_too(names: list[str]) -> None:
    cast = cast_of(together(*(said(name, 3) for name in {same_name(name): name for name in ["ann", *names]}.values())))
    assert all(map(is_agent_id, cast.names))
    assert {item.agent_id for item in cast.messages} == {*cast.names}


NAMES = ("Brack", "brack-2", "Jürgen Groß", "Jurgen Gross", "美咲", "سارة", "assistant", "-", 'O\'Neil: "x" #1', "1e3")


def test_names_of_any_script_make_a_world_that_is_valid(tmp_path: Path) -> None:
    messages = together(*(said(name, 31, role="assistant") for name in NAMES), said("jurgen-gro", 2, role="user"))
    cast = cast_of(messages)
    write_new(tmp_path, world_files(cast))
    world = World.open(tmp_path, f"sqlite:///{tmp_path}/store.db")
    names = world.names()
    assert (sorted(names), alias_problems(names)) == (sorted(cast.names), {})
    assert {item.display_name for item in names.values()} == {*NAMES}
    aliases = Aliases.of(names)
    assert [aliases.owned(item).agent_id for item in messages] == [item.agent_id for item in cast.messages]
    assert check_world(tmp_path).problems == []
    assert world.sync().problems == []
    expected = [(item.id, item.agent_id) for item in cast.messages]
    assert [(item.id, item.agent_id) for item in world.messages()] == expected


@pytest.mark.parametrize("languages", [("de",), ("de", "ja")])
def test_claims_are_in_the_language_of_whom_they_are_about(languages: tuple[str, ...]) -> None:
    texts = world_files(cast_of(together(*(drifted(language) for language in languages))))
    own = "_default" if len(languages) == 1 else "{}"
    assert {path.split("/")[-1] for path in texts if path.startswith("propositions/")} == {
        f"{own}.yaml".format(language) for language in languages
    }
    for language in languages:
        text = texts[f"propositions/adherence/{own}.yaml".format(language)]
        claims = [line for line in text.splitlines() if "claim:" in line]
        template = template_world(language)["propositions/adherence/_default.yaml"]
        assert claims and all(line in template for line in claims)


def test_a_persona_quotes_what_was_typical_before() -> None:
    texts = world_files(cast_of(drifted("de")))
    quoted = [line.removeprefix("# - ") for line in texts["personas/de.yaml"].splitlines() if line.startswith("# - ")]
    assert len(quoted) == 3
    assert {*quoted} <= {" ".join(line.split())[:200] for line in lines_of("de")[:120]}


def test_typical_lines_are_like_the_others() -> None:
    odd = "Zzz qqq xxx 000 111 ###"
    lines = [*(f"The boat number {n} is in the harbour today" for n in range(30)), odd, "ok"]
    assert not {odd, "ok"} & {*typical_lines(lines)}
    assert (typical_lines(["ok", " "]), typical_lines([])) == (["ok"], [])


def test_what_a_message_says_beside_its_text_is_kept() -> None:
    direct = replace(support("de", ["Moin"])[0], channel=None, recipient="Ann", extras={"rating": 5})
    assert '"recipient": "Ann"' in (text := world_files(cast_of([direct]))["messages/imported.jsonl"])
    assert '"rating": 5' in text
