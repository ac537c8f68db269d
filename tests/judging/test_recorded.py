"""Replay: what is recorded comes back, what is not is an error that says how to record it."""

import asyncio
import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.base.settings import Settings
from persona_pipeline.base.text import storable
from persona_pipeline.judging.open import OpenedJudge
from persona_pipeline.judging.recordings import line
from persona_pipeline.judging.recordings.line import Recording
from persona_pipeline.judging.recordings.replay import RecordedBackend, load_recording_file, load_recordings
from persona_pipeline.judging.recordings.writing import RecordingWriter
from persona_pipeline.judging.verdict import Answer, Evidence, JudgeRequest, Question, Unscored, Verdict, recording_key
from tests.support.judging import recorded_by, request, requests, trajectory
from tests.support.messages_server import MessagesServer, status

ABOUT = {
    "kind": "proposition",
    "agent_id": "",
    "dimension": "adherence",
    "proposition_id": "cheerful",
    "claim": "",
    "persona": None,
    "trajectory": "b" * 64,
}
KEY = recording_key(ABOUT)
LINE = {"key": KEY, **ABOUT, "score": 7}
FAILURE = {"key": KEY, **ABOUT, "score": None, "unscored": "timeout"}


def replay(folder: Path, *asked: JudgeRequest) -> list[Verdict]:
    return asyncio.run(OpenedJudge(RecordedBackend(folder)).judge(asked))


def written(folder: Path, **changes: object) -> Path:
    path = folder / "some" / "file.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**LINE, **changes}) + "\n", encoding="utf-8")
    return path


def test_a_live_run_replays_word_for_word(server: MessagesServer, judge: OpenedJudge, tmp_path: Path) -> None:
    asked = [*requests(3, persona="A boss."), request(sample=1), request(lists_ideas=True, trajectory=trajectory("x"))]
    live = asyncio.run(recorded_by(judge, tmp_path).judge(asked))
    again = replay(tmp_path, *asked)
    for first, second in zip(live, again, strict=True):
        assert replace(first, usage=second.usage) == second
    assert sorted(path.name for path in tmp_path.rglob("*.jsonl")) == ["adherence.jsonl"]


def test_a_failure_is_recorded_as_that_and_is_no_answer(
    server: MessagesServer, judge: OpenedJudge, tmp_path: Path
) -> None:
    server.script(status(500))
    writer = RecordingWriter(tmp_path)
    (live,) = asyncio.run(replace(judge, writer=writer).judge([request()]))
    (again,) = replay(tmp_path, request())
    assert again == replace(live, usage=again.usage, min_coverage=0.95)
    assert (again.score, again.unscored, [*writer.failed]) == (None, Unscored.API_ERROR, [request().key])
    assert load_recordings(tmp_path, None) == {}
    recorded = RecordedBackend(tmp_path)
    assert not recorded.has_recorded([request()]) and recorded.has_recorded([request()], failures=True)
    assert [item.unscored for item in recorded.unused()] == [Unscored.API_ERROR]


def failed(name: str = "cheerful", reason: Unscored = Unscored.TIMEOUT, detail: str = "late") -> Verdict:
    return Verdict(name, unscored=reason, detail=detail)


def test_an_answer_takes_the_place_of_a_failure_and_a_failure_leaves_an_earlier_answer_where_it_is(
    tmp_path: Path,
) -> None:
    writer, scored = RecordingWriter(tmp_path), Verdict("cheerful", score=7)
    for verdict in (failed(reason=Unscored.REFUSAL), failed(), scored):
        writer.record([request()], [verdict])
    (path,) = tmp_path.rglob("*.jsonl")
    before = path.read_text("utf-8")
    assert (before.count("\n"), replay(tmp_path, request())[0].score, writer.failed) == (1, 7, {})
    writer.record([request()], [failed()])
    assert path.read_text("utf-8").startswith(before)
    assert replay(tmp_path, request())[0].unscored is Unscored.TIMEOUT
    assert [item.score for item in load_recordings(tmp_path, None).values()] == [7], "what was paid for is known"
    writer.record([request()], [scored])
    assert load_recording_file(path, None) == [replace(load_recording_file(path, None)[0], score=7)]


