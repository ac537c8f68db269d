"""Golden files: read strictly, written atomically, only what was scored."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from persona_pipeline.base.documents.json import content_hash
from persona_pipeline.base.errors import ConfigError
from persona_pipeline.guard.baselines.golden import (
    captured,
    find_baseline,
    load_baseline,
    recordings_digest,
    save_baseline,
    watched_agents,
)
from persona_pipeline.guard.baselines.models import Compared
from persona_pipeline.guard.baselines.regression import compare, golden_propositions, same_messages, settled
from persona_pipeline.scoring.messages.verdicts import MessageVerdict, MessageVerdicts, Role, share_in_character
from persona_pipeline.scoring.results import DimensionEvaluation
from tests.baselines.test_regression import evaluated
from tests.baselines.worlds import NOW

FOUR_KEYS = {
    "agentId": "ann", "capturedAt": "2026-03-01T10:00:00Z", "dimensions": {"adherence": 7.5},
    "propositionScores": {"p": 7.5},
}  # fmt: skip


WINDOW = {
    "start": None,
    "end": "2026-03-01T10:00:00Z",
    "model": "m",
    "prompt_version": "q",
    "conversations": [[1, 0, 0]],
}


def write(path: Path, data: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_the_four_key_form_is_read(tmp_path: Path) -> None:
    baseline = load_baseline(write(tmp_path / "ann.json", FOUR_KEYS))
    assert baseline.dimensions == {"adherence": 7.5}
    assert baseline.proposition_scores == {"": {"p": 7.5}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "must be a mapping"),
        ("[" * 100_000, "nested too deeply"),
        ('{"agentId": "a", "agentId": "b"}', "stands twice"),
        ({**FOUR_KEYS, "dimension": {}}, "unknown key 'dimension'; did you mean 'dimensions'?"),
        ({"agentId": "ann"}, "dimensions is required"),
        ({**FOUR_KEYS, "dimensions": {"adherance": 7}}, "unknown dimension 'adherance'"),
        ({**FOUR_KEYS, "dimensions": {"adherence": 9.0000001}}, "less than or equal to 9"),
        ({**FOUR_KEYS, "dimensions": {"adherence": -1e-9}}, "greater than or equal to 0"),
        ({**FOUR_KEYS, "dimensions": {"adherence": True}}, "must be a number"),
        ({**FOUR_KEYS, "dimensions": {"adherence": "7"}}, "must be a number"),
        ({**FOUR_KEYS, "dimensions": []}, "dimensions: must be a mapping"),
        ('{"agentId": "ann", "dimensions": {"adherence": NaN}}', "NaN is not JSON"),
        (
            {**FOUR_KEYS, "messages": [{**WINDOW, "conversations": [[1, 2]]}]},
            "messages.0.conversations.0.2 is required",
        ),
        ({**FOUR_KEYS, "messages": [{**WINDOW, "conversations": [[1, -2, 0]]}]}, "greater than or equal to 0"),
        ({**FOUR_KEYS, "messages": [{**WINDOW, "end": "then"}]}, "messages.0.end"),
        (
            {**FOUR_KEYS, "propositionScores": {"adherence": {"p": -1}}},
            "propositionScores.adherence.p: ",
        ),
        (
            {**FOUR_KEYS, "propositionScores": {"adherance": {"p": 1}}},
            "propositionScores.adherance.[key]: unknown dimension 'adherance'",
        ),
        ({**FOUR_KEYS, "capturedAt": "then"}, "RFC 3339"),
    ],
)
def test_a_broken_baseline_is_an_error(tmp_path: Path, data: object, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_baseline(write(tmp_path / "ann.json", data))
    assert says in str(error.value)
    assert "ann.json" in str(error.value)


def test_another_agents_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "bob.json", FOUR_KEYS)
    with pytest.raises(ConfigError, match="is the baseline of 'ann'"):
        find_baseline(tmp_path, "bob")
    assert find_baseline(tmp_path, "nobody") is None


def test_only_what_was_scored_in_full_is_captured(tmp_path: Path) -> None:
    known = captured(
        "ann", {"adherence": evaluated(5.0, {"p": 5.0}), "fluency": evaluated(6.0, {"f": 6.0})}, {"by": "old"}
    )
    again = captured(
        "ann",
        {
            "adherence": evaluated(8.0, {"p": 8.0, "q": 8.0}),
            "fluency": evaluated(9.0, {"f": 9.0, "g": None}),
            "consistency": evaluated(None, {"c": None}),
        },
        {"by": "new"},
        known=known,
    )
    save_baseline(tmp_path, again)
    baseline = find_baseline(tmp_path, "ann")
    assert baseline is not None
    assert baseline.dimensions == {"adherence": 8.0, "fluency": 6.0}
    assert baseline.proposition_scores == {"adherence": {"p": 8.0, "q": 8.0}, "fluency": {"f": 6.0}}
    assert {name: item["by"] for name, item in baseline.provenance["dimensions"].items()} == {
        "adherence": "new", "fluency": "old"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dimensions", "scores"),
    [
        pytest.param({"adherence": 7.5, "fluency": 6.0}, {"f": 6.0, "adherence": {"p": 8.0}}, id="fluency's stay"),
        pytest.param({"adherence": 7.5}, {"adherence": {"p": 8.0}}, id="nothing of another dimension is left"),
    ],
)
def test_updating_an_old_baseline_keeps_what_was_not_scored(tmp_path: Path, dimensions: dict, scores: dict) -> None:
    old = {**FOUR_KEYS, "dimensions": dimensions, "propositionScores": {"p": 7.5, "f": 6.0}}
    path = write(tmp_path / "ann.json", old)
    save_baseline(tmp_path, captured("ann", {"adherence": evaluated(8.0, {"p": 8.0})}, {}, known=load_baseline(path)))
    assert json.loads(path.read_text(encoding="utf-8"))["propositionScores"] == scores
    again = find_baseline(tmp_path, "ann")
    assert again is not None
    assert golden_propositions(again, "adherence")["p"] == 8.0
    assert compare("ann", {"adherence": evaluated(8.0, {"p": 8.0})}, again).warnings == []


def test_writing_the_same_again_leaves_the_file_alone_and_no_digit_is_lost(tmp_path: Path) -> None:
    score = 6.1 + 0.1 + 0.1
    paths = [save_baseline(tmp_path, captured("ann", {"adherence": evaluated(score)}, {}, now=NOW)) for _ in range(2)]
    before = paths[0].read_bytes()
    assert paths == [tmp_path / "ann.json"] * 2
    save_baseline(tmp_path, captured("ann", {"adherence": evaluated(score)}, {}))
    assert paths[0].read_bytes() == before and load_baseline(paths[0]).dimensions == {"adherence": score}


ONCE = {"window_end": "2026-06-01", "window_start": "2026-05-01", "messages": 9}


@pytest.mark.parametrize(
    ("known", "now", "same"),
    [
        pytest.param({"windows": 2, "input_hash": "same"}, {}, False, id="several windows are never the same messages"),
        pytest.param({"windows": 1, "input_hash": "same"}, {}, True, id="the same input"),
        pytest.param({"input_hash": "other"}, {}, False, id="another input"),
        pytest.param({}, None, True, id="nothing is known of now"),
        pytest.param({"windows": 2}, None, False, id="several windows, nothing known of now"),
        pytest.param({"messages_hash": "m"}, {"messages_hash": "m"}, True, id="the same messages"),
        pytest.param({"messages_hash": "m", **ONCE}, {"messages_hash": "n", **ONCE}, False, id="other messages"),
        pytest.param({"messages_hash": "m", **ONCE}, ONCE, True, id="a hash on one side only: the window tells"),
        pytest.param(ONCE, ONCE, True, id="the same window"),
        pytest.param(ONCE, ONCE | {"messages": 10}, False, id="another count"),
        pytest.param(ONCE, ONCE | {"window_start": None}, False, id="another start"),
        pytest.param({"messages": 9}, {"messages": 9}, False, id="no end is known"),
    ],
)
def test_whether_both_sides_judged_the_same_messages(known: dict, now: dict | None, same: bool) -> None:
    baseline = captured("ann", {"adherence": evaluated(5.0)}, {})
    baseline.provenance["dimensions"]["adherence"] = known
    assert same_messages(baseline, evaluated(5.0, input_hash="same"), now) is same


def test_every_problem_of_a_file_is_named(tmp_path: Path) -> None:
    broken = {"agentId": 7, "dimensions": {}, "propositionScores": [], "provenance": [1], "capturedAt": 5}
    with pytest.raises(ConfigError) as error:
        load_baseline(write(tmp_path / "ann.json", broken))
    for says in (
        "agentId: must be a string",
        "propositionScores: must be",
        "provenance: must be",
        "capturedAt: 5 is not",
    ):
        assert says in str(error.value)


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-03-01T10:00:00", "2026-03-01T10:00:00+00:00"),
        ("2026-03-01T10:00:00+02:00", "2026-03-01T10:00:00+02:00"),
        (None, "1970-01-01T00:00:00+00:00"),
    ],
)
def test_a_time_without_a_zone_is_utc(tmp_path: Path, written: str | None, moment: str) -> None:
    path = write(tmp_path / "ann.json", {**FOUR_KEYS, "capturedAt": written})
    assert load_baseline(path).captured_at.isoformat() == moment


def test_a_baseline_names_the_recordings_it_was_taken_from() -> None:
    item = evaluated(5.0, {"p": 5.0, "q": 5.0}, samples=3)
    item.propositions["p"].keys, item.propositions["q"].keys = ["b", "c"], ["a"]
    spans = [
        (None, datetime(2026, 5, 1, tzinfo=UTC)),
        (datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)),
    ]
    found = captured("ann", [{"adherence": evaluated(4.0)}, {"adherence": item}], {}, spans=spans)
    first, second = found.provenance["dimensions"]["adherence"]["recordings"]
    assert (first["start"], first["end"]) == (None, "2026-05-01T00:00:00+00:00")
    assert (second["start"], second["end"], second["samples"]) == (
        "2026-05-01T00:00:00+00:00", "2026-06-01T00:00:00+00:00", 3
    )  # fmt: skip
    assert second["digest"] == recordings_digest(item) == content_hash(["a", "b", "c"])
    assert "recordings" not in captured("ann", {"adherence": item}, {}).provenance["dimensions"]["adherence"]


SPANS = [(None, datetime(2026, 5, day, tzinfo=UTC)) for day in (1, 8, 15)]


def counted(roles: str, model: str = "m") -> dict[str, DimensionEvaluation]:
    """A window in which each letter is the verdict on a message: i, o or u; a space begins another conversation."""
    talks = [(str(number), letter) for number, talk in enumerate(roles.split()) for letter in talk]
    found = [
        MessageVerdict(message=f"m{place:02}", conversation=talk, said_at=SPANS[0][1], verdict=ROLES[letter])
        for place, (talk, letter) in enumerate(talks)
    ]
    share = share_in_character(found)
    read = MessageVerdicts(agent_id="ann", verdicts=found, share=share, model=model, prompt_version="q").dated(found)
    return {"adherence": evaluated(8.0).model_copy(update={"messages": read if roles else None})}


ROLES = {"i": Role.IN, "o": Role.OUT, "u": Role.UNCLEAR}


@pytest.mark.parametrize(
    ("windows", "kept"),
    [
        ([counted("iio uu"), counted("oi")], [[(2, 1, 0), (0, 0, 2)], [(1, 1, 0)]]),
        ([counted("ii", "another judge"), counted("oi")], [[(1, 1, 0)]]),
        ([counted("ii"), counted("")], []),
    ],
    ids=["each window", "only of the judge of the newest", "none where the newest has none"],
)
def test_verdicts_on_messages_are_kept_by_window_and_conversation(
    tmp_path: Path, windows: list[dict[str, DimensionEvaluation]], kept: list[list[tuple[int, int, int]]]
) -> None:
    baseline = captured("ann", windows, {}, spans=SPANS)
    path = save_baseline(tmp_path, baseline)
    text = path.read_text(encoding="utf-8")
    assert [item.conversations for item in load_baseline(path).messages] == kept
    lines = [line.strip() for line in text.splitlines()]
    assert [line for line in lines if line.startswith('"conversations"')] == [
        f'"conversations": {json.dumps(counts)}' for counts in kept
    ], "a line a window"
    assert ('"messages"' in text) is bool(kept)
    fluency = captured("ann", {"fluency": evaluated(5.0)}, {}, known=load_baseline(path))
    assert fluency.messages == load_baseline(path).messages, "a baseline of another dimension keeps them"
    assert not captured("ann", [counted("")], {}, known=load_baseline(path), spans=SPANS[:1]).messages


@pytest.mark.parametrize(
    ("now", "share"),
    [
        (counted("oo"), (3, 2)),
        (counted("oo", "another judge"), None),
        (counted(""), None),
        ({}, None),
    ],
)
def test_the_baselines_share_is_shown_where_the_same_judge_gave_it(
    now: dict[str, DimensionEvaluation], share: tuple[int, int] | None
) -> None:
    baseline = captured("ann", [counted("iio uu"), counted("oi")], {}, spans=SPANS)
    found, without = (
        settled(Compared(compare("ann", now, one), now, one)).in_character
        for one in (baseline, baseline.model_copy(update={"messages": []}))
    )
    assert (found and (found.n_in, found.n_out)) == share
    assert without is None


@pytest.mark.parametrize(("files", "read"), [(0, 0), (40, 40), (41, 21), (80, 40), (81, 27)])
def test_of_many_baselines_the_same_few_tell_what_varies(tmp_path: Path, files: int, read: int) -> None:
    for number in range(files):
        write(tmp_path / "golden" / f"a{number:03}.json", FOUR_KEYS | {"agentId": f"a{number:03}"})
    found = watched_agents(tmp_path / "golden")
    assert (found.count, len(found.baselines)) == (files, read)
    assert all(baseline.agent_id == name for name, baseline in found.baselines.items())
    assert found.baselines.keys() == watched_agents(tmp_path / "golden").baselines.keys()


def test_who_has_no_valid_baseline_is_watched_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "ann.json", FOUR_KEYS)
    write(tmp_path / "bob.json", FOUR_KEYS)
    write(tmp_path / "cyd.json", "{")
    found = watched_agents(tmp_path)
    assert (found.count, list(found.baselines)) == (3, ["ann"])
