"""What both versions answered, scene by scene, and the lines to read side by side where something fell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from persona_pipeline.lab.compare.scenes import Scene, SceneAnswers, answer_id
from persona_pipeline.lab.compare.signals import expenses_of, half_lives_of, turn_scores
from persona_pipeline.lab.results import AgentDifference, SceneClaim, ScoreChange, SideBySide
from persona_pipeline.scoring.fading import SHORTEST
from persona_pipeline.scoring.results import DimensionEvaluation

# Scenes that are shown, claims of each, and characters of a line.
MOST_SHOWN, _MOST_CLAIMS, _MOST_CHARACTERS = 3, 3, 2_000
_Judged = Mapping[str, DimensionEvaluation]


@dataclass(frozen=True)
class AnsweredScene:
    """A scene that both answered: the answers, what was judged of them, and what was read of them (0-9) without a judge."""

    scene: Scene
    answers: tuple[SceneAnswers, SceneAnswers]
    judged: tuple[_Judged, _Judged]
    signals: tuple[Mapping[str, float], Mapping[str, float]]

    def turns(self, side: int) -> list[float | None]:
        """Return the score of each answer of a side (0 or 1) that was judged by itself."""
        return turn_scores(self.scene, len(self.answers[side].texts), self.judged[side])

    def scores(self, fallen: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Return what is lower after than before in this scene, of some rows."""
        sides = [
            {name: item.score for name, item in judged.items() if item.score is not None} | dict(signals)
            for judged, signals in zip(self.judged, self.signals, strict=True)
        ]
        before, after = sides
        return {
            name: (before[name], after[name])
            for name in fallen
            if name in before and name in after and after[name] < before[name]
        }

    def claims(self, dimensions: Sequence[str]) -> list[tuple[SceneClaim, str]]:
        """Return the claims that fell, the farthest first, each with the id of the message that is quoted."""
        found = []
        for name in (name for name in dimensions if name in self.judged[0] and name in self.judged[1]):
            for key, after in self.judged[1][name].propositions.items():
                before = self.judged[0][name].propositions.get(key)
                if before and before.score is not None and after.score is not None and after.score < before.score:
                    quoted = next((item for item in reversed(after.evidence) if item.verified), None)
                    claim = SceneClaim(
                        claim=f"{name}/{key}",
                        before=before.score,
                        after=after.score,
                        quote=_cut(quoted.quote) if quoted else "",
                    )
                    found.append((claim, quoted.message_id or "" if quoted else ""))
        return sorted(found, key=lambda item: item[0].after - item[0].before)[:_MOST_CLAIMS]

    def side_by_side(self, fallen: Sequence[str]) -> SideBySide:
        """Return the line that tells most: that with the farthest drop, or the one quoted, else the last."""
        claims = self.claims(fallen)
        drops = [
            (one - other, place)
            for place, (one, other) in enumerate(zip(self.turns(0), self.turns(1), strict=True))
            if one is not None and other is not None and other < one
        ]
        ids = [answer_id(self.scene, place) for place in range(len(self.scene.lines))]
        quoted = [ids.index(name) for _, name in claims if name in ids]
        place = max(drops)[1] if drops else (quoted or [len(ids) - 1])[0]
        line = self.scene.lines[place] or (self.scene.context[-1].text if self.scene.context else "")
        before, after = (own.texts[place] for own in self.answers)
        return SideBySide(
            scene=self.scene.id,
            kind=self.scene.kind,
            turn=place + 1,
            asked=_cut(line),
            before=_cut(before),
            after=_cut(after),
            scores=self.scores(fallen),
            claims=tuple(claim for claim, _ in claims),
        )


def with_lines(agent: AgentDifference, answered: Sequence[AnsweredScene]) -> AgentDifference:
    """Return what was found of an agent with what its answers cost, how long it lasts, and the lines to read."""
    fallen = [name for name, item in agent.rows.items() if item.moved is ScoreChange.FELL]
    fallen += [item.dimension for item in agent.moved if item.dimension not in fallen]
    drops = [(max((b - a for b, a in item.scores(fallen).values()), default=0.0), item) for item in answered]
    shown = [item for drop, item in sorted(drops, key=lambda pair: -pair[0])[:MOST_SHOWN] if drop > 0]
    long = [item for item in answered if len(item.scene.lines) >= SHORTEST]
    return agent.model_copy(
        update={
            "lines": tuple(item.side_by_side(fallen) for item in shown),
            "half_life": half_lives_of(*([item.turns(side) for item in long] for side in (0, 1))) if long else {},
            "expenses": expenses_of([item.answers for item in answered]) if agent.signals else {},
        }
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
