"""The site of the documentation: every page in its navigation, every link whole, every command run."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from docs.site.build import BESIDE, DOCS, build, check
from docs.site.generated import cli_commands, described_fields, generated_pages
from persona_pipeline.base.errors import NothingError
from persona_pipeline.base.settings import Settings, get_settings
from persona_pipeline.cli.app import app
from persona_pipeline.defs.platform.settings import OrchestrationSettings
from persona_pipeline.judging.providers.base import PROVIDERS
from persona_pipeline.suites import load_suite
from tests.support.browser import chromium
from tests.support.waiting import PATIENCE
from tests.test_docs import COMMANDS, PROJECT, blocks

if TYPE_CHECKING:
    from playwright.sync_api import Page

CONFIGURATION = tomllib.loads((PROJECT / "docs" / "site" / "zensical.toml").read_text(encoding="utf-8"))


def pages_of(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
        return
    for entry in entries.values() if isinstance(entries, dict) else entries:
        yield from pages_of(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}
    pages |= {"index.md", *BESIDE.values(), *generated_pages()}
    listed = list(pages_of(CONFIGURATION["project"]["nav"]))
    assert pages - {*listed} == set(), "add these to nav in docs/site/zensical.toml"
    assert sorted(listed) == sorted(pages)


def test_the_start_page_leads_to_four_doors() -> None:
    titles = [*CONFIGURATION["project"]["nav"]]
    assert [title for entry in titles for title in entry] == ["Start", "Tutorial", "How-to", "Reference", "Explanation"]


def test_the_generated_pages_hold_every_command_setting_and_name() -> None:
    pages = generated_pages()
    for name, command in cli_commands():
        assert f"\n## {name}\n" in pages["reference/commands.md"]
        section = pages["reference/commands.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert [p.opts[0] for p in command.params if f"`{p.opts[0]}`" not in section] == []
    for model in (Settings, OrchestrationSettings):
        described = {name for name, field in model.model_fields.items() if field.description} | {
            *described_fields(model)
        }
        assert {*model.model_fields} - described == set()
        assert [
            name for name in model.model_fields if f"`PERSONA_{name.upper()}`" not in pages["reference/settings.md"]
        ] == []


def test_what_is_wrong_with_a_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="top">x</h1>', encoding="utf-8")
    (tmp_path / "index.html").write_text(
        '<a href="other.html#top">a</a><a href="other.html#gone">b</a><a href="gone.html">c</a><a href="https://a.example">d</a>'
        '<script src="//cdn.example/x.js"></script><link rel="stylesheet" href="https://fonts.example/x.css"><img src="x.png">',
        encoding="utf-8",
    )
    assert check(tmp_path) == [
        "index.html: loads //cdn.example/x.js",
        "index.html: loads https://fonts.example/x.css",
        "index.html: other.html#gone has no such anchor",
        "index.html: gone.html leads nowhere",
        "index.html: x.png leads nowhere",
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    build(folder)
    return folder


@pytest.mark.slow
def test_the_site_is_built_whole(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > len(list(DOCS.rglob("*.md")))


# What somebody types who has the question, and the page (and place in it) that answers it.
ASKED = {
    "cost 50 agents": "how-to/costs.html",
    "which model should judge": "how-to/choosing-a-judge.html",
    "ollama": "reference/providers.html",
    "exclude an agent": "reference/persona-yaml.html#leave-an-agent-out",
    "accept a known drop": "reference/persona-yaml.html#accept-a-known-drop-until-a-date",
    "how many messages": "explanation/guard.html#how-many-messages-and-windows",
    "good claim": "how-to/good-claims.html",
    "personal data": "explanation/personal-data.html",
    "slack webhook": "reference/persona-yaml.html#alerts",
    "change the window": "reference/persona-yaml.html#change-the-window-once-for-all",
    "without a key": "how-to/pull-requests.html#you-contribute-and-have-no-key",
    "promptfoo": "how-to/coming-from-other-tools.html",
    "csv semicolon": "how-to/importing.html#a-csv-with-semicolons",
    "model changed on a known day": "how-to/compare.html#since-a-known-day",
    "nsfw": "explanation/judge.html#nsfw-text-and-refusals-of-the-judge",
    "personas from a table": "how-to/importing.html#personas-from-a-table",
    "all agents and weeks": "reference/reports.html#all-agents-and-weeks-on-one-page",
    "can I trust the judge": "index.html#asked-most",
    "cost before running": "index.html#asked-most",
    "own judge model litellm": "reference/providers.html#openai-and-others",
    "german agents": "explanation/signals.html#languages",
    "import promptfoo suite": "reference/suite-import.html",
    "block a pull request": "how-to/pull-requests.html",
    "schedule every night": "how-to/dagster-in-pictures.html#2-on-a-schedule",
    "postgres": "how-to/deploy.html",
    "privacy of messages": "index.html#asked-most",
    "correct agents live": "how-to/corrections.html",
    "correct an agent live": "how-to/corrections.html",
    "correct an agent at runtime": "how-to/corrections.html",
    "cannot be told": "explanation/guard.html#three-verdicts",
}


@pytest.mark.slow
def test_search_works_from_the_file_and_finds_what_is_asked_most(site: Path) -> None:
    missed = {}
    with chromium() as browser:
        page = browser.new_page()
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("Control+k")
        for words, wanted in ASKED.items():
            found = found_by(page, words)
            if not any(address.startswith(wanted) for address in found[:5]):
                missed[words] = found[:5]
    assert missed == {}


def found_by(page: "Page", words: str) -> list[str]:
    """Return where the results of a search lead, in their order, from the site's folder."""
    # Addresses carry the new words before the list is the new one, so the list is emptied first.
    page.get_by_role("combobox").fill("zzzzqqqq")
    page.get_by_role("option").first.wait_for(state="detached")
    page.get_by_role("combobox").fill(words)
    page.get_by_role("option").first.wait_for()
    links = page.get_by_role("option").evaluate_all("all => all.map(one => one.href)")
    return [re.sub(r"^.*/site/|\?[^#]*", "", link) for link in links]


