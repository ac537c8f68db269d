"""The five dimensions, planned and finished with a scripted judge."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from persona_pipeline.base.calls import run_async
from persona_pipeline.judging.verdict import JudgeRequest, Unscored, Verdict
from persona_pipeline.scoring.plan import AgentCase, DimensionPlan, recorded_coverage, scorers
from persona_pipeline.scoring.results import DimensionEvaluation
from persona_pipeline.scoring.text.repetition import catchphrase_part
from persona_pipeline.scoring.text.tokens import vocabulary_stats
from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.world import Message, Window
from persona_pipeline.world.propositions.models import Catchphrase, Proposition, PropositionSet

MONDAY = datetime(2026, 3, 9, 9, tzinfo=UTC)
NAMES = {"ann": "Ann", "bob": "Bob", "cat": "Cat"}


def said(agent_id: str, *texts: str, channel: str | None = "general", start: datetime = MONDAY) -> list[Message]:
    recipient = None if channel else "bob"
    return [
        Message(
            f"{agent_id}-{channel}-{start:%d}-{n}", agent_id, text, start + timedelta(minutes=n), channel, recipient
        )
        for n, text in enumerate(texts)
    ]


def case(
    own: Sequence[Message] = (), others: Sequence[Message] = (), earlier: Sequence[Message] = (), samples: int = 1
) -> AgentCase:
    spoken_in = sorted({m.channel for m in own if m.channel})
    everyone = sorted([*own, *others], key=lambda m: (m.created_at, m.id))
    return AgentCase(
        "ann",
        "Ann",
        "Ann is dry.",
        Window(end=MONDAY + timedelta(days=5), start=MONDAY - timedelta(days=2)),
        list(own),
        list(earlier),
        {channel: [m for m in everyone if m.channel == channel] for channel in spoken_in},
        names=NAMES,
        samples=samples,
    )


def claims(dimension: str, *items: Proposition, **settings: object) -> PropositionSet:
    found = items or (Proposition("p", "{{agent_name}} is dry in {{channel_name}}"),)
    return PropositionSet(dimension, found, **settings)  # pyright: ignore[reportArgumentType]


def score(plan: DimensionPlan, answer: Callable[[JudgeRequest], Verdict | int]) -> DimensionEvaluation:
    return plan.finish(run_async(ScriptedJudge(answer).judge(plan.requests)))


def unscored(reason: Unscored) -> Callable[[JudgeRequest], Verdict]:
    return lambda request: Verdict(request.proposition_id, unscored=reason)


OWN = said("ann", "First words here.", "Second thing said.", "A third remark.", "Fourth and last.")
OTHERS = said("bob", "Bob says so.", "Bob says more.")
EARLIER = said("ann", "Older words.", "Older remark.", start=MONDAY - timedelta(days=7))


@pytest.mark.parametrize("dimension", scorers())
def test_nothing_said_is_no_evidence_and_no_number(dimension: str) -> None:
    plan = scorers()[dimension](case(), claims(dimension))
    assert plan.requests == ()
    evaluation = plan.finish([])
    assert (evaluation.score, evaluation.unscored, evaluation.n_expected) == (None, "no_evidence", 0)
    assert evaluation.propositions["p"].unscored == "no_evidence"


def test_consistency_without_history_and_convergence_alone_are_no_evidence() -> None:
    for dimension in ("consistency", "convergence"):
        evaluation = scorers()[dimension](case(OWN), claims(dimension)).finish([])
        assert (evaluation.score, evaluation.unscored) == (None, "no_evidence"), dimension


@pytest.mark.parametrize("dimension", scorers())
@pytest.mark.parametrize("reason", [reason for reason in Unscored if not reason.is_answer])
def test_a_judge_that_fails_gives_no_number(dimension: str, reason: Unscored) -> None:
    plan = scorers()[dimension](case(OWN, OTHERS, EARLIER), claims(dimension))
    evaluation = score(plan, unscored(reason))
    assert evaluation.score is None
    assert evaluation.unscored == reason.value
    assert evaluation.coverage < 1
    assert evaluation.propositions["p"].score is None


@pytest.mark.parametrize("dimension", scorers())
def test_failing_judgments_never_raise_a_score_past_the_gate(dimension: str) -> None:
    items = [Proposition(f"p{n}", "{{agent_name}} is dry") for n in range(4)]
    plan = scorers()[dimension](case(OWN, OTHERS, EARLIER), claims(dimension, *items))

    def answer(request: JudgeRequest) -> Verdict | int:
        if request.proposition_id == "p0":
            return Verdict("p0", unscored=Unscored.TIMEOUT)
        return 9

    evaluation = score(plan, answer)
    assert evaluation.coverage < 1
    assert list(evaluation.failures) == ["p0"]
    assert set(evaluation.failed) == {"timeout"}


def test_not_applicable_leaves_both_sides_of_the_coverage() -> None:
    items = [Proposition("p", "x"), Proposition("q", "y", inverted=True)]
    plan = scorers()["adherence"](case(OWN), claims("adherence", *items))
    evaluation = score(plan, lambda r: 6 if r.proposition_id == "p" else Verdict("q", unscored=Unscored.NOT_APPLICABLE))
    assert (evaluation.score, evaluation.n_scored, evaluation.n_expected, evaluation.coverage) == (6.0, 1, 1, 1.0)
    assert evaluation.propositions["q"].unscored == "not_applicable"


def test_order_is_samples_then_invert_then_hard_then_weights() -> None:
    items = [Proposition("p", "x", weight=3.0), Proposition("q", "y", inverted=True)]
    plan = scorers()["adherence"](case(OWN, samples=2), claims("adherence", *items, hard=True))
    answers = iter([8, 6, 0, 1])
    evaluation = score(plan, lambda _: next(answers))
    p, q = evaluation.propositions["p"], evaluation.propositions["q"]
    assert (p.raw, p.score, p.samples) == (7.0, pytest.approx(5.6), [8.0, 6.0])
    assert (q.raw, q.score) == (0.5, pytest.approx(6.8))
    assert evaluation.score == pytest.approx((5.6 * 3 + 6.8) / 4)
    assert p.spread == pytest.approx(2**0.5)
    assert p.standard_error == pytest.approx(1.0)


@pytest.mark.parametrize("include", [True, False])
def test_the_persona_is_shown_only_when_the_set_says_so(include: bool) -> None:
    plan = scorers()["adherence"](case(OWN), claims("adherence", include_personas=include))
    assert [request.persona for request in plan.requests] == ["Ann is dry." if include else None]


@pytest.mark.parametrize("dimension", ["consistency", "fluency", "convergence"])
def test_voice_is_judged_without_the_persona_whatever_the_file_says(dimension: str) -> None:
    plan = scorers()[dimension](case(OWN, OTHERS, EARLIER), claims(dimension, include_personas=True))
    assert {request.persona for request in plan.requests} == {None}


def test_consistency_pairs_are_anonymous_and_stay_in_their_conversation() -> None:
    direct = said("ann", "A secret.", channel=None, start=MONDAY + timedelta(hours=2))
    older_direct = said("ann", "An old secret.", channel=None, start=MONDAY - timedelta(days=6))
    plan = scorers()["consistency"](case([*OWN, *direct], earlier=[*EARLIER, *older_direct]), claims("consistency"))
    (request,) = plan.requests
    assert request.claim.startswith("Speaker A is dry")
    parts: dict[str, list[str]] = {}
    for entry in request.trajectory.entries:
        assert entry.speaker == "Speaker A"
        parts.setdefault(entry.part or "", []).append(entry.text)
    assert parts == {
        "pair 1, earlier": ["Older words.", "Older remark."],
        "pair 1, now": [m.text for m in OWN],
        "pair 2, earlier": ["An old secret."],
        "pair 2, now": ["A secret."],
    }


def parts_of(own: Sequence[Message], earlier: Sequence[Message]) -> tuple[dict[str, list[str]], dict[str, object]]:
    """Return what consistency shows of each part, and its statistics."""
    plan = scorers()["consistency"](case(own, earlier=earlier), claims("consistency"))
    parts: dict[str, list[str]] = {}
    for entry in plan.requests[0].trajectory.entries:
        parts.setdefault(entry.part or "", []).append(entry.text)
    return parts, score(plan, lambda _: 6).statistics


def test_consistency_of_a_log_with_one_channel_a_conversation_compares_across_channels_and_says_so() -> None:
    week = MONDAY - timedelta(days=7)
    own = [m for n in range(3) for m in said("ann", f"Now {n}.", channel=f"talk-{n}")]
    earlier = [m for n in range(5) for m in said("ann", f"Then {n}.", channel=f"old-{n}", start=week)]
    earlier += said("ann", "A direct word.", channel=None, start=week)
    parts, statistics = parts_of(own, earlier)
    assert [parts[f"pair {n}, now"] for n in (1, 2, 3)] == [["Now 0."], ["Now 1."], ["Now 2."]]
    before = [text for n in (1, 2, 3) for text in parts[f"pair {n}, earlier"]]
    assert all(text.startswith("Then") for text in before), "channels are compared with channels"
    assert statistics["pairs_across_conversations"] == statistics["pairs"] == 3
    compared = statistics["conversations"]
    assert isinstance(compared, list)
    assert {item["now"] for item in compared} == {"#talk-0", "#talk-1", "#talk-2"}
    assert all(item["earlier"].startswith("#old-") and item["pairs"] == 1 for item in compared)
    assert parts_of(own, earlier) == (parts, statistics), "the draw is seeded"


def test_consistency_keeps_to_the_conversation_where_there_was_one_whatever_else_is_new() -> None:
    texts = ["In a new place.", *(f"There {n}." for n in range(5))]
    new = [*said("ann", *texts, channel="annex"), *said("ann", "Elsewhere.", channel="barn")]
    parts, statistics = parts_of([*OWN, *new], EARLIER)
    alone, _ = parts_of(OWN, EARLIER)
    assert {name: texts for name, texts in parts.items() if name.startswith("pair 1")} == alone
    assert (parts["pair 2, now"], parts["pair 3, now"]) == (texts[:5], texts[5:])
    assert statistics["conversations"] == [
        {"earlier": "#general", "now": "#general", "pairs": 1},
        {"earlier": "#general", "now": "#annex", "pairs": 2},
        {"earlier": "#general", "now": "#barn", "pairs": 1},
    ]


def test_consistency_of_channels_after_direct_messages_alone_takes_those() -> None:
    direct = said("ann", "A direct word.", channel=None, start=MONDAY - timedelta(days=7))
    parts, statistics = parts_of(OWN, direct)
    assert parts["pair 1, earlier"] == ["A direct word."]
    assert statistics["conversations"] == [{"earlier": "dm:ann+bob", "now": "#general", "pairs": 1}]


def test_consistency_has_at_most_ten_pairs_of_five() -> None:
    own = said("ann", *[f"Now {n}." for n in range(120)])
    earlier = said("ann", *[f"Then {n}." for n in range(120)], start=MONDAY - timedelta(days=7))
    (request,) = scorers()["consistency"](case(own, earlier=earlier), claims("consistency")).requests
    assert len(request.trajectory.entries) == 100
    assert len({entry.part for entry in request.trajectory.entries}) == 20


def test_fluency_weighs_its_parts_and_leaves_out_what_does_not_apply() -> None:
    texts = [f"Remark {word} stands alone here." for word in ("one", "two", "three")]
    phrases = (Catchphrase("Boom!", 0.1, 0.5), Catchphrase("never said", 0.1, 1.0))
    own = said("ann", *texts, "Boom goes it.")
    with_phrases = scorers()["fluency"](case(own), claims("fluency", catchphrases=phrases))
    evaluation = score(with_phrases, lambda _: 6)
    rows = evaluation.propositions
    assert rows["_catchphrase"].score == 4.5
    ngram = rows["_ngram"].score
    assert ngram is not None
    assert evaluation.score == pytest.approx(0.4 * ngram + 0.2 * 4.5 + 0.4 * 6)
    assert (evaluation.n_scored, evaluation.n_expected) == (3, 3)
    plain = score(scorers()["fluency"](case(own), claims("fluency")), lambda _: 6)
    assert plain.score == pytest.approx((ngram + 6) / 2)
    assert "_catchphrase" not in plain.propositions
    assert evaluation.statistics["catchphrases"]["Boom!"]["rate"] == 0.25


@pytest.mark.parametrize(("rates", "score"), [((0.5, 0.5), 9.0), ((0.5, 0.0), 4.5), ((0.0, 0.0), 0.0)])
def test_catchphrases_score_by_how_many_are_in_their_range(rates: tuple[float, ...], score: float) -> None:
    texts = ["Boom goes it.", "By Neptune!"]
    phrases = [Catchphrase(text, rate, rate) for text, rate in zip(("boom", "by neptune"), rates, strict=True)]
    row, _ = catchphrase_part(texts, phrases)
    assert row is not None and row.score == score


def test_fluency_of_one_message_has_no_repetition_to_measure() -> None:
    evaluation = score(scorers()["fluency"](case(OWN[:1]), claims("fluency")), lambda _: 6)
    assert evaluation.propositions["_ngram"].unscored == "no_evidence"
    assert (evaluation.score, evaluation.coverage) == (6.0, 1.0)


@pytest.mark.parametrize(
    ("texts", "ngram"),
    [
        pytest.param(["Ok.", "Fine.", "Ok."], None, id="no message has an n-gram: nothing was measured"),
        pytest.param(["Sell the paper now."] * 3, 0.0, id="no message has five words: three decide alone"),
        pytest.param(["Sell the paper now.", "Buy all tea here."], 9.0, id="short and different"),
    ],
)
def test_a_length_that_no_message_reaches_earns_nothing(texts: list[str], ngram: float | None) -> None:
    evaluation = score(scorers()["fluency"](case(said("ann", *texts)), claims("fluency")), lambda _: 6)
    row = evaluation.propositions["_ngram"]
    assert (row.score, row.unscored) == (ngram, "no_evidence" if ngram is None else None)
    assert evaluation.score == pytest.approx(6 if ngram is None else (ngram + 6) / 2)
    assert evaluation.coverage == 1


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        pytest.param(Unscored.NOT_APPLICABLE, 9.0, id="an answer: the judged part does not apply"),
        pytest.param(Unscored.TIMEOUT, None, id="a failure: there is no score"),
    ],
)
def test_a_claim_that_weighs_nothing_does_not_stand_in_for_the_others(reason: Unscored, expected: float | None) -> None:
    items = [Proposition("p", "x"), Proposition("q", "y", weight=0.0)]
    plan = scorers()["fluency"](case(OWN), claims("fluency", *items))
    evaluation = score(plan, lambda r: 2 if r.proposition_id == "q" else Verdict("p", unscored=reason))
    assert evaluation.score == expected


def test_repeated_messages_score_zero_on_repetition() -> None:
    own = said("ann", *["The very same five words again."] * 6)
    evaluation = score(scorers()["fluency"](case(own), claims("fluency")), lambda _: 9)
    assert evaluation.propositions["_ngram"].score == pytest.approx(0)
    assert evaluation.score == pytest.approx(4.5)


def test_convergence_hides_names_shuffles_and_shares_the_transcript() -> None:
    plan = scorers()["convergence"](case(OWN, OTHERS), claims("convergence"))
    (request,) = plan.requests
    speakers = {entry.speaker for entry in request.trajectory.entries}
    assert speakers == {"Speaker A", "Speaker B"}
    assert request.claim.startswith("Speaker ")
    assert request.claim.endswith('in "general"')
    texts = [entry.text for entry in request.trajectory.entries]
    assert sorted(texts) == sorted(m.text for m in [*OWN, *OTHERS])
    assert texts != [m.text for m in sorted([*OWN, *OTHERS], key=lambda m: (m.created_at, m.id))]
    bob = AgentCase("bob", "Bob", "", case().window, OTHERS, channels=case(OWN, OTHERS).channels, names=NAMES)
    other = scorers()["convergence"](bob, claims("convergence")).requests[0]
    assert other.trajectory == request.trajectory
    assert other.claim != request.claim


def test_convergence_weighs_channels_by_the_agents_messages() -> None:
    own = [*OWN, *said("ann", "Sell it.", channel="sales", start=MONDAY + timedelta(hours=1))]
    others = [*OTHERS, *said("cat", "I agree.", "I agree.", channel="sales", start=MONDAY + timedelta(hours=1))]
    plan = scorers()["convergence"](case(own, others), claims("convergence"))
    evaluation = score(plan, lambda r: 9 if r.claim.endswith('"general"') else 4)
    assert evaluation.propositions["p"].raw == pytest.approx((9 * 4 + 4) / 5)
    assert [part["raw"] for part in evaluation.propositions["p"].parts] == [9, 4]
    agreement = evaluation.propositions["_agreement"].score
    assert agreement == pytest.approx((9 * 4 + 9 * (1 - 2 / 3)) / 5)
    vocabulary = evaluation.propositions["_vocabulary"].score
    assert vocabulary is not None
    assert evaluation.score == pytest.approx(0.3 * vocabulary + 0.4 * 8 + 0.3 * agreement)
    assert set(evaluation.statistics["channels"]) == {"general", "sales"}
    assert evaluation.statistics["vocabulary"] == vars(vocabulary_stats([message.text for message in own]))


def test_ideas_are_counted_once_and_only_when_all_channels_were_judged() -> None:
    plan = scorers()["ideas_quantity"](case(OWN, OTHERS), claims("ideas_quantity"))
    assert [request.lists_ideas for request in plan.requests] == [True]
    listed = ("Sell tea", "sell tea!", "Buy a kettle")
    evaluation = score(plan, lambda r: Verdict(r.proposition_id, score=7, ideas=listed))
    assert evaluation.statistics["idea_count"] == 2
    assert evaluation.statistics["ideas"] == {"general": ["Sell tea", "Buy a kettle"]}
    failed = score(plan, unscored(Unscored.TIMEOUT))
    assert failed.statistics["idea_count"] is None


@pytest.mark.parametrize(
    ("answers", "scored", "reason", "failed", "spread"),
    [
        pytest.param((6, 8), 7.0, None, {}, 2**0.5, id="two answers"),
        pytest.param((Unscored.TIMEOUT, 8), 8.0, None, {"timeout": 1}, None, id="what failed leaves the other"),
        pytest.param((8, Unscored.UNRECORDED), None, "unrecorded", {"unrecorded": 1}, None, id="stale leaves nothing"),
        pytest.param(
            (Unscored.TIMEOUT, Unscored.UNRECORDED), None, "unrecorded", {"timeout": 1, "unrecorded": 1}, None,
            id="stale is said before what failed",
        ),
        pytest.param((Unscored.NOT_APPLICABLE, Unscored.TIMEOUT), None, "timeout", {"timeout": 1}, None, id="no answer"),
    ],
)  # fmt: skip
def test_of_a_claim_judged_twice(
    answers: Sequence[int | Unscored],
    scored: float | None,
    reason: str | None,
    failed: dict[str, int],
    spread: float | None,
) -> None:
    plan = scorers()["adherence"](case(OWN, samples=2), claims("adherence"))
    given = iter(answers)

    def answer(request: JudgeRequest) -> Verdict | int:
        found = next(given)
        return Verdict(request.proposition_id, unscored=found) if isinstance(found, Unscored) else found

    row = score(plan, answer).propositions["p"]
    assert (row.score, row.unscored, row.failed, row.spread) == (
        scored,
        reason,
        failed,
        spread and pytest.approx(spread),
    )


@pytest.mark.parametrize("suspected", [(), (0,), (1,), (0, 1)])
def test_one_judgment_that_suspects_an_injection_is_enough(suspected: tuple[int, ...]) -> None:
    plan = scorers()["adherence"](case(OWN, samples=2), claims("adherence"))
    given = [Verdict("p", score=8, injection_suspected=number in suspected) for number in range(2)]
    assert plan.finish(given).propositions["p"].injection_suspected is bool(suspected)


@pytest.mark.parametrize(
    ("asked", "coverage"),
    [((), None), ((0.5,), 0.5), ((0.5, 0.9, 0.7), 0.9), ((0.5, None), None), ((None,), None)],
)
def test_the_coverage_that_was_asked_for_is_the_highest_if_all_know_it(
    asked: tuple[float | None, ...], coverage: float | None
) -> None:
    failed = [Verdict("p", unscored=Unscored.TIMEOUT, min_coverage=least) for least in asked]
    assert recorded_coverage([Verdict("p", score=7, min_coverage=1.0), *failed]) == coverage


def test_a_stale_recording_is_never_averaged_away() -> None:
    own = [*OWN, *said("ann", "Sell it.", channel="sales", start=MONDAY + timedelta(hours=1))]
    others = [*OTHERS, *said("cat", "No.", channel="sales", start=MONDAY + timedelta(hours=1))]
    plan = scorers()["convergence"](case(own, others), claims("convergence"))
    evaluation = score(
        plan, lambda r: 9 if r.claim.endswith('"general"') else Verdict("p", unscored=Unscored.UNRECORDED)
    )
    assert evaluation.propositions["p"].unscored == "unrecorded"
    assert evaluation.score is None


@pytest.mark.parametrize("dimension", scorers())
def test_what_is_said_does_not_change_which_messages_are_drawn(dimension: str) -> None:
    def shown(last: str) -> list[list[str]]:
        own = said("ann", *[f"Remark number {n}." for n in range(30)], last)
        earlier = said("ann", *[f"Older number {n}." for n in range(30)], start=MONDAY - timedelta(days=7))
        plan = scorers()[dimension](case(own, OTHERS, earlier), claims(dimension))
        return [[entry.message_id for entry in request.trajectory.entries] for request in plan.requests]

    assert shown("The end.") == shown("Another end.")


def test_computed_rows_are_marked_and_the_judged_ones_are_not() -> None:
    """What is computed counts as no claim: a drop of it is the dimension's affair, and its noise is none of the judge's."""
    fluent = score(
        scorers()["fluency"](case(OWN), claims("fluency", catchphrases=(Catchphrase("third remark", 0, 1),))),
        lambda _: 7,
    )
    apart = score(scorers()["convergence"](case(OWN, OTHERS), claims("convergence")), lambda _: 7)
    marked = {key: row.algorithmic for item in (fluent, apart) for key, row in item.propositions.items()}
    assert marked == {"p": False, "_ngram": True, "_catchphrase": True, "_vocabulary": True, "_agreement": True}


def test_speakers_who_share_no_word_have_nothing_in_common() -> None:
    apart = case(said("ann", "Beets and bears."), said("bob", "Who hid my stapler?"))
    rows = score(scorers()["convergence"](apart, claims("convergence")), lambda _: 7).propositions
    assert rows["_vocabulary"].score == 9.0


def test_each_channel_says_how_near_its_voices_have_come() -> None:
    statistics = score(
        scorers()["convergence"](case(OWN, OTHERS, EARLIER), claims("convergence")), lambda _: 7
    ).statistics
    voices = statistics["channels"]["general"]["voices"]
    assert voices["similarity"] is not None
    assert voices["z"] is None
    assert "fewer than" in voices["missing"], "never silently nothing"


def test_convergence_without_a_lexicon_of_the_language_is_the_mean_of_its_other_parts() -> None:
    texts = ("Совершенно верно, я тоже так думаю.", "Да, вы правы, мы так и сделаем.")
    russian = case(said("ann", *texts), said("bob", *texts, start=MONDAY + timedelta(minutes=5)))
    found = score(scorers()["convergence"](russian, claims("convergence")), lambda _: 7)
    vocabulary, agreement = found.propositions["_vocabulary"], found.propositions["_agreement"]
    assert (agreement.score, agreement.unscored, agreement.detail) == (None, "not_applicable", "no lexicon for ru")
    assert vocabulary.score is not None
    assert found.score == pytest.approx((0.3 * vocabulary.score + 0.4 * 7) / 0.7)
    assert (found.n_scored, found.n_expected, found.failed) == (2, 2, {})
    assert "agreement_ratio" not in found.statistics["channels"]["general"]
