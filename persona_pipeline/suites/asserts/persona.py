"""Asserts about an agent of the world: ``propositions``, ``persona_drift``, ``fades`` and ``voice``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from persona_pipeline.base.errors import did_you_mean
from persona_pipeline.suites.answering.output import Need, Output
from persona_pipeline.suites.format.models import PASS, Limit, Text
from persona_pipeline.suites.format.problems import ConfigEntry, Reader
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError, reaches

TOP = 9.0


def _known(name: str) -> str:
    from persona_pipeline.world.propositions.models import ALL_DIMENSIONS

    if name in ALL_DIMENSIONS:
        return name
    hint = did_you_mean(name, ALL_DIMENSIONS) or f"; the dimensions are {', '.join(ALL_DIMENSIONS)}"
    raise ValueError(f"there is no dimension {name!r}{hint}")


Dimension = Annotated[Text, AfterValidator(_known)]


class AgentClaims(Assert):
    """An assert that is judged by the claims of an agent."""

    judged = True
    needs = (Need.TEXT,)

    agent: Text = Field(description="The agent of the world.")

    @property
    def judged_dimensions(self) -> Sequence[str]:
        """The dimensions whose claims are judged."""
        return ("adherence",)

    def world_files(self, world: Path) -> Iterable[Path]:
        from persona_pipeline.suites.targets.persona import persona_files
        from persona_pipeline.world.propositions.loading import DEFAULT, PROPOSITIONS

        found = persona_files(world, self.agent)
        if not found:
            return []
        folders = [world / PROPOSITIONS / dimension for dimension in self.judged_dimensions]
        names = [f"{stem}.{ending}" for stem in (DEFAULT, self.agent) for ending in ("yaml", "yml")]
        return [*found, *(folder / name for folder in folders for name in names)]

    def default_name(self, spelled: str) -> str:
        return f"{spelled}-{self.agent}"


class PropositionClaims(AgentClaims):
    """How well the answer meets the claims of one dimension about an agent: the dimension's score over 9, so 0-1.

    The claims are in the world's ``propositions`` folder; ``only`` picks some by id. The answer's assistant messages are
    the agent's messages. Claims that do not apply are left out; a claim that could not be judged makes the assert an error.
    """

    dimension: Dimension = Field("adherence", description="The dimension: adherence, fluency, consistency, ...")
    only: list[Text] | None = Field(None, min_length=1, description="Ids of the claims to check; all by default.")
    level: Literal["evaluation", "action"] | None = Field(
        None, description="action: message by message, of adherence; by default as the file of the claims says."
    )

    def resolve(self, entry: ConfigEntry, reader: Reader) -> None:
        if self.level == "action" and self.dimension != "adherence":
            reader.fail(entry, f"level: action is of adherence, not of {self.dimension}", "level")

    @property
    def judged_dimensions(self) -> Sequence[str]:
        return (self.dimension,)

    def default_name(self, spelled: str) -> str:
        return f"{spelled}-{self.agent}-{self.dimension}"

    def grade(self, output: Output, context: Context) -> Grade:
        from persona_pipeline.suites.asserts.persona_evaluation import evaluate_output

        how = {"level": self.level} if self.level else {}
        found = evaluate_output(output, context, self.agent, self.dimension, only=self.only, **how)
        if found.score is None:
            said = f"no claim of {self.dimension} could be judged on this answer"
            raise UngradedError(found.unscored or "no_evidence", said)
        hits, misses = [], []
        missed: dict[str, Any] = {}
        for item in found.propositions.values():
            if item.score is not None:
                text = f"[{item.id}] {item.score:.1f} of 9: {item.reasoning or item.claim}"
                if reaches(item.score, PASS * TOP):
                    hits.append(text)
                else:
                    misses.append(text)
                    missed[item.id] = {"claim": item.claim, "quotes": [quote.quote for quote in item.evidence]}
        scores = {item.id: item.score for item in found.propositions.values()}
        details: dict[str, Any] = {"dimension": self.dimension, "score": found.score, "propositions": scores}
        details |= {"missed": missed} if missed else {}
        reasoning = f"{self.dimension} {found.score:.2f} of 9"
        return Grade(min(1.0, found.score / TOP), hits, misses, reasoning, details=details)


class PersonaDrift(AgentClaims):
    """The share of dimensions, 0-1, in which the answer is not behind the agent's baseline.

    A dimension is behind if its score drops by more than ``delta``, or a claim by more than ``proposition_delta`` (points of
    0-9). Without a baseline, or if a claim could not be judged, the assert is an error.
    """

    older_names: ClassVar[dict[str, str]] = {"dimensions": "dimension"}

    dimensions: list[Dimension] = Field(
        ["adherence"], min_length=1, description="What is compared; `dimension` names one."
    )
    delta: Limit = Field(1.0, description="How far a dimension may drop, on 0-9.")
    proposition_delta: Limit = Field(3.0, description="How far one claim may drop, on 0-9.")

    @classmethod
    def prepare(cls, data: dict[str, Any], entry: ConfigEntry, reader: Reader) -> dict[str, Any]:
        if "dimension" in data:
            if "dimensions" in data:
                reader.fail(entry, "keep one of dimension and dimensions", "dimension", key=True)
            data["dimensions"] = [data.pop("dimension")]
        return data

    @property
    def judged_dimensions(self) -> Sequence[str]:
        return self.dimensions

    def world_files(self, world: Path) -> Iterable[Path]:
        from persona_pipeline.guard.baselines.golden import BASELINES, baseline_path

        found = [*super().world_files(world)]
        return [*found, baseline_path(world / BASELINES, self.agent)] if found else []

    def grade(self, output: Output, context: Context) -> Grade:
        from persona_pipeline.suites.asserts.persona_evaluation import compare_output

        compared = compare_output(
            output, context, self.agent, self.dimensions, delta=self.delta, proposition_delta=self.proposition_delta
        )
        hits, misses = [], []
        details: dict[str, Any] = {}
        for name, item in compared.dimensions.items():
            if item.current is None or item.baseline is None:
                raise UngradedError("no_evidence", f"no claim of {name} could be judged on this answer")
            text = f"{name} {item.current:.2f} of 9, baseline {item.baseline:.2f}"
            drops = [f"{drop.proposition_id} {drop.current:.1f} from {drop.baseline:.1f}" for drop in item.drops]
            behind = item.status == "regressed" or bool(drops)
            (misses if behind else hits).append(f"{text}; dropped: {', '.join(drops)}." if drops else f"{text}.")
            details[name] = {"current": item.current, "baseline": item.baseline, "delta": item.delta}
        return Grade(len(hits) / len(compared.dimensions), hits, misses, details=details)


class CharacterFades(AgentClaims):
    """1 if the agent is still in character after ``half_life_at_least`` of its messages, else 0.

    Each message is judged alone, by the claims of adherence. The character is lost at the message after which the rest,
    together, lies farthest below the middle of the scale (``scoring.adherence``). A conversation that ends earlier, in
    character, is an error.
    """

    half_life_at_least: int = Field(ge=1, description="After how many of its messages it must still be in character.")
    only: list[Text] | None = Field(None, min_length=1, description="Ids of the claims to check; all by default.")

    def grade(self, output: Output, context: Context) -> Grade:
        from persona_pipeline.scoring.adherence import SHORTEST, MessageValue, character_end, message_scores
        from persona_pipeline.suites.asserts.persona_evaluation import conversation, evaluate_output

        alone = {"level": "action", "first_n": 0, "last_n": 1}
        found = evaluate_output(output, context, self.agent, "adherence", only=self.only, **alone)
        scores = message_scores(found)
        said = [message for message in conversation(output, context, self.agent) if message.agent_id == self.agent]
        turns = [MessageValue(number, scores.get(message.id)) for number, message in enumerate(said, start=1)]
        judged = [turn for turn in turns if turn.value is not None]
        if len(judged) < SHORTEST:
            raise UngradedError("too_short", f"{len(judged)} messages could be judged; {SHORTEST} are needed")
        end, lost = character_end(judged)
        details = {"agent": self.agent, "scores": [turn.value for turn in turns], "lost_from": end if lost else None}
        wanted = self.half_life_at_least
        if lost:
            text = f"{self.agent} is out of character from message {end} of {len(turns)} on"
            return Grade.saying(text, end > wanted, float(end > wanted), details=details)
        if len(turns) < wanted:
            text = f"the conversation ends in character after {len(turns)} messages, and {wanted} are asked for; make it longer"
            raise UngradedError("too_short", text)
        said = f"{self.agent} is in character to the end, after {len(turns)} messages"
        return Grade.saying(said, True, 1.0, details=details)


class VoiceSounds(AgentClaims):
    """The share of the answer's messages that are in character, 0-1, by one verdict of the judge per message.

    Messages that the judge calls unclear are left out; if all are unclear, the assert is an error.
    """

    def grade(self, output: Output, context: Context) -> Grade:
        from persona_pipeline.scoring.messages.verdicts import Role
        from persona_pipeline.suites.asserts.persona_evaluation import read_output

        found = read_output(output, context, self.agent)
        decided = [item for item in found.verdicts if item.verdict is not Role.UNCLEAR]
        if not decided:
            raise UngradedError("unclear", f"the judge cannot tell whether {self.agent} is in character")
        out = [item for item in decided if item.verdict is Role.OUT]
        said = f"{len(decided) - len(out)} of {len(decided)} messages of {self.agent} are in character"
        said += "".join(f'; out: "{item.quote}" {item.reason}' for item in out[:1])
        details = {"agent": self.agent, "out": [item.model_dump(include={"claims", "quote", "reason"}) for item in out]}
        return Grade.saying(said, not out, 1 - len(out) / len(decided), details=details)
