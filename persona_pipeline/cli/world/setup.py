"""``persona-pipeline init``, ``validate``, ``migrate``, ``schema``, ``forget``: a world begun, checked, its databases kept up."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_OK, ConfigError, NothingError, Problem
from persona_pipeline.cli.options import environment, open_world, say
from persona_pipeline.cli.running import end

# Those of the template world; to read them off the package would cost every start.
_LANGUAGES = "ar, de, en, es, fr, it, ja, nl, pt or zh"
DEPLOY = "deploy"
# The agents of the template world.
_EXAMPLES = ("mira", "otto")


def init(
    directory: Annotated[Path, typer.Argument(help="Folder of the new world; created if it does not exist.")],
    agent: Annotated[
        str | None, typer.Option(help="Your agent's name; by default an example of two agents.", metavar="NAME")
    ] = None,
    language: Annotated[str | None, typer.Option(help=f"Language of its agents and claims: {_LANGUAGES}.")] = None,
    messages: Annotated[str | None, typer.Option(help="Its messages: a file or folder that `ingest` reads.")] = None,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Also write deploy/ (Compose, Kubernetes); in a world that exists, only that."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", hidden=True, help="Accepted and ignored: nothing is asked.")] = False,
) -> None:
    """Begin a world of your own: an agent, its claims, and its messages.

    Nothing is overwritten: if a file is in the way, nothing is written.
    """
    from persona_pipeline.world.world import template_world, write_new

    there = (directory / "personas").is_dir()
    if messages and not agent:
        said = "--messages needs the agent's name in them: add --agent NAME"
        raise ConfigError(f"{said}, or run `persona-pipeline try {messages}`, which finds the agents")
    texts, name = {} if deploy and there else template_world(language or "en"), ""
    if agent:
        name = _agent_id(agent)
        texts = _own(texts, agent, name)
    written = write_new(directory, {**texts, **(deployment(directory) if deploy else {})})
    typer.echo(f"{len(written)} files written to {directory}")
    code = _bring_in(directory, messages) if messages else EXIT_OK
    typer.echo("Next:")
    if directory.resolve() != Path.cwd():
        typer.echo(f"  cd {directory}")
    if name:
        typer.echo(f"  (describe {agent} in personas/{name}.yaml, and write claims into propositions/)")
    if name and not messages:
        typer.echo("  persona-pipeline ingest FILE")
    if not (deploy and there):
        typer.echo("  persona-pipeline validate")
        typer.echo("  persona-pipeline evaluate --judge anthropic --record --samples 3    (needs ANTHROPIC_API_KEY)")
        typer.echo("  persona-pipeline baseline --samples 3")
    if deploy:
        typer.echo("  cp deploy/example.env deploy/.env && chmod 600 deploy/.env           (then fill it in)")
        typer.echo("  docker compose -f deploy/compose.yaml --env-file deploy/.env up --build --detach --wait")
    end(code)


def _agent_id(name: str) -> str:
    from persona_pipeline.world.personas import agent_id_of, is_name

    if not is_name(name):
        raise ConfigError(f"{name!r} is not a name; write 1 to 256 printable characters")
    # A name in another script has no Latin letters; the file can be renamed.
    return agent_id_of(name) or "agent"


def _own(texts: Mapping[str, str], name: str, agent_id: str) -> dict[str, str]:
    """Return the template with an undescribed agent in the place of its two, and without messages."""
    quoted = json.dumps(name, ensure_ascii=False)
    # Messages may name the agent by its name instead of its id.
    aliases = "" if name == agent_id else f"aliases: [{quoted}]\n"
    made = {
        path: text
        for path, text in texts.items()
        if Path(path).stem not in _EXAMPLES and not path.startswith("messages/")
    }
    made[f"personas/{agent_id}.yaml"] = (
        f"agent_id: {json.dumps(agent_id)}\n"
        f"display_name: {quoted}\n"
        f"{aliases}"
        "persona: |\n"
        f"  Say here who {name} is, how it writes, and what it never does.\n"
        "corrections: {}\n"
    )
    example_of = "Two agents of a small museum, to be replaced by your own."
    made["README.md"] = made["README.md"].replace(example_of, f"{name}.")
    return made


def _bring_in(directory: Path, messages: str) -> int:
    """Add messages to a new world, and return the exit code."""
    from persona_pipeline.cli.world.messages import bring_in
    from persona_pipeline.importing.run import ImportOptions
    from persona_pipeline.world.messages.files import IMPORTED

    world = open_world(directory)
    try:
        return bring_in(world, [str(Path(messages).expanduser())], ImportOptions(), output=directory / IMPORTED)
    except ConfigError as error:
        say(f"{error}\nbring them in later: persona-pipeline ingest FILE")
        return error.exit_code
    finally:
        world.store.close()


def deployment(directory: Path) -> dict[str, str]:
    """Return the files that a world in this folder is deployed with, text by path."""
    from persona_pipeline.deployment import render_deployment

    name = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-") or "personas"
    return {f"{DEPLOY}/{path}": text for path, text in render_deployment(name).items()}


def validate(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders; by default the whole world.")] = None,
    require_signed: Annotated[
        bool, typer.Option(help="Baselines that cannot be taken again from signed recordings are errors, no warnings.")
    ] = False,
) -> None:
    """Check the files of a world: every problem with its line.

    Personas, propositions, messages, recordings, labels, baselines and suites.
    Baselines are taken again from the recordings they name, without a call, and compared.

    Every problem is a line on stderr; exit code 2 if there is one.
    """
    from persona_pipeline.cli.world.checking import check_paths, check_world
    from persona_pipeline.world.personas import find_world

    root = environment().world_root
    checked = check_paths(paths) if paths else check_world(root, require_signed=require_signed)
    say(*(f"warning: {warning}" for warning in checked.warnings))
    if checked.problems:
        raise ConfigError(list(dict.fromkeys(checked.problems)))
    if not checked.files:
        raise NothingError(Problem("nothing to validate", str(find_world(environment()))))
    typer.echo("1 file is valid" if checked.files == 1 else f"{checked.files} files are valid")


def migrate() -> None:
    """Bring the store to this version, and with DAGSTER_HOME Dagster's own.

    Up-to-date stores are left alone. Every command that opens the store migrates it, too. In a deployment run this command first,
    so that a failed migration stops the upgrade and nothing else.
    """
    from persona_pipeline.base.database.engine import HEAD, default_url, open_store
    from persona_pipeline.world.personas import find_world

    settings = environment()
    if settings.database_url is None:
        find_world(settings)
    open_store(default_url(settings)).close()
    typer.echo(f"store: {HEAD}")
    if not os.environ.get("DAGSTER_HOME"):
        typer.echo("Dagster: DAGSTER_HOME is not set, nothing to do")
        return
    # Loading Dagster takes seconds, so its own command does that; the output is shown as it arrives.
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "instance", "migrate"]
    done = subprocess.run(command, check=False, cwd=os.environ["DAGSTER_HOME"])
    if done.returncode:
        raise ConfigError("Dagster's storage could not be migrated; the reason is above")


def schema(
    directory: Annotated[
        Path,
        typer.Argument(
            help="Where propositions.json, persona.json, suite.json, label.json, interview.json and world.json are written."
        ),
    ] = Path("schemas"),
) -> None:
    """Write JSON schemas of the files of a world, for editors."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schema_texts().items():
        (directory / name).write_text(text, encoding="utf-8")
        typer.echo(str(directory / name))


