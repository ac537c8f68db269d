"""The order in which judgments are labelled: random, dimension by dimension in turn, the same for everybody."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from persona_pipeline.guard.labels.session import labelling_order
from tests.labels.judgments import judgment, judgments


def test_dimensions_take_turns_until_one_is_used_up() -> None:
    mixed = [*judgments(4, "fluency"), *judgments(2, "adherence"), *judgments(3, "convergence")]
    order = [item.dimension for item in labelling_order(mixed)]
    assert order == ["adherence", "fluency", "convergence"] * 2 + ["fluency", "convergence", "fluency"]


@given(st.permutations(range(24)), st.integers(0, 3))
def test_the_order_depends_on_what_is_judged_and_the_seed_alone(places: list[int], seed: int) -> None:
    items = judgments(24)
    order = [item.key for item in labelling_order(items, seed=seed)]
    assert [item.key for item in labelling_order([items[place] for place in places], seed=seed)] == order
    assert sorted(order) == sorted(item.key for item in items)
    assert [item.key for item in labelling_order(items, seed=seed + 1)] != order


def test_what_comes_first_is_drawn_at_random() -> None:
    """Over many seeds each judgment is among the first ten as often as any other of its dimension."""
    items = [*[judgment(number, 9) for number in range(12)], *[judgment(number, 1) for number in range(12, 20)]]
    first = Counter(item.key for seed in range(600) for item in labelling_order(items, seed=seed)[:10])
    # Each has half a chance: 300 of 600, standard deviation 12.
    assert all(abs(first[item.key] - 300) < 60 for item in items)


def test_a_new_judgment_leaves_the_others_in_their_order() -> None:
    items = [judgment(number, 9) for number in range(30)]
    before = [item.key for item in labelling_order(items)]
    after = [item.key for item in labelling_order([*items, judgment(99, 9)])]
    after.remove(judgment(99, 9).key)
    assert after == before
