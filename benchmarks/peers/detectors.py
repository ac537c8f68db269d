"""Drift detectors of peers, each run in the peer's own environment: python detectors.py NAME CASES.json FOUND.json

Nothing of persona-pipeline is imported here. Each gives, for every stream, the messages at which it fires by its documented
defaults (None: it documents none) and its score at each message or window at which it looked: higher is further from the history.
"""

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# What compares two sets of messages is shown the last fifty, every twenty-five.
WINDOW, STRIDE = 50, 25
Case = dict[str, Any]
Found = tuple[list[int] | None, list[tuple[int, float]]]
Detector = Callable[[list[int]], Found]


def windows(stream: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield how many messages were read, and the places of the last fifty."""
    for end in range(WINDOW, len(stream) + 1, STRIDE):
        yield end, stream[end - WINDOW : end]


def by_window(look: Callable[[list[int]], tuple[bool | None, float]]) -> Detector:
    """Return a detector that looks at windows; ``look`` says whether it fires and how far the window is off."""

    def detect(stream: list[int]) -> Found:
        seen = [(end, *look(places)) for end, places in windows(stream)]
        documented = all(fires is not None for _, fires, _ in seen)
        fired = [end for end, fires, _ in seen if fires] if documented else None
        return fired, [(end, score) for end, _, score in seen]

    return detect


def evidently_text(case: Case) -> Detector:
    """Evidently's default for a column of text: a domain classifier's ROC AUC beyond the 95th percentile of chance."""
    import numpy as np
    import pandas as pd
    from evidently.legacy.utils import data_drift_utils as drift
    from sklearn.model_selection import train_test_split

    known = pd.Series([case["texts"][place] for place in case["history"]])
    # The percentile is of a thousand random classifiers, the same for windows of one length: worked out once.
    target = np.array([0] * len(known) + [1] * WINDOW)
    _, _, _, held = train_test_split(target, target, test_size=0.5, random_state=42, shuffle=True)
    chance = float(drift.roc_auc_random_classifier_percentile(held, p_value=0.05))

    def look(places: list[int]) -> tuple[bool, float]:
        now = pd.Series([case["texts"][place] for place in places])
        try:
            area = float(drift.calculate_text_drift_score(known, now, bootstrap=False)[0])
        except ValueError:
            # No word is left: every one stands in more than half of the messages.
            area = 0.5
        return area > chance, area

    return by_window(look)


def evidently_descriptors(case: Case) -> Detector:
    """Four text descriptors, each by the test that evidently chooses; the data set drifts where half of them do."""
    import pandas as pd
    from evidently import DataDefinition, Dataset, Report
    from evidently import descriptors as of
    from evidently.legacy.calculations.stattests import get_stattest
    from evidently.legacy.core import ColumnType
    from evidently.metrics import ValueDrift

    kinds = (of.TextLength, of.WordCount, of.SentenceCount, of.NonLetterCharacterPercentage)
    names = [kind.__name__ for kind in kinds]
    described = Dataset.from_pandas(
        pd.DataFrame({"text": case["texts"]}),
        data_definition=DataDefinition(text_columns=["text"]),
        descriptors=[kind("text", alias=name) for kind, name in zip(kinds, names, strict=True)],
    ).as_dataframe()[names]
    known = described.iloc[case["history"]]
    checked: list[bool] = []

    def look(places: list[int]) -> tuple[bool, float]:
        now, chances, drifted = described.iloc[places], [], 0
        for name in names:
            old, new = known[name].dropna(), now[name].dropna()
            kind = ColumnType.Numerical
            result = get_stattest(old, new, kind, None)(old, new, kind, None)
            chances.append(float(result.drift_score))
            drifted += bool(result.drifted)
        if not checked:
            # The same numbers as a whole report, which takes fifty times longer.
            numbers = DataDefinition(numerical_columns=names)
            report = Report([ValueDrift(column=name) for name in names]).run(
                *(Dataset.from_pandas(rows.reset_index(drop=True), data_definition=numbers) for rows in (now, known))
            )
            told = [float(item["value"]) for item in report.dict()["metrics"]]
            assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(told, chances, strict=True)), (told, chances)
            checked.append(True)
        return drifted / len(names) >= 0.5, -math.log10(max(sorted(chances)[1], 1e-300))

    return by_window(look)


def alibi_ks(case: Case) -> Detector:
    """Kolmogorov-Smirnov on each of 32 components, Bonferroni's correction, p below .05."""
    import numpy as np
    from alibi_detect.cd import KSDrift

    vectors = np.array(case["vectors"])
    detector = KSDrift(vectors[case["reference"]], p_val=0.05)

    def look(places: list[int]) -> tuple[bool, float]:
        data = detector.predict(vectors[places])["data"]
        return bool(data["is_drift"]), -math.log10(max(float(np.min(data["p_val"])), 1e-300))

    return by_window(look)


def frouros_mmd(case: Case) -> Detector:
    """Maximum mean discrepancy of 32 components, without its permutation test: that takes half a second a window."""
    import numpy as np
    from frouros.detectors.data_drift import MMD

    vectors = np.array(case["vectors"])
    detector = MMD()
    detector.fit(X=vectors[case["reference"]])

    def look(places: list[int]) -> tuple[None, float]:
        return None, float(detector.compare(X=vectors[places])[0].distance)

    return by_window(look)


def _trackers(case: Case, made: dict[float, Callable[[], Any]], usual: float) -> Detector:
    """Return a detector of river's over how near each message is to the history; by strictness, higher is stricter."""
    near = case["near"]

    def detect(stream: list[int]) -> Found:
        fired: list[int] = []
        scores: dict[int, float] = {}
        for strict in sorted(made):
            tracker = made[strict]()
            for place in case["reference"]:
                tracker.update(near[place])
            for number, place in enumerate(stream, start=1):
                tracker.update(near[place])
                if tracker.drift_detected:
                    scores[number] = strict
                    if strict == usual:
                        fired.append(number)
        return fired, sorted(scores.items())

    return detect


def river_adwin(case: Case) -> Detector:
    from river.drift import ADWIN

    deltas = (0.3, 0.1, 0.03, 0.01, 0.002, 1e-3, 1e-4, 1e-6, 1e-9, 1e-12)
    made = {-math.log10(delta): lambda delta=delta: ADWIN(delta=delta) for delta in deltas}
    return _trackers(case, made, -math.log10(0.002))


def river_page_hinkley(case: Case) -> Detector:
    from river.drift import PageHinkley

    limits = (5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 250.0)
    made = {limit: lambda limit=limit: PageHinkley(threshold=limit) for limit in limits}
    return _trackers(case, made, 50.0)


def alignmenter_authenticity(case: Case) -> Detector:
    """Authenticity without a judge: thirty messages as exemplars, hashed embeddings; how far a window lies below 1."""
    import yaml
    from alignmenter.scorers.authenticity import AuthenticityScorer

    generator = random.Random(1)
    known = [case["texts"][place] for place in case["history"]]
    persona = {"id": "it", "exemplars": generator.sample(known, min(30, len(known)))}
    persona["lexicon"] = {"preferred": case["words"], "avoid": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "persona.yaml"
        path.write_text(yaml.safe_dump(persona, allow_unicode=True), encoding="utf-8")
        scorer = AuthenticityScorer(path)

    kept: dict[int, float] = {}

    def look(places: list[int]) -> tuple[None, float]:
        # A window's score is the mean of its messages'; each is scored once, without the bootstrap of a whole window.
        for place in places:
            if place not in kept:
                turn = {"role": "assistant", "text": case["texts"][place]}
                kept[place] = float(scorer.score([{"turns": [turn]}])["mean"])
        return None, 1.0 - sum(kept[place] for place in places) / len(places)

    return by_window(look)


def persiq_tracker(case: Case) -> Detector:
    """Distance of the last five messages from the persona's examples; TF-IDF in place of a model that would be downloaded."""
    from persiq import PersonaDefinition, Tracker
    from persiq.embedder import EmbedderBase
    from sklearn.feature_extraction.text import TfidfVectorizer

    known = [case["texts"][place] for place in case["history"]]
    tfidf = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, min_df=2).fit(known)
    kept: dict[str, Any] = {}

    class Embedder(EmbedderBase):
        def embed(self, text: str) -> Any:
            if text not in kept:
                kept[text] = tfidf.transform([text]).toarray()[0]
            return kept[text]

    persona = PersonaDefinition("it", "", example_phrases=random.Random(1).sample(known, min(30, len(known))))
    embedder = Embedder()

    def detect(stream: list[int]) -> Found:
        tracker = Tracker(persona, embedder, alert_mode="callback", callback=lambda alert: None)
        scores = []
        for number, place in enumerate(stream, start=1):
            tracker.add_turn("assistant", case["texts"][place])
            scores.append((number, tracker.get_scores()[-1].window_mean))
        # Its limit of .25 is meant for the distances of its own model.
        return None, scores

    return detect


DETECTORS: dict[str, Callable[[Case], Detector]] = {
    "evidently text": evidently_text,
    "evidently descriptors": evidently_descriptors,
    "alibi-detect KS": alibi_ks,
    "frouros MMD": frouros_mmd,
    "river ADWIN": river_adwin,
    "river Page-Hinkley": river_page_hinkley,
    "Alignmenter": alignmenter_authenticity,
    "persiq": persiq_tracker,
}


def run(detectors: dict[str, Callable[[Case], Detector]], name: str, given: str, out: str) -> None:
    """Read every stream of every case with a detector, and write what it found and how long one read took."""
    found = []
    for case in json.loads(Path(given).read_text(encoding="utf-8")):
        started = time.process_time()
        detect = detectors[name](case)
        learnt = time.process_time()
        streams, read = {}, None
        # Timed is the first stretch of its own messages, when nothing of it is known yet.
        for kind in ("unchanged", *(kind for kind in case["streams"] if kind != "unchanged")):
            for stream in case["streams"][kind]:
                streams.setdefault(kind, []).append(detect(stream))
                if read is None:
                    read = (time.process_time() - learnt, len(stream))
        found.append({"streams": streams, "learnt": learnt - started, "read": read})
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def stability(given: str, out: str) -> None:
    """Write how alike Alignmenter finds the messages of each window: minus their mean distance from their middle."""
    from alignmenter.scorers.stability import StabilityScorer

    scorer, found = StabilityScorer(), []
    for texts in json.loads(Path(given).read_text(encoding="utf-8")):
        turns = [{"role": "assistant", "text": text} for text in texts]
        found.append(-float(scorer.score([{"turns": turns}])["mean_distance"]))
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__" and sys.argv[1] == "stability":
    stability(*sys.argv[2:4])
elif __name__ == "__main__":
    run(DETECTORS, *sys.argv[1:4])
