"""Each row of the trust boundary is held by tests that exist: they fail where the attack works again."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Tests as ``file::beginning of the name``, below ``tests``.
ROWS = {
    1: ("trust_boundary/test_attacks.py::test_1_a_suite",),
    2: ("trust_boundary/test_attacks.py::test_2_a_persona",),
    3: ("trust_boundary/test_attacks.py::test_3_a_rec",),
    4: ("trust_boundary/test_growth.py::test_no_text_makes",),
    5: ("corrections/test_gate.py::test_an_instruction",),
    6: (
        "corrections/test_gate_load.py::test_requests_of",
        "corrections/test_gate_load.py::test_load_is",
        "corrections/test_gate_load.py::test_an_outage",
    ),
    7: ("corrections/test_service.py::test_a_request_that_is_refused",),
    8: (
        "corrections/test_server.py::test_four_hundred",
        "corrections/test_server.py::test_heads",
        "corrections/test_server.py::test_one_address",
    ),
    9: ("trust_boundary/test_attacks.py::test_9_stat",),
    10: (
        "judging/test_canaries.py::test_a_judge_that_obeys",
        "judging/test_injection.py::test_most_attacks",
    ),
    11: (
        "store/test_leases.py::test_two_who_want",
        "store/test_leases.py::test_a_process_that_was_killed",
    ),
    12: ("trust_boundary/test_interruptions.py::test_with_a_full_disk",),
    13: ("corrections/test_service.py::test_who_checks",),
    14: ("trust_boundary/test_attacks.py::test_14_a_report",),
    15: (
        "test_pull_requests.py::test_no_author",
        "test_green_means_held.py::test_a_store_that_a_pull",
    ),
    16: ("test_green_means_held.py::test_invented_labels",),
    17: (
        "test_green_means_held.py::test_a_drop_nobody",
        "test_green_means_held.py::test_no_neighbour",
    ),
    18: ("test_green_means_held.py::test_a_lowered_baseline",),
    19: (
        "trust_boundary/test_files.py::test_every_kind",
        "trust_boundary/test_files.py::test_no_field_of_an_assert",
        "trust_boundary/test_files.py::test_no_field_of_a_target",
    ),
    20: (
        "trust_boundary/test_files.py::test_a_targets_file",
        "trust_boundary/test_files.py::test_a_suite_that_is",
    ),
    21: (
        "trust_boundary/test_collector.py::test_21_what",
        "trust_boundary/test_collector.py::test_21_a_bomb",
        "trust_boundary/test_collector.py::test_21_a_reading",
    ),
    22: ("trust_boundary/test_collector.py::test_22_slow",),
    23: ("trust_boundary/test_files.py::test_only_regular",),
    24: (
        "judging/test_canaries.py::test_a_judge_that_obeys",
        "judging/test_canaries.py::test_a_share_of_all",
        "judging/test_injection.py::test_most_attacks",
    ),
    25: ("judging/test_injection.py::test_talk_of",),
    26: (
        "trust_boundary/test_faults.py::test_26_a_damaged",
        "trust_boundary/test_faults.py::test_26_a_mistake",
        "trust_boundary/test_versions_and_clocks.py::test_a_store_of",
    ),
    27: (
        "trust_boundary/test_faults.py::test_27_no",
        "trust_boundary/test_faults.py::test_27_report",
    ),
    28: (
        "corrections/test_gate_load.py::test_28_a_loop",
        "corrections/test_gate_load.py::test_28_what",
    ),
    29: (
        "trust_boundary/test_faults.py::test_29_a_commits",
        "trust_boundary/test_faults.py::test_29_text",
        "trust_boundary/test_faults.py::test_29_labels",
        "trust_boundary/test_faults.py::test_29_a_page",
    ),
    30: ("trust_boundary/test_people.py::test_30_every",),
    31: (
        "test_atomic_files.py::test_a_device",
        "test_atomic_files.py::test_a_link",
    ),
    32: (
        "trust_boundary/test_gateway.py::test_32_a_message_that_is_always",
        "trust_boundary/test_gateway.py::test_32_whatever",
        "trust_boundary/test_gateway.py::test_32_rewrites",
    ),
    33: (
        "trust_boundary/test_gateway.py::test_33_a_request",
        "trust_boundary/test_gateway.py::test_33_an_upstream",
        "trust_boundary/test_gateway.py::test_33_each",
    ),
    34: (
        "suites/importing/test_gate.py::test_a_path_that_leads",
        "suites/importing/test_gate.py::test_only_the_gate",
    ),
    35: (
        "trust_boundary/test_gateway.py::test_35_events",
        "trust_boundary/test_gateway.py::test_35_the_work",
        "trust_boundary/test_gateway.py::test_35_what",
    ),
    36: (
        "trust_boundary/test_gateway.py::test_36_whatever",
        "trust_boundary/test_gateway.py::test_36_too_large",
    ),
    37: (
        "trust_boundary/test_gateway.py::test_37_a_large",
        "trust_boundary/test_gateway.py::test_37_what",
    ),
    38: (
        "suites/importing/test_hostile.py::test_a_template",
        "suites/importing/test_hostile.py::test_what_grows",
    ),
    39: ("trust_boundary/test_gateway.py::test_39_a_body",),
    40: ("trust_boundary/test_machine.py::test_40_checks",),
    41: (
        "trust_boundary/test_machine.py::test_41_a_thumb",
        "trust_boundary/test_machine.py::test_41_try",
    ),
    42: ("trust_boundary/test_gateway.py::test_42_a_request",),
    43: ("trust_boundary/test_gateway.py::test_43_no",),
    44: (
        "trust_boundary/test_machine.py::test_44_a_closed",
        "trust_boundary/test_machine.py::test_44_input",
    ),
}


def test_every_row_is_held() -> None:
    assert set(range(1, 45)) == ROWS.keys()


@pytest.mark.parametrize("row", ROWS)
def test_what_holds_a_row_exists(row: int) -> None:
    for name in ROWS[row]:
        path, _, start = name.partition("::")
        assert f"def {start}" in (TESTS / path).read_text(encoding="utf-8"), name
