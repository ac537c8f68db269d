"""``persona-pipeline facts``: what agents said of themselves, what of it contradicts, and what of it is canon."""

from typing import Annotated, Any

import typer

from persona_pipeline.base.errors import EXIT_BUDGET, EXIT_COVERAGE, EXIT_OK, EXIT_REGRESSION, ConfigError
from persona_pipeline.cli.claims import Format, Output, check_format
from persona_pipeline.cli.options import asks, judge_name, names, open_world, request_of
from persona_pipeline.cli.running import end, watched_judging


@asks("as_of", "judge", "max_usd", "record", "fresh")
def facts(
    context: typer.Context,
    agents: Annotated[str, typer.Argument(help="'all', or agents with commas between them.")],
    canon: Annotated[str | None, typer.Option(metavar="ID", help="Lay down this fact, and read nothing.")] = None,
    window: Annotated[str, typer.Option(help="How much of what was said is read, such as 30d, or 'all'.")] = "all",
    estimate: Annotated[bool, typer.Option(help="Print calls, tokens and US dollars it would take.")] = False,
    format: Format = "table",
    output: Output = None,
    **asked: Any,
) -> None:
    """List what agents said of themselves, with the lines, and what contradicts.

    A judge reads each conversation once; what is recorded or in the store is not asked again.

    Exit codes: 0 all was read and nothing contradicts, 1 something contradicts, 2 usage or configuration,
    3 not all was read or compared, 4 budget.
    """
    from pydantic_core import to_jsonable_python

    from persona_pipeline.evaluation.estimate import estimate_facts
    from persona_pipeline.evaluation.run import read_facts
    from persona_pipeline.judging.open import JudgeOptions, open_judge
    from persona_pipeline.reporting.pages.instruments import facts_page
    from persona_pipeline.reporting.render import write_page
    from persona_pipeline.scoring.facts.known import known_facts, mark_canon

    check_format(format)
    request, world = request_of(context, asked, agents=names(agents), window=window, facts=True), open_world()
    if canon is not None:
        with world.store.connect() as connection:
            known = {item.id: item for item in known_facts(connection, agents)}
        if canon not in known:
            raise ConfigError(f"{agents!r} has no fact {canon!r}; `persona-pipeline facts {agents}` lists them")
        typer.echo(f"canon: {mark_canon(world.root, agents, known[canon])}")
        return
    if estimate:
        typer.echo(estimate_facts(world, request))
        return
    with watched_judging() as progress:
        judge = open_judge(judge_name(request.judge, world=world), world, JudgeOptions.of(request, progress))
        found = read_facts(world, judge, request)
    write_page(facts_page(found), {"agents": to_jsonable_python(found)}, format, output)
    short = EXIT_BUDGET if any("budget" in item.failed for item in found) else EXIT_COVERAGE
    code = EXIT_OK if all(item.is_whole for item in found) else short
    end(
        EXIT_REGRESSION if any(item.contradictions for item in found) else code,
        looked_at=sum(item.conversations for item in found),
        looked_for=f"conversations of {agents} in --window {window}",
    )
