"""An agent as it is interviewed. Its names are hidden from a judge that may know the character.

Each name becomes an invented one, and is turned back in quotes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import regex

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.evaluation.plan import AgentPlan
from persona_pipeline.lab.compare.scenes import Answering, AskedScene, Scene, answer_plan, script_scene
from persona_pipeline.lab.interview_scenes import InterviewScene
from persona_pipeline.lab.results import CHANGE, check_change
from persona_pipeline.lab.versions import HERE, Version, VersionAgent
from persona_pipeline.world.propositions.loading import StoredSet
from persona_pipeline.world.propositions.models import CONVERGENCE, select_dimensions
from persona_pipeline.world.world import World

SESSIONS = 3
_INVENTED = ("Velmar", "Quorin", "Tasbek", "Ildram", "Norvex", "Pelund", "Ostrev", "Karnil", "Dremas", "Fyolt")
_CASED = r"[\p{Lu}\p{Ll}\p{N}]"
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")


@dataclass(frozen=True)
class HiddenNames:
    """Names and their invented replacements; names of ``exact`` are replaced only in that spelling."""

    pairs: Mapping[str, str]
    exact: Collection[str] = ()

    @classmethod
    def of(cls, agent: VersionAgent) -> "HiddenNames":
        """Return how an agent's display name, aliases and id are hidden, word by word.

        A name with a word that its persona or claims also have in small letters, as "Help Desk", is only hidden as a whole.
        """
        persona = agent.persona
        sets = [stored.propositions.propositions for stored in agent.sets.values() if stored.propositions is not None]
        texts = [persona.persona, *(item.claim for claims in sets for item in claims)]
        common = {word for text in texts for word in _WORD.findall(text) if word.islower()}
        found: dict[str, str] = {}
        for name in (persona.display_name, *persona.aliases, persona.agent_id):
            words = [word for word in _WORD.findall(name) if len(word) > 1]
            for word in [name] if any(word.lower() in common for word in words) else words:
                found.setdefault(word.casefold(), word)
        rounds = range(len(found) // len(_INVENTED) + 1)
        invented = (f"{word}{turn or ''}" for turn in rounds for word in _INVENTED)
        return cls(
            dict(zip(found.values(), invented, strict=False)),
            [name for name in found.values() if name.lower() in common],
        )

    def hide(self, text: str) -> str:
        """Return a text with the invented names."""
        patterns = []
        for name in sorted(self.pairs, key=len, reverse=True):
            found = f"(?{'-i' * (name in self.exact)}:{regex.escape(name)})"
            # Scripts without capitals put no space between words.
            patterns.append(rf"(?<!{_CASED}){found}(?!{_CASED})" if name.lower() != name.upper() else found)
        return _replaced(text, patterns, self.pairs)

    def show(self, text: str) -> str:
        """Return a text with the real names again."""
        back = {invented: name for name, invented in self.pairs.items()}
        return _replaced(text, sorted(back, key=len, reverse=True), back)

    def hidden(self, agent: VersionAgent) -> VersionAgent:
        """Return the agent as the judge is to see it: its name, persona and claims."""
        own = agent.persona
        own = replace(own, display_name=self.hide(own.display_name), persona=self.hide(own.persona))
        sets = dict(agent.sets)
        for name, stored in agent.sets.items():
            if (claims := stored.propositions) is not None:
                said = tuple(replace(item, claim=self.hide(item.claim)) for item in claims.propositions)
                sets[name] = StoredSet(stored.version, replace(claims, propositions=said))
        return VersionAgent(own, sets, {**agent.names, own.agent_id: own.display_name})


def _replaced(text: str, patterns: Sequence[str], names: Mapping[str, str]) -> str:
    """Return a text with names replaced, with the same small or capital letters."""
    by_key = {name.casefold(): other for name, other in names.items()}

    def other(match: regex.Match[str]) -> str:
        said, new = match[0], by_key[match[0].casefold()]
        return new.lower() if said.islower() else new.upper() if said.isupper() and len(said) > 1 else new

    return regex.sub("|".join(patterns), other, text, flags=regex.IGNORECASE) if patterns else text


@dataclass(frozen=True)
class InterviewRequest:
    """Whom to interview, and how.

    Attributes:
        dimensions: None for all that it has claims of, convergence left out.
        sessions: how often every scene is asked, from its beginning.
        change: points (0-9) that a dimension, or a kind of scene in it, may drop.
        samples: judgments per claim.
        hide_names: the judge sees invented names.
    """

    agent_id: str
    dimensions: Sequence[str] | None = None
    sessions: int = SESSIONS
    change: float = CHANGE
    samples: int = 1
    hide_names: bool = True

    def __post_init__(self) -> None:
        check_change(self.change)


@dataclass(frozen=True)
class Interviewee:
    """An agent as it is asked, and as the judge sees it."""

    agent: VersionAgent
    names: HiddenNames
    judged: VersionAgent

    @classmethod
    def of(cls, world: World, request: InterviewRequest) -> "Interviewee":
        """Read an agent; ConfigError: there is none, its files are not valid, or it has no claims to be judged by."""
        wanted = [name for name in select_dimensions(request.dimensions) if name != CONVERGENCE.name]
        agent = Version(HERE, world.root).agent(request.agent_id, wanted)
        agent = replace(agent, sets={name: stored for name, stored in agent.sets.items() if stored.propositions})
        if not agent.sets:
            raise ConfigError(f"{request.agent_id} has no claims of {', '.join(wanted)}; nothing can be judged by")
        names = HiddenNames.of(agent) if request.hide_names else HiddenNames({})
        return cls(agent, names, names.hidden(agent))

    def plan(self, world: World, scene: Scene, texts: Sequence[str], samples: int) -> AgentPlan:
        """Return the questions about a conversation, with the names that the judge sees."""
        shown = replace(scene, turns=tuple(map(self.names.hide, scene.turns)))
        return answer_plan(world, self.judged, shown, [*map(self.names.hide, texts)], samples)

    def asked(self, scenes: Sequence[InterviewScene], session: int, answering: Answering) -> list[AskedScene]:
        """Return the questions to the target in a session, counted from 0."""
        target, sent = answering.targets[0], answering.with_persona
        return [AskedScene(target, self.agent, script_scene(item, session), sent) for item in scenes]
