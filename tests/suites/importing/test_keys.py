"""Every documented key and provider id of promptfoo and AgentV: it changes what is written, or it is named with its place."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from persona_pipeline.base.errors import ConfigError
from persona_pipeline.suites.importing.config import ImportedSuite, import_file
from persona_pipeline.suites.importing.findings import AGENTV, PROMPTFOO
from tests.suites.support import write

ASSERT: dict[str, Any] = {"type": "contains", "value": "a"}
# A value for each key that another kind of value would not do for.
VALUES: dict[str, Any] = {
    "prompts": ["other"],
    "providers": ["openai:other"],
    "targets": ["openai:other"],
    "provider": "openai:other",
    "tests": [{"vars": {"a": "z"}, "assert": [ASSERT]}],
    "scenarios": [{"config": [{"vars": {"a": "z"}}], "tests": [{"assert": [ASSERT]}]}],
    "defaultTest": {"assert": [{"type": "is-json"}]},
    "default_test": {"assert": ["Is short"]},
    "assert": [{"type": "is-json"}],
    "vars": {"a": "z"},
    "metadata": {"k": "v"},
    "options": {"prefix": "z"},
    "config": {"temperature": 0.5},
    "tags": {"k": "v"},
    "evaluateOptions": {"repeat": 3},
    "evaluate_options": {"repeat": 3},
    "threshold": 0.7,
    "weight": 3,
    "delay": 5,
    "repeat": 4,
    "maxConcurrency": 7,
    "max_concurrency": 7,
    "cache": True,
    "disableVarExpansion": True,
    "requires": {"agentv": ">=1"},
    "version": "1.0.0",
    "input_files": ["notes.md"],
    "turns": [{"input": "z", "assert": ["Greets"]}],
    "execution": {"cache": True},
    "workspace": {"setup": {"script": ["make"]}},
    "skip_defaults": True,
    "governance": {"owner": "z"},
    "required": True,
    "negate": True,
    "min_score": 0.5,
    "imports": {"tests": [{"vars": {"a": "z"}, "assert": ["Is kind"]}]},
    "name": "z",
    "rubrics": ["Is kind"],
    "setup": {"script": ["make"]},
    "before_all": {"script": ["make"]},
    "hooks": {"after_all": {"script": ["make"]}},
    "template": "box",
    "trials": {"count": 3},
    "timeout_ms": 7,
    "mode": "conversation",
    "id": "openai:z",
    "path": "more.yaml",
    "criteria": "Is kind",
    "expected_outcome": "Is kind",
    "runtime": {"mode": "profile"},
    "use_target": "other",
}
FILES = {
    "notes.md": "n",
    "box/a.txt": "",
    "more.yaml": "[{vars: {a: z}, assert: [{type: contains, value: a}]}]",
    ".agentv/targets.yaml": "targets: [{name: other, provider: openai, model: m2}]",
}
# Keys that say nothing about what is asked or checked, and names of prompts that nothing refers to.
SILENT = {("top", "$schema"), ("run", "showProgressBar"), ("prompt", "id")}
PROMPTFOO_BASE: dict[str, Any] = yaml.safe_load("""
prompts: [{raw: 'p {{ a }}', label: l}, {raw: 'q {{ a }}', label: k}]
providers: [{id: 'openai:m', label: x}]
defaultTest: {vars: {a: d}, metadata: {d: e}}
scenarios: [{config: [{vars: {a: s}}], tests: [{assert: [{type: contains, value: a}]}]}]
evaluateOptions: {repeat: 2}
tests:
  - vars: {a: [b, c]}
    options: {suffix: s}
    assert:
      - {type: contains, value: a}
      - {type: llm-rubric, value: Is kind}
      - {type: assert-set, assert: [{type: contains, value: a}]}
  - {assert: [{type: contains, value: a}]}
  - {path: more.yaml}
