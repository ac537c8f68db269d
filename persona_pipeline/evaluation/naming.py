"""Names that do not match, as findings of a run: an agent that seems to be silent may only be called otherwise."""

from collections.abc import Iterator

from persona_pipeline.evaluation.report import Finding
from persona_pipeline.world.speakers import NameMatch, silence

KIND = "names"
_CHECK = "see under which name it speaks and list that under aliases in its persona file, or take the persona out"


def name_findings(match: NameMatch) -> list[Finding]:
    """Return a finding for each agent without messages, and for each name that is an agent's but for its spelling."""
    return [*_silent(match), *_misspelt(match)]


def name_notes(match: NameMatch) -> list[str]:
    """Return a line about everybody else who speaks and has no persona; most of them belong there."""
    told = {finding.message for finding in _misspelt(match)}
    likely = [
        item.text for item in match.strangers if item.agent_id not in (None, *match.silent) and item.text not in told
    ]
    return [*likely, *filter(None, [match.note()])]


def _silent(match: NameMatch) -> Iterator[Finding]:
    for agent_id in match.silent:
        meant = [item for item in match.strangers if item.agent_id == agent_id]
        said = "".join(f"; {item.name!r} has {item.said} and no persona: is it {agent_id!r}?" for item in meant)
        remedy = meant[0].remedy if meant else _CHECK
        yield Finding(kind=KIND, message=silence(agent_id) + said, remedy=remedy, agent_id=agent_id)


def _misspelt(match: NameMatch) -> Iterator[Finding]:
    for item in match.strangers:
        if item.spelling and item.agent_id not in match.silent:
            yield Finding(kind=KIND, message=item.text, agent_id=item.agent_id)
