"""Whole files of both tools: what they become, what is named, and that the result loads and runs."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from persona_pipeline.base.documents.yaml import load_document
from persona_pipeline.cli import main
from persona_pipeline.judging.verdict import Question
from persona_pipeline.suites import RunOptions, SuiteResult, load_suite, run_suite
from persona_pipeline.suites.importing.config import import_file, write_import
from persona_pipeline.suites.running.opening import load_targets
from tests.suites.support import judging, verdicts, write

SAMPLES = Path(__file__).parent / "samples"
PROMPTFOO, AGENTV = SAMPLES / "promptfoo" / "promptfooconfig.yaml", SAMPLES / "agentv" / "desk.eval.yaml"

# The lines of each file in which something is named; the words are those of ``test_parts``.
NAMED = {
    PROMPTFOO: {"promptfooconfig.yaml": [8, 22, 23, 44, 45, 50, 55, 59, 62, 62, 63], "more.csv": [3]},
    AGENTV: {"desk.eval.yaml": [5, 6, 35, 42]},
}


@pytest.mark.parametrize("sample", [PROMPTFOO, AGENTV], ids=["promptfoo", "agentv"])
def test_what_has_no_counterpart_is_named_with_its_line(tmp_path: Path, sample: Path) -> None:
    imported = import_file(sample, tmp_path)
    assert imported.origin == sample.parent.name
    found = [(Path(str(item.path)).name, item.line) for item in imported.findings]
    assert sorted(found) == sorted((name, line) for name, lines in NAMED[sample].items() for line in lines)


@pytest.mark.parametrize("sample", [PROMPTFOO, AGENTV], ids=["promptfoo", "agentv"])
def test_what_is_written_reads_back_as_the_same(tmp_path: Path, sample: Path) -> None:
    imported = import_file(sample, tmp_path / "deep" / "er")
    written = write_import(imported, sample, tmp_path / "deep" / "er")
    assert load_document(written[0]).data == imported.suite
    suite = load_suite(written[0])
    assert (suite.warnings, len(suite.tests)) == ((), len(imported.suite["tests"]))
    if imported.targets:
        assert load_document(written[1]).data == imported.targets
        assert load_targets(written[1]).names == [target["name"] for target in imported.targets["targets"]]


def kind(question: Question) -> dict[str, Any]:
    """A judge that finds everything satisfied."""
    if question.kind == "rubrics":
        asked = json.loads(question.ask.partition("\n")[2])["criteria"]
        analytic = "score" in question.schema["properties"]["checks"]["items"]["properties"]
        given = {"score": 10} if analytic else {"satisfied": True}
        return {"checks": [{"id": item["id"], "reasoning": "r", **given} for item in asked], "overall_reasoning": "all"}
    return {"reasoning": "r", "hits": [], "misses": [], "score": 1.0}


def ran(sample: Path, out: Path, answer: Any, **options: Any) -> SuiteResult:
    written = write_import(import_file(sample, out), sample, out)
    suite = load_suite(written[0])
    names: set[str] = {
        name for test in suite.tests for name in test.targets or suite.targets or (suite.target or "default",)
    }
    with judging(kind) as (services, _):
        assert services.judge is not None
        return run_suite(
            suite,
            targets=cast("dict[str, Any]", dict.fromkeys(names, answer)),
            judge=services.judge,
            options=RunOptions(allow_code=True, **options),
        )


def said(text: str) -> Any:
    return lambda prompt: {"text": text, "duration_ms": 5}


def test_imported_promptfoo_tests_grade_as_they_did(tmp_path: Path) -> None:
    """Each assert of a test without threshold must pass; with one, their mean must reach it."""
    names = ("opening-hours-short", "price-list-2-chat", "freshness", "as-data")
    answer = said("At seven; rye bread costs 3.20, of course.")
    good = verdicts(ran(PROMPTFOO, tmp_path / "a", answer, targets=("small",), test_ids=names))
    assert good == {**dict.fromkeys(names, "pass"), "as-data": "fail"}
    # The pattern of a price weighs 2 of 4, the mean is below 0.7.
    names = ("opening-hours-short", "price-list-1*")
    closed = ran(PROMPTFOO, tmp_path / "b", said("At seven, else closed."), targets=("small",), test_ids=names)
    assert {*verdicts(closed).values()} == {"fail"}


def test_imported_agentv_tests_ask_what_they_asked(tmp_path: Path) -> None:
    asked: list[Any] = []

    def answer(messages: Any) -> dict[str, Any]:
        asked.append(messages)
        return {"text": "Good morning! We close at six, bye", "duration_ms": 5}

    found = verdicts(ran(AGENTV, tmp_path / "out", answer))
    assert (found["closing"], found["ends"], found["greeting"]) == ("pass", "pass", "pass")
    texts = [[message["content"] for message in messages] for messages in asked]
    assert ["You work at Crumb & Co.", "Say goodbye"] in texts
    assert any(
        "Rye bread is sold by the piece." in text and "Two rye breads for Crumb & Co" in text for (text, *_) in texts
    )


def test_the_command_says_where_and_never_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = 'providers: [echo]\nprompts: ["Say {{ word }}"]\ntests: [{vars: {word: yes}, assert: [{type: contains, value: yes}]}]\n'
    write(tmp_path, {"promptfooconfig.yaml": plain, "programs.js": "x", "empty.yaml": "tests: []"})
    monkeypatch.chdir(tmp_path)

    def command(*more: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["persona-pipeline", "suite", *more])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    code, out, _ = command("import", "promptfooconfig.yaml")
    assert (code, out.splitlines()[-1]) == (0, "1 tests, 1 targets from promptfoo; 0 to look at.")
    assert command("run", "promptfooconfig.eval.yaml", "--allow-code")[0] == 0
    before = (tmp_path / "targets.yaml").read_text(encoding="utf-8")
    (tmp_path / "promptfooconfig.eval.yaml").unlink()
    code, _, err = command("import", "promptfooconfig.yaml")
    assert (code, "targets.yaml is there already; pass --force" in err) == (2, True)
    assert not (tmp_path / "promptfooconfig.eval.yaml").exists()
    assert (tmp_path / "targets.yaml").read_text(encoding="utf-8") == before
    assert command("import", "promptfooconfig.yaml", "--force")[0] == 0
    code, out, _ = command("import", str(AGENTV), "--output", "made", "--json")
    assert (code, json.loads(out)["from"], len(json.loads(out)["findings"])) == (1, "agentv", 4)
    for arguments in (("programs.js",), ("empty.yaml",), ("none.yaml",), ("promptfooconfig.yaml", "--from", "other")):
        # A file without a test is nothing to look at; the others are bad input.
        assert command("import", *arguments)[0] == (3 if arguments == ("empty.yaml",) else 2)