""")
# Where each part of a file is, from its top.
PROMPTFOO_PLACES: dict[str, tuple[tuple[str | int, ...], str]] = {
    "top": (
        (),
        "$schema description tags providers prompts tests scenarios defaultTest outputPath sharing nunjucksFilters env "
        "derivedMetrics extensions metadata redteam writeLatestResults tracing evaluateOptions commandLineOptions targets",
    ),
    "provider": (("providers", 0), "id label config prompts transform delay env inputs"),
    "prompt": (("prompts", 0), "id raw template label function config"),
    "test": (
        ("tests", 0),
        "description vars provider providers prompts providerOutput assert assertScoringFunction options "
        "threshold metadata",
    ),
    "defaultTest": (
        ("defaultTest",),
        "vars provider providers prompts providerOutput assert assertScoringFunction options threshold metadata",
    ),
    "options": (
        ("tests", 0, "options"),
        "prefix suffix postprocess transform transformVars storeOutputAs rubricPrompt provider "
        "factuality disableVarExpansion disableConversationVar disableDefaultAsserts runSerially",
    ),
    "assert": (
        ("tests", 0, "assert", 1),
        "type value config threshold weight provider rubricPrompt metric transform contextTransform",
    ),
    "assert-set": (("tests", 0, "assert", 2), "assert weight metric threshold config"),
    "file": (("tests", 2), "config"),
    "scenario": (("scenarios", 0), "config tests"),
    "run": (
        ("evaluateOptions",),
        "cache delay generateSuggestions interactiveProviders maxConcurrency repeat timeoutMs "
        "maxEvalTimeMs showProgressBar isRedteam silent",
    ),
}
AGENTV_BASE: dict[str, Any] = yaml.safe_load("""
description: d
providers: [{id: 'openai:m', label: x}]
prompts: [{raw: 'p {{ a }}', label: l}]
default_test: {vars: {a: d}, metadata: {d: e}}
assert: [Is polite]
evaluate_options: {max_concurrency: 2}
workspace: {teardown: {script: [make]}}
execution: {trials: {count: 2}}
tests:
  - {id: one, vars: {a: b}, assert: [Is kind, {type: contains, value: a}]}
  - {id: two, turns: [{input: 'Hi {{ a }}', assert: [Greets]}]}
