"""``persona-pipeline propositions`` and ``personas``: show, test and draft claims; draft personas; character cards."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_COVERAGE, ConfigError
from persona_pipeline.cli.options import (
    Estimate,
    MockJudge,
    asks,
    environment,
    judge_name,
    live_judge_name,
    names,
    open_world,
    request_of,
    say,
)
from persona_pipeline.cli.running import CommandResult, end, shows

if TYPE_CHECKING:
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.lab.claims.drafts import Draft
    from persona_pipeline.world.world import World

app = typer.Typer(help="Claims: show, test and draft them.", no_args_is_help=True)

Dimension = Annotated[str, typer.Option("--dimension", help="'all', or dimensions separated by commas.")]


@app.command()
@shows()
def show(
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    dimension: Annotated[str, typer.Option(help="adherence, consistency, fluency, convergence or ideas_quantity.")],
) -> CommandResult:
    """Print the claims of an agent in a dimension, with its name filled in."""
    from persona_pipeline.reporting.pages.experiments import claims_page
    from persona_pipeline.world.personas import find_world, load_persona
    from persona_pipeline.world.propositions.loading import PROPOSITIONS, load_proposition_set

    root = find_world(environment())
    merged = load_proposition_set(root / PROPOSITIONS, dimension, agent)
    try:
        variables = {"agent_name": load_persona(root, agent).display_name}
    except ConfigError as error:
        say(str(error))
        variables = {}
    said = f"{len(merged.propositions)} claims of {agent} in {dimension}"
    return CommandResult(claims_page(merged, variables), merged.to_dict(), summary=said)


@app.command()
@asks("window", "as_of", "judge", "max_usd", "record", "fresh")
@shows()
def test(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    dimension: Dimension = "all",
    faults: Annotated[
        str,
        typer.Option(
            help="'all', or several separated by commas: boilerplate, borrowed, repetition, flattened, contradiction."
        ),
    ] = "all",
    mock_judge: MockJudge = False,
    samples: Annotated[
        int, typer.Option(min=1, max=50, help="How often each claim is judged on each window; noise needs at least 2.")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the faults.")] = 0,
    estimate: Estimate = False,
    **asked: Any,
) -> CommandResult | None:
    """Break a character on purpose and show which claim catches which fault.

    Each fault is planted in messages that the agent sent, and every claim is judged on the changed and the original messages.
    Without --window and --as-of it uses the messages of the baseline.

    Exit codes: 0 fully judged, 2 usage or configuration, 3 not fully judged, 4 budget.
    """
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.lab.claims.trial import TrialRequest, plan_trial, run_trial
    from persona_pipeline.reporting.pages.experiments import matrix_page

    world, given = open_world(), request_of(context, asked)
    request = TrialRequest(
        agent_id=agent,
        dimensions=names(dimension),
        faults=names(faults),
        window=given.window if "window" in given.model_fields_set else None,
        as_of=given.as_of,
        samples=samples,
        seed=seed,
    )
    trial = plan_trial(world, request)
    if estimate:
        typer.echo(trial.estimate(world.settings))
        return None
    opened = open_judge(judge_name(given.judge, mock_judge, world=world), world, JudgeOptions.of(given))
    if opened.live:
        say(trial.estimate(world.settings))
    matrix = run_trial(trial, opened)
    return CommandResult(matrix_page(matrix), matrix.to_dict(), matrix.exit_code)


personas = typer.Typer(help="Personas: draft them from messages, import and export cards.", no_args_is_help=True)

_OF_A_DRAFT = ("judge", "max_usd", "record")
Agent = Annotated[str, typer.Argument(help="The agent's id, as in its messages.")]
Window = Annotated[str, typer.Option("--window", help="The messages to read: a length of time such as 30d, or 'all'.")]


@app.command()
@asks(*_OF_A_DRAFT)
def draft(
    context: typer.Context,
    agent: Agent,
    dimension: Annotated[
        str, typer.Option(help="adherence, consistency, fluency, convergence or ideas_quantity.")
    ] = "adherence",
    window: Window = "all",
    estimate: Estimate = False,
    **asked: Any,
) -> None:
    """Let a model propose claims, each with quotes from the messages.

    Writes propositions/DIMENSION/AGENT.draft.yaml, which is never judged. Existing files are not overwritten.

    Exit codes: 0 written, 2 usage or configuration, 3 nothing to write, 4 budget.
    """
    from persona_pipeline.lab.claims.drafts import plan_claims

    world = open_world()
    _let_write(world, plan_claims(world, agent, dimension, window), "claim", request_of(context, asked), estimate)


@personas.command("draft")
@asks(*_OF_A_DRAFT)
def draft_a_persona(
    context: typer.Context,
    agent: Agent,
    from_messages: Annotated[
        bool, typer.Option("--from-messages", help="Draft it from the agent's messages (required).")
    ] = False,
    window: Window = "all",
    estimate: Estimate = False,
    **asked: Any,
) -> None:
    """Let a model propose a persona from messages, with quotes from them.

    Writes personas/AGENT.draft.yaml, which is not used. Existing files are not overwritten.

    Exit codes: 0 written, 2 usage or configuration, 3 nothing to write, 4 budget.
    """
    from persona_pipeline.lab.claims.drafts import plan_persona

    if not from_messages:
        raise ConfigError("a persona is drafted from the agent's messages; add --from-messages")
    world = open_world()
    _let_write(world, plan_persona(world, agent, window), "sentence", request_of(context, asked), estimate)


def _let_write(world: "World", plan: "Draft", what: str, request: "EvaluationRequest", only_estimate: bool) -> None:
    """Print the cost, let the request's model write what is planned, and print what it wrote; ``what``: each part of it."""
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.lab.claims.drafts import cost_of, draft_backend, write_draft
    from persona_pipeline.reporting.text import cost_line, one_line, plural

    if only_estimate:
        typer.echo(cost_of(plan.question, world.settings))
        end()
    opened = open_judge(live_judge_name(world, request.judge), world, JudgeOptions.of(request))
    if opened.live:
        say(cost_of(plan.question, world.settings))
    drafted = write_draft(plan, draft_backend(opened))
    say(*(f"injection: {one_line(warning)}" for warning in drafted.warnings))
    say(*(f"dropped: {one_line(dropped)}" for dropped in drafted.dropped))
    say(cost_line(drafted.usage))
    if drafted.failure:
        say(f"no draft: {one_line(drafted.failure)}")
    if drafted.path is None:
        say("no file was written")
        end(EXIT_BUDGET if drafted.failure.startswith("budget") else EXIT_COVERAGE)
    typer.echo(f"{plural(drafted.kept, what)} written, please review: {drafted.path}")


