"""Labelling in the terminal: the same queue as the page's, by plain lines."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from persona_pipeline.reporting.text import one_line, printable

if TYPE_CHECKING:
    from persona_pipeline.labels import Judgment
    from persona_pipeline.labels.session import Answered, Labelling

_HELP = "0-9, n (not applicable), s (skip), u (undo), q (quit); a note may follow the answer, such as: 7 keeps the joke"


def label_in_terminal(session: "Labelling") -> None:
    """Ask until all is labelled, ``q`` or the end of the input. Every answer is kept at once.

    Raises:
        ConfigError: the label files are not valid.
    """
    from persona_pipeline.labels.session import BANDS

    shown = None
    while (current := session.current()) is not None:
        if current.key != shown:
            _show(current, session)
            words = "; ".join(
                f"{band.first} {band.words}" if band.first == band.last else f"{band.first}-{band.last} {band.words}"
                for band in BANDS
            )
            typer.echo(f"{words}\n{_HELP}")
            shown = current.key
        try:
            line = input("> ").strip()
        except EOFError:
            typer.echo("")
            return
        word, _, note = line.partition(" ")
        try:
            if word in ("q", "quit"):
                return
            if word == "s":
                _tell(session.skip(current.key))
            elif word == "u":
                undone = session.undo()
                typer.echo("taken back" if undone else "there is nothing to take back")
            elif word == "n" or (word.isascii() and word.isdigit()):
                _tell(session.answer(current.key, None if word == "n" else int(word), note))
            else:
                typer.echo(_HELP)
        except ValueError as error:
            typer.echo(f"not kept: {error}\n{_HELP}")
    typer.echo("all of it is labelled")


def _show(judgment: "Judgment", session: "Labelling") -> None:
    from persona_pipeline.labels.session import TARGET

    request = judgment.request
    typer.echo("\n" + "-" * 72)
    typer.echo("  ".join(f"{item.dimension} {item.done}/{TARGET}" for item in session.progress()))
    if request.persona is not None:
        typer.echo(f"\nWho the agent should be:\n{_indented(request.persona)}")
    typer.echo("")
    part = None
    for item in request.trajectory.content():
        if "omitted" in item:
            typer.echo(f"[... {item['omitted']} left out ...]")
            continue
        if item.get("part") != part:
            part = item.get("part")
            typer.echo(f"-- {one_line(part or '')} --")
        typer.echo(f"{_who(item)}:\n{_indented(item['text'])}")
    typer.echo(f"\n{judgment.dimension}: does this hold, as it is written?\n\n  {one_line(request.claim)}\n")


def _who(item: dict[str, Any]) -> str:
    where = f" in #{item['channel']}" if "channel" in item else f" to {item['to']}" if "to" in item else ""
    return one_line(f"{item['speaker']}{where}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in printable(text).splitlines())


def _tell(answered: "Answered") -> None:
    if answered.label is None:
        typer.echo("skipped")
        return
    judges = Counter(
        f"{one_line(verdict.model or 'the judge')} said {'n/a' if verdict.score is None else verdict.score}"
        for verdict in answered.judgment.verdicts
    )
    typer.echo(f"kept; {', '.join(judges)}")
