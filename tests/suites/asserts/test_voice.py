"""``voice``: an error, since the check that labels trained was removed."""

from pathlib import Path

import pytest

from persona_pipeline.suites import UngradedError
from tests.suites.support import grade


def test_it_is_an_error_that_names_what_to_use(tmp_path: Path) -> None:
    output = {"output_messages": [{"role": "assistant", "content": "Arr!"}]}
    with pytest.raises(UngradedError, match="type: propositions, agent: ann") as caught:
        grade(tmp_path, {"type": "voice", "agent": "ann"}, output)
    assert caught.value.failure.reason == "removed"
