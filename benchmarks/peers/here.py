"""persona-pipeline and the simplest baselines, measured as the peers are.

python -m benchmarks.peers.here NAME CASES.json FOUND.json
"""

import math
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np

from benchmarks.peers.detectors import Case, Detector, Found, by_window, run
from persona_pipeline.scoring.style.model import WINDOWS, learn_voice
from persona_pipeline.scoring.style.monitor import ALARM
from persona_pipeline.world.models import Message

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def _messages(case: Case, *, cast: bool) -> list[Message]:
    """Return the history as messages, a conversation every three hours; ``cast``: with what others of the world said."""
    said = [("it", talk, case["texts"][place]) for talk, place in zip(case["talks"], case["history"], strict=True)]
    said += [tuple(item) for item in case["others"]] if cast else []
    found = [
        Message(
            f"{who} {n}", who, text, START + timedelta(hours=3 * talk, seconds=10 * (n % 1000)), f"{who} talk {talk}"
        )
        for n, (who, talk, text) in enumerate(said)
    ]
    return sorted(found, key=lambda message: (message.created_at, message.id))


def _voice(case: Case, *, cast: bool) -> Detector:
    """The voice alarm, learnt from the history; the score is the highest level of its tests."""
    model = learn_voice("it", _messages(case, cast=cast))

    def detect(stream: list[int]) -> Found:
        if model is None or not model.limits:
            return [], [(len(stream), 0.0)]
        rows = model.rows([case["texts"][place] for place in stream], model.latest)
        levels = np.max([model.level(rows, window).max(axis=1) for window in WINDOWS], axis=0)
        scores = [(number, float(level)) for number, level in enumerate(levels, start=1)]
        return [number for number, level in scores if level >= ALARM], scores

    return detect


def length(case: Case) -> Detector:
    """Welch's t test of the logarithm of words a message, p below .05."""
    from scipy import stats

    words = np.log1p([len(text.split()) for text in case["texts"]])
    known = words[case["history"]]

    def look(places: list[int]) -> tuple[bool, float]:
        chance = float(stats.ttest_ind(known, words[places], equal_var=False).pvalue)
        return chance < 0.05, -math.log10(max(chance, 1e-300))

    return by_window(look)


def classifier(case: Case) -> Detector:
    """ROC AUC of a logistic regression that tells the window from the history, three folds, over the 32 components."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    vectors = np.array(case["vectors"])
    known = vectors[case["reference"]]
    # Scaled by the history, as components of TF-IDF are small.
    spread = known.std(axis=0) + 1e-9
    model, folds = LogisticRegression(C=0.1, class_weight="balanced"), StratifiedKFold(3, shuffle=True, random_state=1)

    def look(places: list[int]) -> tuple[None, float]:
        rows = np.vstack([known, vectors[places]]) / spread
        target = np.array([0] * len(known) + [1] * len(places))
        told = cross_val_predict(model, rows, target, cv=folds, method="decision_function")
        return None, float(roc_auc_score(target, told))

    return by_window(look)


HERE: dict[str, Callable[[Case], Detector]] = {
    "persona-pipeline, alone": lambda case: _voice(case, cast=False),
    "persona-pipeline, with its cast": lambda case: _voice(case, cast=True),
    "length": length,
    "TF-IDF classifier": classifier,
}


if __name__ == "__main__":
    run(HERE, *sys.argv[1:4])
