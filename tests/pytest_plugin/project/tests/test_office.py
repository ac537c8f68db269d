"""A project's own tests of its agents."""

import pytest

GOOD_WEEK = "2026-06-14T23:59:59Z"


@pytest.mark.persona("pam", dimension="adherence", threshold=7)
def test_pam_sounds_like_pam():
    pass


@pytest.mark.persona("michael", dimension="adherence", threshold=7)
def test_michael_sounds_like_michael():
    pass


@pytest.mark.persona("michael", dimension="adherence", threshold=7, as_of=GOOD_WEEK)
@pytest.mark.persona("dwight", "jim", dimension="fluency")
def test_it_was_better_before():
    pass


@pytest.mark.persona("michael", dimension="fluency")
def test_michael_has_not_fallen():
    pass


# Nobody has judged anything twice: there is no recording of it, and so no score.
@pytest.mark.persona("jim", dimension="fluency", threshold=7, samples=2)
def test_jim_was_judged_twice():
    pass


def test_scores_in_a_test(persona_eval, persona_world):
    found = persona_eval("pam", "jim", dimensions="adherence")
    assert found.score("pam", "adherence") > found.score("jim", "adherence")
    assert persona_world.agent_ids() == ["dwight", "jim", "michael", "pam"]


def test_a_score_that_is_not_there(persona_eval):
    assert persona_eval("jim", dimensions="fluency", samples=2).score("jim", "fluency", "stock-skeleton") > 7
