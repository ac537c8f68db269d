"""Which labels are of something that is not asked any more: a claim or a persona that changed, or went."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.guard.labels.files import Label
from persona_pipeline.world.models import Persona
from persona_pipeline.world.personas import agent_ids, load_persona
from persona_pipeline.world.propositions.dimensions import DIMENSIONS
from persona_pipeline.world.propositions.loading import PROPOSITIONS, find_proposition_set
from persona_pipeline.world.propositions.models import PropositionSet, claim_variables, template_variables

_ANONYMOUS = r"Speaker [A-Z]\d*"


@dataclass(frozen=True)
class StaleLabel:
    """A label that must not be used, and why, in a few words."""

    label: Label
    reason: str

    def __str__(self) -> str:
        label = self.label
        return f"{label.agent_id}/{label.dimension}/{label.proposition_id} by {label.labeller}: {self.reason}"


def stale_labels(root: Path, labels: Iterable[Label], *, is_judged: Callable[[str], bool]) -> list[StaleLabel]:
    """Return the labels that are stale: of a claim, or with a persona, that the world does not ask with now, or of nothing judged.

    Windows do not matter: last month's judgments of the same claim still tell how far the judge can be believed.

    Args:
        root: the world.
        is_judged: whether the world knows a verdict of a judge on a judgment's key.

    Raises:
        ConfigError: the world's personas or propositions are not valid.
    """
    agents = set(agent_ids(root))

    @cache
    def persona_of(agent_id: str) -> Persona:
        return load_persona(root, agent_id)

    @cache
    def claims_of(agent_id: str, dimension: str) -> PropositionSet | None:
        return find_proposition_set(root / PROPOSITIONS, dimension, agent_id)

    def why(label: Label) -> str | None:
        if label.agent_id not in agents:
            return "the agent is gone"
        claims = claims_of(label.agent_id, label.dimension)
        asked = {item.id: item.claim for item in claims.propositions} if claims else {}
        if claims is None or label.proposition_id not in asked:
            return "the claim is gone"
        persona = persona_of(label.agent_id)
        if not _pattern(asked[label.proposition_id], persona.display_name).fullmatch(label.claim):
            return "the claim has changed"
        shown = claims.include_personas and DIMENSIONS[label.dimension].shows_persona
        if label.persona != (content_hash(persona.persona) if shown else None):
            return "the persona has changed"
        return (
            None
            if is_judged(label.key)
            else "no judge's verdict on it is known: its messages changed, or its recording is gone"
        )

    return [StaleLabel(label, reason) for label in labels if (reason := why(label))]


@cache
def _pattern(claim: str, display_name: str) -> re.Pattern[str]:
    """Return what a claim may read once its variables are filled in, whatever the channel."""
    name = re.escape(claim_variables({"agent_name": display_name})["agent_name"])
    text = re.escape(claim)
    for variable in template_variables(claim):
        filled = f"(?:{name}|{_ANONYMOUS})" if variable == "agent_name" else ".+"
        text = text.replace(re.escape(f"{{{{{variable}}}}}"), filled)
    return re.compile(text, re.DOTALL)