@pytest.mark.parametrize(
    ("noted", "live", "asked"),
    [(0.0, 0.95, 0.95), (0.95, 0.95, 0.95), (0.99, 0.95, 0.99), (None, 0.95, 1.0), (0.5, 0.4, 0.5)],
)
def test_a_failure_that_is_not_signed_asks_for_no_less_than_a_live_run(
    noted: float | None, live: float, asked: float, tmp_path: Path
) -> None:
    RecordingWriter(tmp_path).record([request()], [failed()])
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "min_coverage": noted}) + "\n", "utf-8")
    backend = RecordedBackend(tmp_path, settings=Settings(min_coverage_live=live))
    assert asyncio.run(OpenedJudge(backend).judge([request()]))[0].min_coverage == asked


def test_that_nothing_is_recorded_is_not_recorded(tmp_path: Path) -> None:
    missing = Verdict("cheerful", unscored=Unscored.UNRECORDED)
    RecordingWriter(tmp_path).record([request()], [missing])
    RecordingWriter(tmp_path).record_answers([rubric()], [Answer(unscored=Unscored.UNRECORDED)])
    assert [*tmp_path.rglob("*.jsonl")] == []


def test_a_servers_words_stand_on_one_line(tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record([request()], [failed(detail="\u202eno\n\x1b[31m " + "x" * 999)])
    (again,) = replay(tmp_path, request())
    assert again.detail.startswith("no [31m xxx") and len(again.detail) == 400


def test_an_answer_takes_the_place_of_one_that_somebody_filed_elsewhere(tmp_path: Path) -> None:
    first, second = (Answer({"score": score, "reasoning": "read"}) for score in (0.2, 0.8))
    RecordingWriter(tmp_path).record_answers([rubric()], [first])
    (path,), other = tmp_path.rglob("*.jsonl"), tmp_path / "suites" / "desk.jsonl"
    other.parent.mkdir()
    path.rename(other)
    (tmp_path / "suites" / "broken.jsonl").write_text("{}\n", "utf-8")
    RecordingWriter(tmp_path).record_answers([rubric()], [second])
    (tmp_path / "suites" / "broken.jsonl").unlink()
    assert [*tmp_path.rglob("*.jsonl")] == [other]
    assert [item.answer for item in load_recordings(tmp_path, None).values()] == [second.data]


def test_a_question_that_failed_replays_as_failed(tmp_path: Path) -> None:
    answer = Answer(unscored=Unscored.TIMEOUT, detail="late")
    RecordingWriter(tmp_path).record_answers([rubric(agent_id="michael")], [answer])
    backend = RecordedBackend(tmp_path)
    (again,) = asyncio.run(backend.ask([rubric(agent_id="michael")]))
    assert (again.data, again.unscored, "late" in again.detail) == (None, Unscored.TIMEOUT, True)
    assert rubric(agent_id="michael").key not in backend.recordings


def test_what_was_asked_is_kept_for_nobody_but_who_wants_it(tmp_path: Path) -> None:
    backend, asked = RecordedBackend(tmp_path), requests(1)
    seen = weakref.ref(asked[0].trajectory)
    asyncio.run(backend.judge(asked))
    assert seen() and backend.replayed
    del asked
    gc.collect()
    assert seen() is None, "the messages of every agent of a cohort would stay"
    backend.claims = []
    asyncio.run(backend.judge(requests(1)))
    assert len(backend.claims) == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (request("Michael is merry"), "claim changed since it was judged"),
        (request(persona="Another man."), "persona changed since it was judged"),
        (request("Michael is merry", persona="Another man."), "claim and persona changed since it was judged"),
        (request(trajectory=trajectory("Good morning, everybody?")), "these messages were never judged"),
        # A claim that names its channel has other words in another one: it was not edited.
        (request("Merry in #new", trajectory=trajectory("Hello")), "these messages were never judged"),
        (request(sample=1), "only 1 of its 2 samples are recorded"),
        (request(name="gloomy"), "this claim was never judged"),
    ],
    ids=["claim", "persona", "both", "one word of a message", "another channel", "another sample", "another claim"],
)
def test_what_has_changed_since_is_unrecorded(changed: JudgeRequest, why: str, tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", score=7)])
    kept, missed = replay(tmp_path, request(), changed)
    assert kept.score == 7
    assert missed.unscored is Unscored.UNRECORDED
    assert missed.detail == why


def test_outside_message_ids_are_not_part_of_what_was_judged(tmp_path: Path) -> None:
    shown = trajectory()
    moved = replace(
        shown, items=tuple(replace(entry, message_id=f"other-{entry.message_id}") for entry in shown.entries)
    )
    quote = Evidence("message-2", "fact-checked", verified=True)
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", score=7, evidence=(quote,))])
    (verdict,) = replay(tmp_path, request(trajectory=moved))
    assert verdict.evidence == (Evidence("other-message-2", "fact-checked", verified=True),)


def test_an_empty_trajectory_needs_no_recording(tmp_path: Path) -> None:
    (verdict,) = replay(tmp_path, request(trajectory=replace(trajectory(), items=())))
    assert verdict.unscored is Unscored.NO_EVIDENCE


def test_not_applicable_is_recorded_as_an_answer(tmp_path: Path) -> None:
    told = Verdict("cheerful", unscored=Unscored.NOT_APPLICABLE, reasoning="It never came up.")
    RecordingWriter(tmp_path).record([request()], [told])
    (verdict,) = replay(tmp_path, request())
    assert (verdict.unscored, verdict.reasoning) == (Unscored.NOT_APPLICABLE, "It never came up.")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"key": NaN}', "NaN is not JSON"),
        ('{"score": 3, "score": 7}', "not JSON (the key 'score' stands twice"),
        (json.dumps({**LINE, "key": "abc"}), "'key' \"abc\": string should match"),
        (json.dumps({**LINE, "score": 10}), "'score' 10: input should be less"),
        (json.dumps({**LINE, "score": -1}), "'score' -1: "),
        (json.dumps({**LINE, "score": 7.0}), "'score' 7.0: "),
        (json.dumps({**LINE, "score": True}), "'score' true: "),
        (json.dumps({**LINE, "score": "7"}), "'score' \"7\": "),
        (json.dumps({**LINE, "score": None}), "exactly one of 'score' and 'unscored'"),
        (json.dumps({**LINE, "unscored": "no_evidence"}), "exactly one of 'score' and 'unscored'"),
        (
            json.dumps({**LINE, "score": None, "unscored": "unrecorded"}),
            "no reason that is recorded of kind 'proposition'",
        ),
        (json.dumps({**LINE, "score": None, "unscored": ["timeout"]}), "'unscored' [\"timeout\"]: "),
        (json.dumps({**FAILURE, "score": 3}), "exactly one of 'score' and 'unscored'"),
        (json.dumps({**FAILURE, "min_coverage": True}), "'min_coverage' true: "),
        (json.dumps({**FAILURE, "min_coverage": -1}), "'min_coverage' -1: "),
        (json.dumps({**FAILURE, "detail": "two\nlines"}), "'detail' is not one line"),
        (json.dumps({**FAILURE, "detail": "\u202eback"}), "'detail' is not one line"),
        (json.dumps({**LINE, "min_coverage": 0.5}), "only what failed has 'detail' and 'min_coverage'"),
        (json.dumps({**LINE, "score": None, "unscored": "no_evidence", "detail": "x"}), "only what failed has"),
        (json.dumps({**LINE, "scores": 7}), "unknown field 'scores'; did you mean 'score'?"),
        (json.dumps({**LINE, "proposition_id": ""}), "'proposition_id' is missing"),
        (json.dumps({**LINE, "claim": 1}), "'claim' 1: "),
        (json.dumps({**LINE, "model": 1}), "'model' 1: "),
        (json.dumps({**LINE, "evidence": [{"quote": "x"}]}), "'evidence' [{"),
        (json.dumps({**LINE, "ideas": "x"}), "'ideas' \"x\": "),
        (json.dumps({"key": KEY, "kind": "gate"}), "exactly one of 'answer' and 'unscored'"),
        (json.dumps({"key": KEY, "kind": "gate", "answer": 1}), "'answer' 1: "),
        (
            json.dumps({"key": KEY, "kind": "gate", "unscored": "no_evidence"}),
            "no reason that is recorded of kind 'gate'",
        ),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_recording_is_named_with_its_place(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        OpenedJudge(RecordedBackend(tmp_path))
    assert f"{path}:2: " in str(caught.value)
    assert said in str(caught.value)


def test_all_bad_lines_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x\n\ny\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(ConfigError) as caught:
        load_recordings(tmp_path, None)
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match=r"a\.jsonl:3"):
        load_recording_file(tmp_path / "a.jsonl", None)


