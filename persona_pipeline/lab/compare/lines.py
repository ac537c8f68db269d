"""The scenes that moved most, for a person to read: the answers of both versions side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from persona_pipeline.base.text import shortened
from persona_pipeline.lab.answering import SceneAnswers
from persona_pipeline.lab.results import AgentDifference, SceneClaim, ScoreChange, SideBySide
from persona_pipeline.lab.scenes import Scene
from persona_pipeline.scoring.adherence import message_scores
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.world.propositions.models import ADHERENCE

# Scenes that are shown, claims of each, and characters of a line.
MOST_SHOWN, _MOST_CLAIMS, _MOST_CHARACTERS = 3, 3, 2_000
_Judged = Mapping[str, DimensionEvaluation]


@dataclass(frozen=True)
class AnsweredScene:
    """A scene that both answered: the answers, and their judged dimensions."""

    scene: Scene
    answers: tuple[SceneAnswers, SceneAnswers]
    judged: tuple[_Judged, _Judged]

    def turns(self, side: int) -> list[float | None]:
        """Return the score of each answer of a side (0 or 1) that was judged alone."""
        scores = message_scores(self.judged[side][ADHERENCE.name]) if ADHERENCE.name in self.judged[side] else {}
        return [scores.get(self.scene.answer_id(place)) for place in range(len(self.answers[side].texts))]

    def scores(self, moved: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Return the scores of some dimensions before and after, where they differ in this scene."""
        before, after = ({name: item.score for name, item in judged.items()} for judged in self.judged)
        pairs = [(name, before.get(name), after.get(name)) for name in moved]
        return {
            name: (one, other) for name, one, other in pairs if one is not None and other is not None and other != one
        }

    def claims(self, dimensions: Sequence[str]) -> list[tuple[SceneClaim, str]]:
        """Return claims with another score, the largest change first, each with the id of the quoted message."""
        found = list[tuple[SceneClaim, str]]()
        for name in (name for name in dimensions if name in self.judged[0]):
            for key, after in self.judged[1][name].propositions.items():
                before = self.judged[0][name].propositions.get(key)
                if before and before.score is not None and after.score is not None and after.score != before.score:
                    last = [item for item in after.evidence if item.verified][-1:]
                    quote, place = (
                        (shortened(last[0].quote, _MOST_CHARACTERS), last[0].message_id or "") if last else ("", "")
                    )
                    claim = SceneClaim(claim=f"{name}/{key}", before=before.score, after=after.score, quote=quote)
                    found.append((claim, place))
        return sorted(found, key=lambda item: -abs(item[0].after - item[0].before))[:_MOST_CLAIMS]

    def side_by_side(self, moved: Sequence[str]) -> SideBySide:
        """Return the most telling line: that with the largest change, else a quoted one, or the last one."""
        scores, claims = self.scores(moved), self.claims(moved)
        turns = zip(self.turns(0), self.turns(1), strict=True) if ADHERENCE.name in scores else ()
        known = [(one, other, n) for n, (one, other) in enumerate(turns) if one is not None and other is not None]
        changes = [(abs(one - other), n) for one, other, n in known]
        ids = [self.scene.answer_id(place) for place in range(len(self.scene.lines))]
        quoted = [ids.index(name) for _, name in claims if name in ids]
        place = max(changes)[1] if changes else [*quoted, len(ids) - 1][0]
        line = self.scene.lines[place] or (self.scene.context[-1].text if self.scene.context else "")
        shown = (line, *(own.texts[place] for own in self.answers))
        asked, before, after = (shortened(text, _MOST_CHARACTERS) for text in shown)
        return SideBySide(
            scene=self.scene.id, kind=self.scene.kind, turn=place + 1, asked=asked, before=before, after=after,
            scores=scores, claims=tuple(claim for claim, _ in claims),
        )  # fmt: skip


def with_lines(agent: AgentDifference, answered: Sequence[AnsweredScene]) -> AgentDifference:
    """Return the comparison of an agent with the lines to read."""
    moved = [name for name, item in agent.dimensions.items() if item.moved in (ScoreChange.FELL, ScoreChange.ROSE)]
    moved += [item.dimension for item in agent.moved if item.dimension not in moved]
    changes = [(max((abs(a - b) for b, a in item.scores(moved).values()), default=0.0), item) for item in answered]
    shown = [item for change, item in sorted(changes, key=lambda pair: -pair[0])[:MOST_SHOWN] if change > 0]
    return agent.model_copy(update={"lines": tuple(item.side_by_side(moved) for item in shown)})
