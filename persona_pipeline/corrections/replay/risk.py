"""How many good replies a threshold may touch, so that a stated risk is kept by those that come next.

A threshold is an order statistic of the good replies that are known. If those and the ones to come are exchangeable, what share
of the whole population lies beyond the k-th of n has the distribution Beta(k, n + 1 - k) whatever the scores' own (Wilks, Annals
of Mathematical Statistics 12, 1941; for conformal prediction Vovk, ACML 2012, which calls it training-conditional validity; the
binomial test of the same is that of Angelopoulos et al., Learn then Test, 2021). Of the next m replies beta-binomially many lie
beyond it, so that what m of them show can be promised too.
"""

from math import exp, floor, lgamma, log

# So that 95 of 100 are seen where a few hundred draws are counted.
CONFIDENCE = 0.97
_MOST_NEEDED = 1_000_000


def touched_at_most(good: int, risk: float, *, ahead: int | None = None) -> int:
    """Return how many of the good replies a threshold may touch at most; -1: there are too few to keep the risk at all.

    With ``CONFIDENCE`` over the draw, the threshold then touches at most the share ``risk`` of all good replies there are, and,
    with the same confidence, of the next ``ahead`` of them.

    Args:
        good: how many good replies are known.
        risk: 0-1, neither of them.
        ahead: None: as many as are known.

    Raises:
        ValueError: the risk is no share.
    """
    if not 0 < risk < 1:
        raise ValueError(f"a risk of {risk:g} is no share; give one between 0 and 1")
    low, high = 0, floor(risk * good + 1e-9) + 1
    # The k-th order statistic lets k - 1 be touched; more are never safer.
    while low < high:
        middle = (low + high + 1) // 2
        if _keeps(middle, good, risk, good if ahead is None else ahead):
            low = middle
        else:
            high = middle - 1
    return low - 1


def good_needed(good: int, risk: float) -> int:
    """Return how many good replies keep the risk at all: ``good`` if they do, else from how many on every number does.

    A share of few is a coarse thing: 15 replies keep one in five, and 18 do not.
    """
    if good and touched_at_most(good, risk) >= 0:
        return good
    count = first = max(good, 1)
    while count < _MOST_NEEDED and count - first < 1 / risk:
        count += 1
        if touched_at_most(count, risk) < 0:
            first = count + 1
    return first


def _keeps(rank: int, good: int, risk: float, ahead: int) -> bool:
    if rank > good:
        return False
    alpha = 1 - CONFIDENCE
    allowed = floor(risk * ahead + 1e-9)
    # More than ``allowed`` of those ahead lie below the rank: of the lowest rank + allowed of all, fewer than rank are known ones.
    beyond = allowed < ahead and _hypergeometric(rank - 1, good + ahead, good, rank + allowed) > alpha
    return not beyond and _binomial(rank - 1, good, risk) <= alpha


def _binomial(most: int, trials: int, share: float) -> float:
    """Return the probability of at most so many."""
    return sum(
        exp(_choose(trials, hits) + hits * log(share) + (trials - hits) * log(1 - share)) for hits in range(most + 1)
    )


def _hypergeometric(most: int, total: int, marked: int, drawn: int) -> float:
    """Return the probability that at most so many of those drawn are marked."""
    least = max(0, drawn - (total - marked))
    whole = _choose(total, drawn)
    return sum(
        exp(_choose(marked, hits) + _choose(total - marked, drawn - hits) - whole)
        for hits in range(least, min(most, marked, drawn) + 1)
    )


def _choose(total: int, chosen: int) -> float:
    return lgamma(total + 1) - lgamma(chosen + 1) - lgamma(total - chosen + 1)