def test_two_answers_to_one_question_are_an_error_that_names_both(tmp_path: Path) -> None:
    written(tmp_path)
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({**LINE, "score": 6}) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"(?s)file\.jsonl:1: .*another answer at .*other\.jsonl:1"):
        load_recordings(tmp_path, None)


def test_the_same_answer_twice_is_no_error(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "other.jsonl").write_text(json.dumps({**LINE, "recorded_at": "2026-06-01"}) + "\n", encoding="utf-8")
    assert len(load_recordings(tmp_path, None)) == 1


def test_what_is_filed_under_other_agents_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob, gone = map(recorded_as, ("ann", "bob", "gone"))
    for item in (ann, bob, gone):
        RecordingWriter(tmp_path).write([replace(item, key=item.proper_key)])
    (tmp_path / "bob" / "deep").mkdir()
    (tmp_path / "bob" / "deep" / "bad.jsonl").write_text("x\n", encoding="utf-8")
    loose = replace(ann, proposition_id="loose")
    (tmp_path / "by-hand.jsonl").write_text(replace(loose, key=loose.proper_key).to_line(), encoding="utf-8")
    read: list[str] = []
    monkeypatch.setattr(line, "parse_line", lambda *args, whole=line.parse_line: read.append(args[0]) or whole(*args))
    known = RecordedBackend(tmp_path, without=["bob"]).recordings.values()
    assert {(item.agent_id, item.proposition_id) for item in known} == {
        ("ann", "cheerful"),
        ("gone", "cheerful"),
        ("ann", "loose"),
    }
    assert len(read) == 3
    with pytest.raises(ConfigError, match=r"bad\.jsonl:1"):
        RecordedBackend(tmp_path)


