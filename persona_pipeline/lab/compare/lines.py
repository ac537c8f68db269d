"""Answers of both versions, and the lines to read side by side where something dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from persona_pipeline.lab.compare.scenes import Scene, SceneAnswers, answer_id
from persona_pipeline.lab.compare.signals import (
    ADHERENCE,
    LATE_TURNS,
    SAID_AGAIN,
    expenses_of,
    turn_scores,
)
from persona_pipeline.lab.results import AgentDifference, SceneClaim, ScoreChange, SideBySide
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.scoring.text.said_again import find_said_again

# Scenes that are shown, claims of each, and characters of a line.
MOST_SHOWN, _MOST_CLAIMS, _MOST_CHARACTERS = 3, 3, 2_000
_Judged = Mapping[str, DimensionEvaluation]


@dataclass(frozen=True)
class AnsweredScene:
    """A scene that both answered: the answers, their judged dimensions, and their signals (0-9)."""

    scene: Scene
    answers: tuple[SceneAnswers, SceneAnswers]
    judged: tuple[_Judged, _Judged]
    signals: tuple[Mapping[str, float], Mapping[str, float]]

    def turns(self, side: int) -> list[float | None]:
        """Return the score of each answer of a side (0 or 1) that was judged alone."""
        return turn_scores(self.scene, len(self.answers[side].texts), self.judged[side])

    def scores(self, fallen: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Return the scores of some rows that are lower after than before in this scene."""
        before, after = (
            {name: item.score for name, item in judged.items()} | dict(signals)
            for judged, signals in zip(self.judged, self.signals, strict=True)
        )
        pairs = [(name, before.get(name), after.get(name)) for name in fallen]
        return {
            name: (one, other) for name, one, other in pairs if one is not None and other is not None and other < one
        }

    def claims(self, dimensions: Sequence[str]) -> list[tuple[SceneClaim, str]]:
        """Return dropped claims, the largest drop first, each with the id of the quoted message."""
        found = list[tuple[SceneClaim, str]]()
        for name in (name for name in dimensions if name in self.judged[0]):
            for key, after in self.judged[1][name].propositions.items():
                before = self.judged[0][name].propositions.get(key)
                if before and before.score is not None and after.score is not None and after.score < before.score:
                    last = [item for item in after.evidence if item.verified][-1:]
                    quote, place = (_cut(last[0].quote), last[0].message_id or "") if last else ("", "")
                    claim = SceneClaim(claim=f"{name}/{key}", before=before.score, after=after.score, quote=quote)
                    found.append((claim, place))
        return sorted(found, key=lambda item: item[0].after - item[0].before)[:_MOST_CLAIMS]

    def side_by_side(self, fallen: Sequence[str]) -> SideBySide:
        """Return the most telling line: that with the largest drop, else a repeated, a quoted, or the last one."""
        scores, claims = self.scores(fallen), self.claims(fallen)
        turns = zip(self.turns(0), self.turns(1), strict=True) if {ADHERENCE, LATE_TURNS} & scores.keys() else ()
        drops = [(one - other, n) for n, (one, other) in enumerate(turns) if one is not None and other is not None]
        ids = [answer_id(self.scene, place) for place in range(len(self.scene.lines))]
        quoted = [ids.index(name) for _, name in claims if name in ids]
        said = [("", text) for text in self.answers[1].texts] if SAID_AGAIN in scores else []
        again = [item.place for item in find_said_again(said)] if said else []
        place = max(drops)[1] if drops else [*again, *quoted, len(ids) - 1][0]
        line = self.scene.lines[place] or (self.scene.context[-1].text if self.scene.context else "")
        asked, before, after = map(_cut, (line, *(own.texts[place] for own in self.answers)))
        return SideBySide(
            scene=self.scene.id, kind=self.scene.kind, turn=place + 1, asked=asked, before=before, after=after,
            scores=scores, claims=tuple(claim for claim, _ in claims),
        )  # fmt: skip


def with_lines(agent: AgentDifference, answered: Sequence[AnsweredScene]) -> AgentDifference:
    """Return the comparison of an agent with the expenses of its answers and the lines to read."""
    fallen = [name for name, item in agent.rows.items() if item.moved is ScoreChange.FELL]
    fallen += [item.dimension for item in agent.moved if item.dimension not in fallen]
    drops = [(max((b - a for b, a in item.scores(fallen).values()), default=0.0), item) for item in answered]
    shown = [item for drop, item in sorted(drops, key=lambda pair: -pair[0])[:MOST_SHOWN] if drop > 0]
    return agent.model_copy(
        update={
            "lines": tuple(item.side_by_side(fallen) for item in shown),
            "expenses": expenses_of([item.answers for item in answered]) if agent.signals else {},
        }
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
