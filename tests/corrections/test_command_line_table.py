import io

import pytest

from persona_pipeline.base.text import printable
from persona_pipeline.corrections.statistics import (
    CheckLatency,
    CorrectionStatistics,
    GateStatistics,
    correction_statistics,
)
from persona_pipeline.reporting.pages.instruments import statistics_page
from persona_pipeline.reporting.terminal import draw, page_text
from persona_pipeline.world import World
from tests.corrections.test_statistics import record_all

BUSY = GateStatistics(
    actions=1_234_567,
    passed=1_000_000,
    passed_after_retry=200_000,
    forced=30_000,
    fail_open=4_000,
    fail_open_by_reason={"timeout": 4_000},
    abandoned=567,
    pass_rate=0.975,
    checks=1_500_000,
    latency_ms=CheckLatency(p50=731.4, p95=1500, p99=4980.2, highest=4999),
    input_tokens=100_000_000,
    cached_tokens=300_000_000,
    cache_read_tokens=299_000_000,
    output_tokens=90_000_000,
    usd=1234.56789,
    unpriced_checks=4_000,
)
LONG_ID = "an-agent-" + "x" * 55


def test_both_tables(world: World) -> None:
    record_all(world)
    lines = page_text(statistics_page(correction_statistics(world.store))).splitlines()
    assert [" ".join(line.split()) for line in lines if line and not line.startswith("─")] == [
        "How messages ended",
        "agent actions passed retried forced unchecked abandoned pass rate",
        "ann 6 1 1 1 2 1 66.7%",
        "bob 1 1 0 0 0 0 100.0%",
        "all 7 2 1 1 2 1 75.0%",
        "What their checks took",
        "agent checks p50 ms p99 ms tokens in cached out dollars",
        "ann 10 100 300 150 50 20 0.0009+",
        "bob 1 100 100 15 5 2 0.0001",
        "all 11 100 300 165 55 22 0.0010+",
        "Sent unchecked: 1 API error, 1 timed out",
        "+ left out: checks of unknown price (1)",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("agent_id", ["michael", LONG_ID], ids=["a name", "64 characters"])
def test_millions_of_checks_fit(width: int, agent_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    found = CorrectionStatistics(total=BUSY, agents={agent_id: BUSY, "pam": GateStatistics(actions=1)})
    draw(statistics_page(found), terminal := Terminal())
    lines = printable(terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert agent_id in page_text(statistics_page(found))


def test_nothing_judged_has_no_rate_and_no_time() -> None:
    lines = page_text(statistics_page(CorrectionStatistics(total=GateStatistics(actions=1)))).splitlines()
    assert [line.split() for line in lines if line.startswith("all")] == [
        ["all", "1", "0", "0", "0", "0", "0", "-"],
        ["all", "0", "-", "-", "0", "0", "0", "0.0000"],
    ]