def recorded_as(agent_id: str) -> Recording:
    return Recording(
        "0" * 64, agent_id=agent_id, dimension="adherence", proposition_id="cheerful", trajectory="b" * 64, score=7
    )


def test_a_missing_folder_has_no_recordings(tmp_path: Path) -> None:
    assert load_recordings(tmp_path / "none", None) == {}


def test_writing_replaces_the_same_key_keeps_the_rest_and_is_sorted(tmp_path: Path) -> None:
    def item(told: str, name: str, score: int) -> Recording:
        about = Recording(
            "0" * 64, agent_id="michael", dimension="fluency", proposition_id=name, trajectory=told * 64, score=score
        )
        return replace(about, key=about.proper_key)

    RecordingWriter(tmp_path).write([item("b", "zeta", 1), item("a", "alpha", 2)])
    RecordingWriter(tmp_path).write([item("b", "zeta", 3), item("c", "beta", 4)])
    path = tmp_path / "michael" / "fluency.jsonl"
    assert [(line.proposition_id, line.score) for line in load_recording_file(path, None)] == [
        ("alpha", 2),
        ("beta", 4),
        ("zeta", 3),
    ]
    assert RecordingWriter(tmp_path).write([item("b", "zeta", 3)]) == []


def test_what_a_killed_writer_left_half_written_goes_with_the_next_writing(tmp_path: Path) -> None:
    (tmp_path / "michael").mkdir()
    (tmp_path / "michael" / ".adherence.jsonl.x1y2z3").write_text("{", encoding="utf-8")
    RecordingWriter(tmp_path).record([request(agent_id="michael")], [Verdict("cheerful", score=7)])
    assert [path.name for path in (tmp_path / "michael").iterdir()] == ["adherence.jsonl"]


def test_a_file_that_does_not_load_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "michael" / "adherence.jsonl"
    path.parent.mkdir()
    path.write_text("precious\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", score=7)])
    assert path.read_text(encoding="utf-8") == "precious\n"


@pytest.mark.parametrize("name", ["../up", "a/b", "x" * 65, "nul\x00", "ü"])
def test_an_agent_that_cannot_name_a_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot name a recording's file"):
        RecordingWriter(tmp_path).record([request(agent_id=name)], [Verdict("cheerful", score=7)])


