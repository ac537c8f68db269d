"""``tool_trajectory``: what counts as a call that was wanted, and what the results say of each."""

from pathlib import Path
from typing import Any

import pytest

from tests.suites.support import calls, grade


def expected(*items: Any) -> list[dict[str, Any]]:
    return [{"tool": item} if isinstance(item, str) else {"tool": item[0], "args": item[1]} for item in items]


# The conformance cases have the other modes.
@pytest.mark.parametrize(
    ("mode", "wanted", "made", "score"),
    [
        ("superset", ["a", "b"], ["b", "x", "a"], 1),
        ("superset", ["a", "a"], ["a"], 0.5),
        ("subset", ["a"], ["a", "a"], 1),
        ("subset", ["a"], ["a", "b"], 0.5),
        ("subset", ["a"], [], 1),
        ("subset", [], ["a"], 0),
    ],
)
def test_trajectories(tmp_path: Path, mode: str, wanted: list[Any], made: list[Any], score: float) -> None:
    item = {"type": "tool_trajectory", "mode": mode, "expected": expected(*wanted)}
    assert grade(tmp_path, item, calls(*made)).score == pytest.approx(score)


@pytest.mark.parametrize(
    ("made", "score"),
    [([], 1), (["a"], 1), (["a", "a"], 0.5), (["a", "a", "b"], 0)],
    ids=["none", "one", "two", "both"],
)
def test_maximums(tmp_path: Path, made: list[str], score: float) -> None:
    item = {"type": "tool_trajectory", "mode": "any_order", "maximums": {"a": 1, "b": 0}}
    assert grade(tmp_path, item, calls(*made)).score == score


@pytest.mark.parametrize(
    ("how", "wanted", "made", "met"),
    [
        (None, {"q": 1}, {"q": 1.0, "more": 2}, True),
        (None, {"q": {"a": 1}}, {"q": {"a": 1, "b": 2}}, True),
        (None, {"q": {"a": 1}}, {"q": {"a": 2, "b": 2}}, False),
        (None, {"q": [{"a": 1}]}, {"q": [{"a": 1, "b": 2}]}, True),
        (None, {"q": [{"a": 1}]}, {"q": [{"a": 1}, {"a": 1}]}, False),
        ("subset", {"q": {"a": 1, "b": 2}}, {"q": {"a": 1}}, True),
        (None, {"q": True}, {"q": 1}, False),
        ("exact", {"q": 1}, {"q": 1, "more": 2}, False),
        ("subset", {"q": 1}, {"q": 1, "r": 2}, False),
        ("ignore", {"q": 1}, None, True),
        (["a.b"], {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, True),
        (["a.b"], {"a": {"b": 1}}, {"a": {}}, False),
        (["z"], {"a": 1}, {}, True),
    ],
)
def test_arguments(tmp_path: Path, how: Any, wanted: Any, made: Any, met: bool) -> None:
    call = {"tool": "s"} if made is None else {"tool": "s", "input": made}
    item: dict[str, Any] = {"type": "tool_trajectory", "mode": "exact", "expected": [{"tool": "s", "args": wanted}]}
    if how is not None:
        item["args_match"] = how
    answer = {"output_messages": [{"role": "assistant", "tool_calls": [call]}]}
    assert grade(tmp_path, item, answer).score == float(met)


def timed(tool: str, took: Any, **more: Any) -> dict[str, Any]:
    return {"tool": tool, "duration_ms": took, **more}


SLOW = {"tool": "a", "max_duration_ms": 100}
TWO = {"tool": "s", "args": {"q": 1, "r": 2}}
EXTRA = [{"tool": "a"}, {"tool": "b"}, {"tool": "c"}]


@pytest.mark.parametrize(
    ("item", "made", "score", "hits", "misses"),
    [
        ({"mode": "in_order", "expected": [TWO, {"tool": "b"}, {"tool": "c"}]},
         [{"tool": "s", "input": {"q": 1, "r": 2}}, {"tool": "b"}], 2 / 3, ["s(q, r)", "b"], ["c"]),
        ({"mode": "exact", "expected": [{"tool": "a"}]}, EXTRA, 1 / 3, ["a"], ["b, c"]),
        ({"mode": "superset", "expected": [SLOW, {"tool": "b"}]}, [timed("a", 100.5)], 1 / 3, ["a"], ["took 100.5 ms", "b"]),
        ({"mode": "subset", "expected": [SLOW]}, [timed("a", 5), timed("b", 5), timed("a", 200)], 3 / 5,
         ["Call 1, a", "took 5 ms", "Call 3, a"], ["Call 2, b", "took 200 ms"]),
        ({"mode": "any_order", "minimums": {"a": 2, "b": 0.5, "c": 1}}, [{"tool": "a"}, {"tool": "b"}, {"tool": "a"}], 2 / 3,
         ["a was called 2 times", "b was called 1 times"], ["c was called 0 times"]),
        ({"mode": "exact", "expected": []}, [], 1, ["No calls"], []),
    ],
    ids=["in order", "exact", "a call that took too long", "subset", "any order", "nothing expected"],
)  # fmt: skip
def test_results_name_every_call(
    tmp_path: Path, item: dict[str, Any], made: list[Any], score: float, hits: list[str], misses: list[str]
) -> None:
    answer = {"output_messages": [{"role": "assistant", "tool_calls": made}]}
    found = grade(tmp_path, {"type": "tool_trajectory", **item}, answer)
    assert found.score == pytest.approx(score)
    for said, named in ((found.hits, hits), (found.misses, misses)):
        assert [name in text for text, name in zip(said, named, strict=True)] == [True] * len(named), said
