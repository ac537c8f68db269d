"""What a check needs to know beforehand, gathered in one go by one thread."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from persona_pipeline.corrections.configuration import read_config
from persona_pipeline.corrections.history import Before, action_trajectory
from persona_pipeline.corrections.records import PriorAttempts, prior_attempts
from persona_pipeline.errors import ConfigError
from persona_pipeline.propositions import PROPOSITIONS, load_proposition_set, proposition_files_hash
from persona_pipeline.propositions.dimensions import ADHERENCE
from persona_pipeline.propositions.models import ACTION_LEVEL_WINDOW_DEFAULTS, PropositionSet
from persona_pipeline.propositions.templates import claim_variables
from persona_pipeline.store import tables
from persona_pipeline.world.models import CorrectionSettings
from persona_pipeline.world.trajectory import Trajectory
from persona_pipeline.world.world import World


@dataclass(frozen=True)
class GateFacts:
    """Everything about an action but the judgment."""

    settings: CorrectionSettings
    persona: str
    propositions: PropositionSet
    trajectory: Trajectory
    variables: Mapping[str, str]
    prior: PriorAttempts


class Propositions:
    """The adherence propositions of each agent, parsed again only when a file has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[str, PropositionSet]] = {}

    def of(self, agent_id: str) -> PropositionSet:
        """Return an agent's set.

        Raises:
            ConfigError: a file is not valid, or there is none.
        """
        digest = proposition_files_hash(self._root, ADHERENCE.name, agent_id)
        known = self._known.get(agent_id)
        if known is None or known[0] != digest:
            found = load_proposition_set(self._root / PROPOSITIONS, ADHERENCE.name, agent_id)
            known = self._known[agent_id] = (digest, found)
        return known[1]


def gather_facts(
    world: World,
    propositions: Propositions,
    *,
    agent_id: str,
    text: str,
    channel: str | None,
    recipient: str | None,
    action_id: str | None,
    known: PriorAttempts,
    settings: CorrectionSettings | None,
    before: Before | None = None,
) -> GateFacts | None:
    """Return the facts of a check, or None when the agent's gate is off.

    Args:
        action_id: looked up for earlier attempts where this process remembers none; None on a first attempt.
        known: earlier attempts this process remembers.
        before: of a stored message that is looked at again; see ``action_trajectory``.

    Raises:
        ConfigError: the agent has no persona or no valid propositions.
    """
    settings = settings or read_config(world.store, agent_id).settings
    if not settings.action_gate_enabled:
        return None
    found = propositions.of(agent_id)
    if not found.propositions:
        raise ConfigError(f"agent {agent_id!r} has no adherence propositions to be checked against")
    first_n, last_n = found.window(ACTION_LEVEL_WINDOW_DEFAULTS)
    agents = tables.agents
    with world.store.connect() as connection:
        row = connection.execute(sa.select(agents).where(agents.c.id == agent_id)).one_or_none()
        if row is None or row.persona is None:
            raise ConfigError(f"agent {agent_id!r} has no persona in the store; write personas/{agent_id}.yaml")
        trajectory = action_trajectory(
            connection,
            agent_id=agent_id,
            text=text,
            channel=channel,
            recipient=recipient,
            whole_channel=found.target_type == "environment",
            first_n=first_n,
            last_n=last_n,
            before=before,
        )
        if action_id is not None and known.first_text is None:
            known = prior_attempts(connection, agent_id, action_id)
    names = {"agent_name": row.display_name}
    if channel is not None:
        names["channel_name"] = channel
    if recipient is not None:
        names["recipient_name"] = trajectory.entries[-1].recipient or recipient
    return GateFacts(settings, row.persona, found, trajectory, claim_variables(names), known)