@pytest.mark.parametrize("hostile", ["\ud83d lone", "nul \x00", "line\u2028end\x85", "שלום\u202e", "😀"], ids=ascii)
def test_hostile_text_survives_recording(hostile: str, tmp_path: Path) -> None:
    told = Verdict("cheerful", score=3, reasoning=hostile)
    RecordingWriter(tmp_path).record([request()], [told])
    (verdict,) = replay(tmp_path, request())
    assert verdict.reasoning == storable(hostile)


def rubric(**changes: object) -> Question:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["pass"],
        "properties": {"pass": {"type": "boolean"}},
    }
    fields = {"kind": "rubric", "subject": {"output": "hi"}, "label": "greets", "evidence": '"hi"', "ask": "Greets?"}
    return Question(**{**fields, "system": "s", "schema": schema, "max_tokens": 9, **changes})  # pyright: ignore


class Agreeing:
    """A backend that answers every question the same."""

    name = "agreeing"
    live = True

    async def ask(self, questions: list[Question]) -> list[Answer]:
        return [Answer({"pass": True}, model="m") for _ in questions]


def test_questions_of_other_kinds_replay_by_their_content(tmp_path: Path) -> None:
    recording = OpenedJudge(Agreeing(), writer=RecordingWriter(tmp_path))
    asyncio.run(recording.ask([rubric(agent_id="michael")]))
    assert (tmp_path / "rubric" / "michael.jsonl").exists()
    backend = RecordedBackend(tmp_path)
    known, reworded, other = asyncio.run(
        backend.ask(
            [
                rubric(agent_id="michael"),
                rubric(agent_id="michael", ask="Does it greet?"),
                rubric(agent_id="michael", subject={"output": "bye"}),
            ]
        )
    )
    assert known.data == reworded.data == {"pass": True}
    assert other.unscored is Unscored.UNRECORDED
    assert "no recording of greets" in other.detail
    assert backend.unused() == []


def test_a_recorded_answer_is_checked_like_any_other(tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record_answers([rubric()], [Answer({"pass": True})])
    picky = rubric(check=lambda data: "I do not like it")
    (bad,) = asyncio.run(RecordedBackend(tmp_path).ask([picky]))
    assert (bad.unscored, "I do not like it" in bad.detail) == (Unscored.INVALID_OUTPUT, True)


def test_what_nothing_asked_for_is_listed(tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record(requests(3), [Verdict(item.proposition_id, score=1) for item in requests(3)])
    judge = OpenedJudge(RecordedBackend(tmp_path))
    asyncio.run(judge.judge(requests(2)))
    assert [item.proposition_id for item in judge.backend.unused()] == ["habit_2"]


@pytest.mark.parametrize(
    "change",
    [
        {"agent_id": "pam"},
        {"dimension": "fluency"},
        {"proposition_id": "gloomy"},
        {"claim": "Michael is gloomy"},
        {"persona": "c" * 64},
        {"trajectory": "c" * 64},
        {"sample": 1},
        {"key": "c" * 64},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_relabelled_recording_is_an_error_with_its_place(change: dict[str, object], tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", score=7)])
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"adherence\.jsonl:1: its key is not that of what the line says"):
        OpenedJudge(RecordedBackend(tmp_path))


@pytest.mark.parametrize(
    ("old", "new"), [('"kind": "rubric"', '"kind": "gate"'), ("michael", "pam"), ('"subject": "', '"subject": "0')]
)
def test_an_answer_to_something_else_is_an_error(old: str, new: str, tmp_path: Path) -> None:
    RecordingWriter(tmp_path).record_answers([rubric(agent_id="michael")], [Answer({"pass": True})])
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match="its key is not that"):
        load_recording_file(path, None)


def test_a_recorded_verdict_whose_quotes_are_made_up_is_unsupported(tmp_path: Path) -> None:
    quote = Evidence("message-1", "never said", verified=True)
    RecordingWriter(tmp_path).record([request()], [Verdict("cheerful", score=9, evidence=(quote,))])
    (verdict,) = replay(tmp_path, request())
    assert (verdict.score, verdict.unscored) == (None, Unscored.UNSUPPORTED)