def schema_texts() -> dict[str, str]:
    """Return the schema files by name."""
    from persona_pipeline.guard.labels.files import Label
    from persona_pipeline.lab.scenes import InterviewFile
    from persona_pipeline.scoring.facts.known import CanonFile
    from persona_pipeline.suites.format.models import SUITE_SCHEMA
    from persona_pipeline.world.personas import PersonaFile
    from persona_pipeline.world.propositions.models import PropositionFile
    from persona_pipeline.world.settings import WorldFile

    found: dict[str, dict[str, Any]] = {
        "propositions.json": PropositionFile.model_json_schema(),
        "persona.json": PersonaFile.model_json_schema(),
        "canon.json": CanonFile.model_json_schema(),
        "suite.json": json.loads(SUITE_SCHEMA.read_text(encoding="utf-8")),
        "world.json": WorldFile.model_json_schema(),
        "label.json": Label.model_json_schema(),
        "interview.json": InterviewFile.model_json_schema(),
    }
    kind = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {name: json.dumps(kind | data, indent=2) + "\n" for name, data in found.items()}


def forget(
    days: Annotated[
        int | None, typer.Option(min=1, help="Windows that ended longer ago; default PERSONA_KEEP_REASONS_DAYS.")
    ] = None,
    messages: Annotated[
        int | None, typer.Option(min=1, help="Instead: delete messages older than so many days.")
    ] = None,
    person: Annotated[
        list[str] | None,
        typer.Option(help="Instead: list where this id or name stands. May be repeated, for one person."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Take the person out of the store; files and git are only named.")
    ] = False,
) -> None:
    """Take reasons and quotes out of old runs, or find and remove a person.

    Of old runs scores, findings and histories stay.
    """
    if person:
        _forget_person(person, yes)
        return
    if messages is not None:
        from persona_pipeline.world.messages.revision import age_out

        say(f"{age_out(open_world().store, messages)} messages are deleted, and stay out")
        return
    from persona_pipeline.world.runs import forget_reasons

    days = days or environment().keep_reasons_days
    if days is None:
        raise ConfigError("nothing says how old: add --days, or set PERSONA_KEEP_REASONS_DAYS")
    count = forget_reasons(open_world().store, days)
    say(f"{count} runs keep their scores and nothing more")


def _forget_person(names: list[str], yes: bool) -> None:
    from persona_pipeline.base.text import printable
    from persona_pipeline.world.people import Person

    world = open_world()
    # Messages in the world's files count as stored: an evaluation would import them.
    world.sync_messages()
    person = Person(world.store, names)
    stored = person.in_store(remove=yes)
    for place in (*stored, *person.in_files(world.root), *person.in_history(world.root)):
        typer.echo(printable(f"{place.where}: {place.count}" + (f" ({place.remedy})" if place.remedy else "")))
    if yes:
        say("taken out of the store; what has a remedy behind it is yours to do")
    elif stored:
        say("nothing is removed yet; add --yes to take them out of the store")
