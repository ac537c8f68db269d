"""Conversations: a target is asked turn by turn, with written lines or those of a target that plays the user."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.answering.base import Responses, TargetError
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import SimulatedUser, Test, present
from persona_pipeline.suites.format.text import content_texts
from persona_pipeline.suites.grading.base import Assert, Context, run_assert
from persona_pipeline.suites.grading.results import AssertResult
from persona_pipeline.suites.running.plan import PlannedTest, RunOptions, Targets

if TYPE_CHECKING:
    from persona_pipeline.suites.sandbox.workspaces import WorkspaceFolder

Messages = Sequence[dict[str, Any]]

END = "[end]"
_USER = """\
You are the user of a chat: you write to an assistant and read what it answers. Write one message at a time, as such a user would,
and nothing else. Never take the assistant's part.

# What you want
{goal}

When you have what you want, or it is clear that you will not get it, write """
_OPENS = "(The chat is open. Write your first message.)"


def user_messages(user: SimulatedUser, character: str, said: Messages) -> list[dict[str, Any]]:
    """Return the messages for the target that plays the user: its instructions, and the conversation from its side.

    ``character``: the prompt of the persona that the user has, or "". ``said``: the conversation so far.
    """
    part = f"{_USER.replace('{goal}', user.goal)}{END}."
    system = f"{character}\n\n{part}" if character else part
    turned = [
        {"role": "user" if message["role"] == "assistant" else "assistant", "content": "\n".join(texts)}
        for message in said
        if message["role"] in ("user", "assistant") and (texts := content_texts(message.get("content")))
    ]
    opens = [] if turned and turned[0]["role"] == "user" else [{"role": "user", "content": _OPENS}]
    return [{"role": "system", "content": system}, *opens, *turned]


class Runner(Protocol):
    """A run, as a conversation needs it: ``answer`` asks the target of a cell."""

    options: RunOptions
    responses: Responses | None
    targets: Targets | None

    @property
    def answer(self) -> Callable[..., tuple[Output, bool]]: ...


def converse(
    runner: Runner, cell: PlannedTest, number: int, made: "WorkspaceFolder | None", held: list[Output]
) -> tuple[Output, bool]:
    """Hold a conversation, or read a recorded one; return it, and whether it is from the cache.

    ``held``: collects the answers, so that they survive a failure.
    """
    test = cell.test
    if runner.responses is not None or (cell.target and cell.target.is_recorded):
        output, _ = runner.answer(cell, number, made)
        source = runner.responses.source if runner.responses is not None else f"target {cell.target_name!r}"
        return recorded_conversation(test, output, source), False
    known = []
    for output, cached in _turns(runner, cell, number, made):
        held.append(output)
        known.append(cached)
    if not held:
        raise TargetError("empty", f"target {test.user and test.user.target!r} said nothing as the user")
    return Output.of_turns(held), all(known)


def _turns(
    runner: Runner, cell: PlannedTest, number: int, made: "WorkspaceFolder | None"
) -> Iterator[tuple[Output, bool]]:
    """Yield the target's answers, turn by turn, and whether each is from the cache."""
    test, said, name = cell.test, [*cell.test.input_messages], uuid.uuid4().hex
    for index in range(test.user.turns if test.user else len(test.turns)):
        user_cost, ends = None, False
        if index < len(test.turns):
            asked = [*test.turns[index].input_messages]
        else:
            reply = _ask_user(runner, cell, number, said)
            line, ends = _without_end(reply.text)
            if not line:
                return
            asked = [present({"role": "user", "content": line, "name": test.user and test.user.agent})]
            user_cost = reply.cost_usd
        turn = replace(cell, asked=turn_of(test, index, [*said, *asked]), turn=index, conversation=name)
        output, cached = runner.answer(turn, number, made)
        yield replace(output, asked=asked, user_cost_usd=user_cost), cached
        said += [*asked, {"role": "assistant", "content": output.text}]
        if ends:
            return