@personas.command("import")
def import_cards(
    cards: Annotated[list[Path], typer.Argument(metavar="CARD...", help="Cards, V1 to V3: JSON, PNG or CHARX.")],
    agent: Annotated[str | None, typer.Option(help="The agent's id; default: made of the character's name.")] = None,
) -> None:
    """Make personas of character cards.

    Writes personas/AGENT.yaml, and the original card to cards/. Existing files are not overwritten.
    """
    from persona_pipeline.reporting.text import one_line
    from persona_pipeline.world.cards.files import card_notes, import_card

    if agent is not None and len(cards) > 1:
        raise ConfigError("--agent names one agent; import the cards one at a time")
    root = open_world().root
    for path in cards:
        agent_id, written = import_card(root, path, agent)
        typer.echo(f"{agent_id}: {', '.join(item.relative_to(root).as_posix() for item in written)}")
        say(*(f"  {one_line(note)}" for note in card_notes(root, agent_id)))


@personas.command("export")
def export_one(
    agent: Annotated[str, typer.Argument(help="The agent's id.")],
    format_name: Annotated[
        str | None, typer.Option("--format", help="json, png or charx; default: the card's own, else json.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The file to write; default: AGENT.json, .png or .charx here.")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="The picture of a PNG card; default: the imported one.")] = None,
    force: Annotated[bool, typer.Option(help="Replace an existing file.")] = False,
) -> None:
    """Write an agent's persona as a character card.

    It is the imported card with later edits, or a new card.
    """
    from persona_pipeline.base.documents.json import write_atomically
    from persona_pipeline.world.cards.files import CardFormat, export_card

    if format_name is not None and format_name not in list(CardFormat):
        raise ConfigError(f"--format {format_name}: write {', '.join(CardFormat)}")
    exported = export_card(open_world().root, agent, CardFormat(format_name) if format_name else None, image)
    path = output or Path(f"{agent}.{exported.format}")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists; name another with --output, or replace it with --force")
    write_atomically(path, exported.data)
    say(*exported.notes)
    typer.echo(f"{path}")