# Why a command is not run here, by how it begins.
NOT_RUN = {
    "facts ann --canon": "the id is of a fact of the reader's own",
    "label": "waits for a person",
    "view": "serves until it is stopped; tests/viewer run it",
    'baseline --agents michael --accept "': "would make the drift the norm; tests/evaluation/test_known_drift.py accepts one",
    "changes": "names a commit of the reader's own; tests/changes compare others",
    "suite run suites --changed origin/main": "compares with a commit of the reader's own; tests/test_green_means_held.py does",
    "evaluate --against": "compares with a commit of the reader's own; tests/test_pull_requests.py runs it",
    "watch": "watches until it is stopped; tests/corrections watch",
    "collect": "serves until it is stopped; tests/traces run it",
    "corrections serve": "serves until it is stopped; tests/corrections run it",
    "propositions draft": "asks a live judge",
    "personas import": "reads a card of the reader's own; tests/cards read others",
    "personas export": "writes a persona that was a card; tests/cards write others",
    "personas draft": "asks a live judge",
    "try ": "reads an export that is the reader's own; tests/cli/test_try.py reads every format",
    "ingest ": "reads files that are the reader's own; tests/importing read theirs",
    "suite import": "names files that are the reader's own; tests/suites import theirs",
    "suite run suites/order-desk.eval.yaml 'more/*.eval.yaml'": "names files that are the reader's own",
    "migrate": "asks for a Postgres; tests/store migrate one",
    "doctor": "asks a live judge",
    "compare main": "names commits of the reader's own; tests/cli compare others",
    "since 2026-11-24": "a day of the reader's own; tests/evaluation/test_since.py compares others",
    "bisect": "searches commits of the reader's own; tests/cli search others",
}
LIVE = tuple(f"--judge {name}" for name in PROVIDERS.built_in)
# What the sample world, which drifts and is recorded once, makes of them; every other command ends with 0.
ENDS = {
    "evaluate": {1},
    "evaluate --agents pam": {0},
    "evaluate --estimate": {0},
    # No facts of the sample world are recorded.
    "evaluate --facts": {1, 3},
    "baseline": {1},
    "baseline --agents michael": {0},
    "baseline --samples 3": {3},
    # No person has labelled the sample world.
    "calibrate": {3},
    "report": {0, 1},
    "suite compare": {0, 1},
    "suite run greeting.eval.yaml": {1},
    "suite run suites": {3},
    "suite run suites/": {0},
    "corrections replay": {3},
    # The gate has checked nothing in the sample world.
    "corrections statistics": {3},
}


