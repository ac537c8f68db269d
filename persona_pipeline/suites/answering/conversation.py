"""Conversations: a target is asked turn by turn, with written lines or those of a target that plays the user."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from persona_pipeline.suites.answering.base import ResponseError
from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import SimulatedUser, Test, present
from persona_pipeline.suites.format.tests import content_texts

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


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as OpenAI's APIs take them. A tool's message becomes the user's: the call that it answers is not known."""
    return [
        {
            "role": role if (role := message["role"]) in ("system", "assistant") else "user",
            "content": message["content"],
        }
        for message in messages
        if message["content"].strip()
    ]


def hold_conversation(
    test: Test, answer: Callable[[Test, int], Output], ask_user: Callable[[Messages], Output]
) -> Iterator[Output]:
    """Yield the target's answers, turn by turn.

    ``answer``: asks the target; gets a test whose input is the conversation so far, and the turn's number from 0.
    ``ask_user``: asks the simulated user; gets the conversation so far.
    """
    said = [*test.input_messages]
    for number in range(test.user.turns if test.user else len(test.turns)):
        user_cost, ends = None, False
        if number < len(test.turns):
            asked = [*test.turns[number].input_messages]
        else:
            reply = ask_user(said)
            line, ends = _without_end(reply.text)
            if not line:
                return
            asked = [present({"role": "user", "content": line, "name": test.user and test.user.agent})]
            user_cost = reply.cost_usd
        output = replace(answer(turn_of(test, number, [*said, *asked]), number), asked=asked, user_cost_usd=user_cost)
        yield output
        said += [*asked, {"role": "assistant", "content": output.text}]
        if ends:
            return


def turn_of(test: Test, number: int, said: Messages) -> Test:
    """Return a turn as a test whose input is the conversation up to it."""
    own = (
        test.turns[number]
        if number < len(test.turns)
        else replace(test, expected_outcome="", expected_messages=(), reference_answer="")
    )
    return replace(
        own, id=f"{test.id} turn {number + 1}", input_messages=tuple(said), turns=(), user=None, each_turn=()
    )


def turns_with_input(test: Test, output: Output) -> Iterator[tuple[Test, Output]]:
    """Yield each turn of a finished conversation as a test, with its answer."""
    said = [*test.input_messages]
    for number, turn in enumerate(output.turns):
        said += turn.asked
        yield turn_of(test, number, said), turn
        said.append({"role": "assistant", "content": turn.text})


def recorded_conversation(test: Test, output: Output, source: str) -> Output:
    """Return a recorded answer as the conversation of a test.

    Answers without user lines, one per turn, belong to the written lines. Raises ``ResponseError``: it is another
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
        raise ResponseError("invalid_response", f"{source} has {len(turns)} turns of {test.id!r}, which is {wanted}")
    for number, (turn, written) in enumerate(zip(turns, test.turns, strict=False), start=1):
        if _texts(turn.asked) != _texts(written.input_messages):
            raise ResponseError("stale", f"turn {number} of {test.id!r} was recorded with other words; record it again")
    return Output.of_turns(turns)


def _texts(messages: Messages) -> list[str]:
    return [text for message in messages for text in content_texts(message.get("content"))]


def _without_end(text: str) -> tuple[str, bool]:
    """Return a simulated user's line, and whether it ends the conversation."""
    line = text.strip()
    return line.removesuffix(END).strip(), line.endswith(END)