def _ask_user(runner: Runner, cell: PlannedTest, number: int, said: Messages) -> Output:
    """Return the next line of the target that plays the user."""
    from persona_pipeline.suites.targets.persona import agent_prompt

    user = cell.test.user
    assert user is not None and runner.targets is not None
    try:
        target = runner.targets.open(user.target)
        root = runner.options.world_root
        if user.agent is not None and root is None:
            raise ConfigError("user.agent needs a world; set PERSONA_ROOT")
        character = agent_prompt(root(), user.agent, runner.targets.grants.within) if user.agent and root else ""
    except ConfigError as problem:
        raise TargetError("no_target", str(problem)) from problem
    asked = replace(cell.test, input_messages=tuple(user_messages(user, character, said)))
    playing = replace(cell, target_name=user.target, target=target, asked=asked, turn=len(said), conversation="user")
    return runner.answer(playing, number)[0]


def turn_of(test: Test, number: int, said: Messages) -> Test:
    """Return a turn as a test whose input is the conversation up to it."""
    own = test.turns[number] if number < len(test.turns) else replace(test, expected_outcome="", expected_messages=())
    return replace(
        own,
        id=f"{test.id} turn {number + 1}",
        input_messages=tuple(said),
        files=test.files,
        turns=(),
        user=None,
        each_turn=(),
    )


def graded_turns(output: Output, context: Context) -> Iterator[AssertResult]:
    """Yield the results of asserts for single turns, then for every turn, where the worst turn counts."""
    test, said = context.test, [*context.test.input_messages]
    graded: list[list[AssertResult]] = [[] for _ in test.each_turn]
    for number, answer in enumerate(output.turns, start=1):
        said += answer.asked
        own = replace(context, test=turn_of(test, number - 1, said))
        if number <= len(test.turns):
            for item in cast(Sequence[Assert], own.test.asserts):
                yield replace(result := run_assert(item, answer, own), name=f"turn {number}: {result.name}")
        for item, found in zip(cast(Sequence[Assert], test.each_turn), graded, strict=True):
            found.append(replace(run_assert(item, answer, own), name=f"turn {number}"))
        said.append({"role": "assistant", "content": answer.text})
    for item, found in zip(test.each_turn, graded, strict=True):
        yield _worst(f"each turn: {item.name}", found)


def _worst(name: str, turns: Sequence[AssertResult]) -> AssertResult:
    """Return one result for a list of turns: a missed gate, else an error, else the worst."""
    gate = next((item for item in turns if item.gate_failed), None)
    worst = gate or min(turns, key=lambda item: -1.0 if item.score is None else item.score)
    misses = [f"{item.name}: {text}" for item in turns for text in item.misses]
    hits = [f"{len(turns)} turns"] if not misses and worst.error is None else []
    return replace(worst, name=name, hits=hits, misses=misses, children=tuple(turns), details=None)


def recorded_conversation(test: Test, output: Output, source: str) -> Output:
    """Return a recorded answer as the conversation of a test.

    Answers without user lines, one per turn, belong to the written lines. Raises ``TargetError``: it is another
    conversation.
    """
    turns = output.by_turn()
    if not any(turn.asked for turn in turns) and test.user is None:
        said = [message for turn in turns for message in turn.messages if message["role"] == "assistant"]
        turns = [
            Output([message], asked=[*turn.input_messages]) for message, turn in zip(said, test.turns, strict=False)
        ]
    if len(turns) < len(test.turns) or not turns or not all(turn.asked for turn in turns):
        wanted = f"{len(test.turns)} turns" if test.turns else "a conversation"
        raise TargetError("invalid_response", f"{source} has {len(turns)} turns of {test.id!r}, which is {wanted}")
    for number, (turn, written) in enumerate(zip(turns, test.turns, strict=False), start=1):
        if _texts(turn.asked) != _texts(written.input_messages):
            raise TargetError("stale", f"turn {number} of {test.id!r} was recorded with other words; record it again")
    return Output.of_turns(turns)


def _texts(messages: Messages) -> list[str]:
    return [text for message in messages for text in content_texts(message.get("content"))]


def _without_end(text: str) -> tuple[str, bool]:
    """Return a simulated user's line, and whether it ends the conversation."""
    line = text.strip()
    return line.removesuffix(END).strip(), line.endswith(END)
