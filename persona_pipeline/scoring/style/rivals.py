"""Who of some speakers says a message: ridge regression on the TF-IDF of cased character n-grams.

Word overlap hardly moves when voices merge; spelling, punctuation and rhythm do. Texts of unequal length are not comparable.
Everything here is fitted by scikit-learn and SciPy, which are imported when a voice is first compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

# A longer message says more of its speaker; from 200 characters on no more. Measured on real dialogue.
_LENGTH_EXPONENT, _LONGEST = 0.2, 200
# The regression's penalty, measured on real dialogue.
_PENALTY = 60.0


@dataclass(frozen=True)
class GramKind:
    """Which character n-grams are taken: of ``low`` to ``high`` characters, cased; ``char_wb`` stays within words."""

    low: int
    high: int
    analyzer: Literal["char", "char_wb"] = "char"

    @property
    def options(self) -> dict[str, Any]:
        """The settings of scikit-learn's vectorizers."""
        return {"analyzer": self.analyzer, "ngram_range": (self.low, self.high), "lowercase": False}


# Across words, punctuation and rhythm count: what a reader takes for somebody's voice. Within words, the choice of words and their
# endings count more.
VOICE, WORDS = GramKind(2, 4), GramKind(3, 5, "char_wb")


def worth(text: str) -> float:
    """Return how much a message counts for its length."""
    return min(len(text), _LONGEST) ** _LENGTH_EXPONENT


def text_vectors(texts: Sequence[str], kind: GramKind = VOICE) -> Any:
    """Return the TF-IDF rows of some texts, of unit length, their frequencies taken from the texts themselves.

    A blank at either end of each text leaves no text without n-grams.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(**kind.options, sublinear_tf=True).fit_transform([f" {text} " for text in texts]).toarray()


def voice_similarity(agents: Mapping[str, Sequence[str]], kind: GramKind = VOICE) -> dict[tuple[str, str], float]:
    """Return the cosine similarity (0-1) of each two agents' voices, by sorted pair of names; agents without text are left out."""
    names = [name for name in sorted(agents) if any(message.strip() for message in agents[name])]
    if len(names) < 2:
        return {}
    rows = text_vectors(["\n".join(agents[name]) for name in names], kind)
    alike = np.clip(rows @ rows.T, 0.0, 1.0)[np.triu_indices(len(names), 1)]
    return dict(zip(combinations(names, 2), alike.tolist(), strict=True))


@dataclass(frozen=True)
class Rivals:
    """Some speakers, told apart.

    Attributes:
        coefficients: speakers x columns; the mean of models that each saw all messages but one part.
        held_out: messages x speakers: how much each message learnt from is each speaker's, by the model that did not see it.
    """

    vectorizers: Sequence[Any]
    coefficients: Any
    held_out: Any

    def scores(self, texts: Sequence[str]) -> Any:
        """Return messages x speakers: how much each message is each speaker's."""
        return _rows([vectorizer.transform(texts) for vectorizer in self.vectorizers], texts) @ self.coefficients.T


def learn_rivals(texts: Sequence[str], speakers: Any, parts: Any) -> Rivals:
    """Learn to tell speakers apart by their messages.

    Args:
        speakers: the number (from 0) of each message's speaker.
        parts: the number (from 0, two at least) of the part of the cross-validation each message is in; what depends on one
            another, such as messages of one conversation, belongs into one part.

    Raises:
        ValueError: no n-gram stands in two messages.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    # What stands in one message says nothing of the next.
    vectorizers = [TfidfVectorizer(**kind.options, sublinear_tf=True, min_df=2) for kind in (WORDS, VOICE)]
    rows = _rows([vectorizer.fit_transform(texts) for vectorizer in vectorizers], texts)
    count, folds = int(np.max(speakers)) + 1, int(np.max(parts)) + 1
    targets = np.eye(count)[speakers] - 1 / count
    held_out, coefficients = np.zeros_like(targets), np.zeros((count, rows.shape[1]))
    model = Ridge(_PENALTY, fit_intercept=False, solver="sparse_cg")
    for part in range(folds):
        learns = parts != part
        model.fit(rows[learns], targets[learns])
        held_out[~learns] = model.predict(rows[~learns])
        coefficients += model.coef_ / folds
    return Rivals(vectorizers, coefficients, held_out)


def _rows(parts: Sequence[Any], texts: Sequence[str]) -> Any:
    """Return a sparse row a message: its n-grams of each kind, each part of unit length, times its worth."""
    from scipy import sparse

    return sparse.diags_array([worth(text) for text in texts]) @ sparse.hstack(parts, format="csr")


class CountedGrams:
    """The n-grams within words of texts, and in how many of the first ``known`` of them each stands."""

    def __init__(self, texts: Sequence[str], known: int) -> None:
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer

        self._known = known
        self._counts = sparse.csr_array(CountVectorizer(**WORDS.options).fit_transform(texts))
        self._holders = self._counts[:known].count_nonzero(axis=0)

    def alike(self, blocks: Any) -> Any:
        """Return how alike each two members of blocks are: blocks x members x members, cosines (0-1).

        A block's own messages are left out of the frequencies of n-grams: what nobody said before weighs as much in a block of
        known texts as in a new one.

        Args:
            blocks: blocks x members x messages, the places of messages.
        """
        return np.array([self._cosines(block) for block in blocks])

    def _cosines(self, block: Any) -> Any:
        from scipy import sparse
        from sklearn.preprocessing import normalize

        said, members = self._counts[block.ravel()], np.repeat(np.arange(len(block)), block.shape[1])
        held = self._holders - said.count_nonzero(axis=0) * (block.min() < self._known)
        rows = sparse.csr_array((np.ones(block.size), (members, np.arange(block.size)))) @ said
        rows.data = (1 + np.log(rows.data)) * (np.log((1 + self._known) / (1 + held)) + 1)[rows.indices]
        rows = sparse.csr_array(normalize(rows))
        return (rows @ rows.T).toarray()