""")
AGENTV_PLACES: dict[str, tuple[tuple[str | int, ...], str]] = {
    "top": (
        (),
        "$schema name category version author tags license requires input input_files imports tests target targets "
        "providers evaluate_options timeout_seconds threshold default_test environment scenarios derived_metrics output_path env "
        "nunjucks_filters extensions assert governance defaults experiment repeat budget_usd policy execution workspace prompts",
    ),
    "provider": (
        ("providers", 0),
        "id label config prompts transform delay env inputs runtime environment hooks use_target",
    ),
    "prompt": (("prompts", 0), "id raw function function_file path prefix suffix config command"),
    "default": (
        ("default_test",),
        "vars provider providers prompts assert assert_scoring_function options threshold metadata",
    ),
    "test": (
        ("tests", 0),
        "description vars provider providers prompts input_files assert assert_scoring_function options "
        "threshold execution run environment metadata conversation_id suite depends_on on_dependency_failure mode turns "
        "aggregation on_turn_failure window_size criteria expected_outcome expected_output input "
        "rubrics skip_defaults workspace governance",
    ),
    "turn": (("tests", 1, "turns", 0), "expected_output assert wait"),
    "assert": (
        ("tests", 0, "assert", 1),
        "metric weight required min_score negate threshold provider config transform value",
    ),
    "run": (
        ("evaluate_options",),
        "budget_usd max_concurrency cache delay generate_suggestions repeat timeout_ms max_eval_time_ms filter_range",
    ),
    "execution": (("execution",), "target targets workers assert cache trials budget_usd fail_on_error threshold"),
    "workspace": (("workspace",), "template setup hooks before_all repos docker mode"),
    "hook": (("workspace", "teardown"), "command timeout_ms reset"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    write(made, FILES)
    return made


def imported(folder: Path, data: dict[str, Any], origin: str) -> ImportedSuite | str:
    # JSON is YAML, and written sooner.
    (folder / "config.yaml").write_text(json.dumps(data), "utf-8")
    try:
        return import_file(folder / "config.yaml", folder, origin)
    except ConfigError as error:
        return str(error)


def seen(made: ImportedSuite | str) -> Any:
    """What a user sees of an import: what is written, and the findings without their places."""
    return made if isinstance(made, str) else (made.suite, made.targets, sorted(one.message for one in made.findings))


PLACES = {PROMPTFOO: (PROMPTFOO_BASE, PROMPTFOO_PLACES), AGENTV: (AGENTV_BASE, AGENTV_PLACES)}


@pytest.fixture(scope="module")
def bases(folder: Path) -> dict[str, ImportedSuite | str]:
    return {origin: imported(folder, base, origin) for origin, (base, _) in PLACES.items()}


CASES = [
    (origin, name, key)
    for origin, (_, places) in PLACES.items()
    for name, (_, keys) in places.items()
    for key in keys.split()
]


@pytest.mark.parametrize(("origin", "place", "key"), CASES, ids=[" ".join(case) for case in CASES])
def test_no_documented_key_is_without_effect_and_without_a_word(
    folder: Path, bases: dict[str, ImportedSuite | str], origin: str, place: str, key: str
) -> None:
    base, places = PLACES[origin]
    location, _ = places[place]
    changed = copy.deepcopy(base)
    part: Any = changed
    for step in location:
        part = part[step]
    part[key] = VALUES.get(key, "z")
    before, after = bases[origin], imported(folder, changed, origin)
    assert isinstance(before, ImportedSuite)
    assert (seen(before) == seen(after)) is ((place, key) in SILENT)
    if isinstance(after, ImportedSuite):
        assert all(finding.path and finding.line and finding.column for finding in after.findings)


# Ids of providers by the kind of target that they become; those under "" have no counterpart.
IDS: dict[str, dict[str, str]] = {
    PROMPTFOO: {
        "openai": "openai:gpt-5-mini openai:chat:gpt-5-mini openai:responses:gpt-5 openai:codex-mini-latest groq:llama-3.3-70b "
        "groq:responses:llama-3.3-70b deepseek:deepseek-chat mistral:mistral-large-latest",
        "anthropic": "anthropic:messages:claude-sonnet-4-5 anthropic:claude-sonnet-4-5",
        "azure": "azure:chat:mine azureopenai:chat:mine azure:responses:mine",
        "gemini": "google:gemini-2.5-flash",
        "vertex": "vertex:claude-sonnet-4-5 vertex:chat:claude-sonnet-4-5",
        "bedrock": "bedrock:us.anthropic.claude-sonnet-4-5-v1:0 bedrock:converse:anthropic.claude-sonnet-4-5-v1:0",
        "ollama": "ollama:chat:llama3.2:3b ollama:llama3.2",
        "openrouter": "openrouter:meta/llama-3:free",
        "http": "https://example.com/ask",
        "cli": "exec:run.py echo",
        "python": "python:run.py file://run.py file://run.py:ask",
        "": "openai:assistant:asst_1 openai:agents:mine openai:chatkit:wf_1 openai:codex-sdk openai:codex openai:codex:gpt-5 "
        "openai:codex-app-server openai:codex-desktop openai:embedding:text-embedding-3-small openai:text-embedding-3-small "
        "openai:image:dall-e-3 openai:dall-e-3 openai:video:sora-2 openai:realtime:gpt-realtime openai:gpt-realtime "
        "openai:transcription:whisper-1 openai:moderation:omni openai:completion:davinci-002 anthropic:claude-agent-sdk "
        "anthropic:claude-code anthropic:completion:claude-2 azure:assistant:a azure:foundry-agent:a azure:embedding:e "
        "azure:moderation:m azure:video:sora google:live:gemini-live google:image:imagen-4 google:video:veo-3 "
        "google:gemini-2.5-flash-image google:embedding:gemini-embedding-001 vertex:gemini-2.5-flash vertex:embedding:e "
        "bedrock:agents:A1 bedrock-agent:A1 bedrock:kb:K1 bedrock:nova-sonic bedrock:amazon.nova-lite-v1:0 bedrock:luma.ray-v2:0 "
        "ollama:embeddings:nomic mistral:embedding:m cohere:m file://run.js mcp promptfoo:manual-input ws://h",
    },
    AGENTV: {
        "openai": "openai:gpt-5-mini",
        "anthropic": "anthropic:claude-x",
        "azure": "azure:mine",
        "gemini": "gemini:g",
        "openrouter": "openrouter:m",
        "cli": "exec:run.py",
        "": "agentv:codex-cli openai:codex openai:codex-sdk:gpt-5 codex:m claude-cli:m vscode:m replay:m",
    },
}


@pytest.mark.parametrize(
    ("origin", "identity", "kind"),
    [(origin, one, kind) for origin, kinds in IDS.items() for kind, ids in kinds.items() for one in ids.split()],
)
def test_a_provider_id_is_a_target_of_its_kind_or_named(folder: Path, origin: str, identity: str, kind: str) -> None:
    tests = [{"id": "t", "vars": {"a": "b"}, "assert": [ASSERT]}]
    made = imported(folder, {"prompts": ["p"], "providers": [{"id": identity}], "tests": tests}, origin)
    assert isinstance(made, ImportedSuite)
    targets = made.targets["targets"] if made.targets else []
    assert [target["provider"] for target in targets] == ([kind] if kind else [])
    if not kind:
        assert any(identity in finding.message and finding.line for finding in made.findings), made.findings