def reason_not_to_run(text: str) -> str | None:
    if any(live in text for live in LIVE):
        return "asks a live judge"
    return next((why for begin, why in NOT_RUN.items() if text.startswith(begin)), None)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample world, with the files that pages tell their readers to write."""
    root = tmp_path_factory.mktemp("reader")
    for name in ("personas", "propositions", "messages", "recordings", "baselines", "labels", "suites"):
        shutil.copytree(PROJECT / name, root / name)
    (root / "persona.yaml").write_text("alerts: [voice-team]\n", encoding="utf-8")
    (root / "greeting.eval.yaml").write_text(blocks("yaml", "docs/how-to/suites.md")[0].text, encoding="utf-8")
    (root / "answers.json").write_text(blocks("json", "docs/how-to/suites.md")[0].text, encoding="utf-8")
    for script, (given, suite) in ELSEWHERE.items():
        text = next(
            block.text for block in blocks("python", "docs/how-to/coming-from-other-tools.md") if script in block.text
        )
        done = subprocess.run(
            [sys.executable, "-c", text.replace("answers.json", "their-answers.json")],
            input=given,
            cwd=root,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        (root / "imported").mkdir(exist_ok=True)
        (root / "imported" / suite).write_text(done.stdout, encoding="utf-8")
    return root


# What the scripts of the page on other tools read, and which suite comes of it.
ELSEWHERE = {
    "from_inspect.py": (
        '{"id": 1, "input": "When?", "target": "Thursday"}\n'
        '{"id": 2, "input": [{"role": "user", "content": "Which?"}], "target": ["A4-80", "A4-90"]}\n',
        "samples.eval.yaml",
    ),
    "from_deepeval.py": (
        json.dumps(
            [{"input": "When?", "actual_output": "Thursday.", "expected_output": "On Thursday.", "context": ["x"]}]
        ),
        "goldens.eval.yaml",
    ),
}


@pytest.mark.slow
def test_what_comes_from_other_tools_keeps_what_it_asks(reader: Path) -> None:
    kept = {
        name: [
            [(one.type, one.required) for one in test.asserts] for test in load_suite(reader / "imported" / name).tests
        ]
        for _, name in ELSEWHERE.values()
    }
    assert kept == {
        "samples.eval.yaml": [[("contains", True)]] * 2,
        # A test without asserts is judged by its criteria.
        "goldens.eval.yaml": [[]],
    }


# tests/test_docs.py goes through getting-started.md from top to bottom.
RUN = list(
    dict.fromkeys(
        text.removeprefix("persona-pipeline ")
        for page, text, complete in COMMANDS
        if complete and page != "docs/tutorial/getting-started.md"
    )
)


def test_what_is_not_run_is_named_and_there() -> None:
    told = {begin for begin in NOT_RUN if not any(text.startswith(begin) for text in RUN)}
    assert told == set()


@pytest.mark.slow
def test_every_command_runs(reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader)
    monkeypatch.setenv("PERSONA_DATABASE_URL", f"sqlite:///{reader}/store.db")
    monkeypatch.setenv("PERSONA_ROOT", str(reader))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    wrong = []
    for text in RUN:
        if reason_not_to_run(text):
            continue
        get_settings.cache_clear()
        done = CliRunner().invoke(app, shlex.split(text))
        expected = next((codes for begin, codes in sorted(ENDS.items(), reverse=True) if text.startswith(begin)), {0})
        code = done.exception.exit_code if isinstance(done.exception, NothingError) else done.exit_code
        if code not in expected or not isinstance(done.exception, SystemExit | NothingError | None):
            wrong.append(f"{text}: {done.exit_code} {done.exception!r} {done.output[-300:]}")
    assert not wrong, "\n".join(wrong)
