"""A pull request whose week collapsed: whatever its author does, it is not green, or what makes it green is named first."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from persona_pipeline.guard.labels.files import Label
from persona_pipeline.judging.verdict import recording_key, shown_subject
from tests.support.pull_requests import DRIFT, build_repository, git, judge, record, rows, write_rows

SECRET = "only CI knows it"
Edit = Callable[[Path], object]


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("repositories")
    return {secret: build_repository(folder / f"signed-{bool(secret)}", secret) for secret in ("", SECRET)}


def golden(agent: str, change: Callable[[dict], object]) -> Edit:
    """Return what edits a golden file."""

    def edit(world: Path) -> None:
        path = world / "baselines" / f"{agent}.json"
        data = json.loads(path.read_text("utf-8"))
        change(data)
        path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")

    return edit


def lowered(data: dict, to: float = 0.4) -> None:
    data["dimensions"] = dict.fromkeys(data["dimensions"], to)
    data["propositionScores"] = {name: dict.fromkeys(own, to) for name, own in data["propositionScores"].items()}


def unnamed(data: dict) -> None:
    """As if it had been taken where nobody recorded."""
    for known in data["provenance"]["dimensions"].values():
        known.pop("recordings", None)


def noisy(data: dict) -> None:
    unnamed(data)
    for known in data["provenance"]["dimensions"].values():
        for item in (known, *known["claims"].values()):
            item.update({"windows": 2, "between": 1.5, "below": 1.5})


def other_judge(data: dict) -> None:
    unnamed(data)
    for known in data["provenance"]["dimensions"].values():
        known["judge_model"] = "another"


def labels(world: Path) -> None:
    """People who, it says, see what the judge does not."""
    found = []
    for path in sorted((world / "recordings").rglob("adherence.jsonl")):
        for number, row in enumerate(rows(path)):
            kept = {
                name: row[name]
                for name in ("agent_id", "dimension", "proposition_id", "claim", "persona", "trajectory")
            }
            known = Label.model_construct(**kept)
            key = recording_key(shown_subject(known))
            said = {"key": key, **kept, "labeller": "ann", "labeller_kind": "person", "score": (number * 7) % 10}
            found.append({**said, "unscored": None, "note": "", "labelled_at": "2026-06-20T00:00:00Z"})
    write_rows(world / "labels" / "adherence.jsonl", found)


def each(pattern: str, change: Callable[[dict], dict | None]) -> Edit:
    """Return what edits the rows of files, or takes those out that it gives nothing for."""

    def edit(world: Path) -> None:
        for path in sorted(world.glob(pattern)):
            write_rows(path, [new for row in rows(path) if (new := change(row))])

    return edit


def claims(change: Callable[[dict], object], *names: str) -> Edit:
    def edit(world: Path) -> None:
        for name in names or ("michael", "_default"):
            path = world / "propositions" / "adherence" / f"{name}.yaml"
            data = yaml.safe_load(path.read_text("utf-8"))
            change(data)
            path.write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")

    return edit


def of_claims(**values: object) -> Callable[[dict], object]:
    return lambda data: [item.update(values) for item in data["propositions"]]


def of_the_first(**values: object) -> Callable[[dict], object]:
    return lambda data: data["propositions"][0].update(values)


def turned(data: dict) -> None:
    for item in data["propositions"]:
        item["inverted"] = not item.get("inverted", False)


def moved(world: Path, old: str, new: str) -> None:
    (world / old).rename(world / new)


def remove(*paths: str) -> Edit:
    def edit(world: Path) -> None:
        import shutil

        for path in paths:
            place = world / path
            shutil.rmtree(place) if place.is_dir() else place.unlink()

    return edit


def several(*edits: Edit) -> Edit:
    return lambda world: [edit(world) for edit in edits]


def renamed(world: Path) -> None:
    moved(world, "personas/michael.yaml", "personas/mike.yaml")
    path = world / "personas" / "mike.yaml"
    path.write_text(path.read_text("utf-8") + "\naliases: [michael]\n", "utf-8")


def written(path: str, text: str) -> Edit:
    def edit(world: Path) -> None:
        (world / path).parent.mkdir(parents=True, exist_ok=True)
        (world / path).write_text(text, "utf-8")

    return edit


def linked(path: str, target: str) -> Edit:
    def edit(world: Path) -> None:
        import shutil

        place = world / path
        outside = world.parents[1] / "outside"
        shutil.move(place, outside) if place.exists() else outside.write_text("", "utf-8")
        place.symlink_to(target or outside)

    return edit


def store(world: Path) -> None:
    """The week as it would have been, in a store from elsewhere."""
    from persona_pipeline.world import World

    known = World.open(world, f"sqlite:///{world}/.persona/store.db")
    known.sync()
    known.store.close()


def ghost(world: Path) -> None:
    persona = (world / "personas" / "michael.yaml").read_text("utf-8").replace("Michael Scott", "Ghost")
    (world / "personas" / "ghost.yaml").write_text(persona, "utf-8")
    data = json.loads((world / "baselines" / "michael.json").read_text("utf-8")) | {"agentId": "ghost"}
    noisy(data)
    (world / "baselines" / "ghost.json").write_text(json.dumps(data), "utf-8")


def is_of_the_week(row: dict) -> bool:
    return row["agent_id"] == "michael" and row["created_at"] >= DRIFT


def bad(row: dict) -> bool:
    return row.get("agent_id") == "michael" and row["score"] is not None


def inverted_ids(world: Path) -> set[str]:
    files = (world / "propositions" / "adherence").glob("*.yaml")
    return {
        p["id"] for file in files for p in yaml.safe_load(file.read_text("utf-8"))["propositions"] if p.get("inverted")
    }


def forged(world: Path) -> None:
    low = inverted_ids(world)
    each(
        "recordings/michael/*.jsonl",
        lambda row: {**row, "score": 0 if row["proposition_id"] in low else 9} if bad(row) else row,
    )(world)


MUTATIONS: dict[str, Edit] = {
    "a persona deleted": remove("personas/michael.yaml"),
    "a persona and its baseline deleted": remove("personas/michael.yaml", "baselines/michael.json"),
    "an agent under another name": renamed,
    "an agent under another name with its baseline": several(
        renamed,
        golden("michael", lambda data: (data.update(agentId="mike"), lowered(data), unnamed(data))),
        lambda world: moved(world, "baselines/michael.json", "baselines/mike.json"),
    ),
    "a persona that is a draft": lambda world: moved(world, "personas/michael.yaml", "personas/michael.draft.yaml"),
    "another's name taken over": lambda world: written(
        "personas/pam.yaml", (world / "personas" / "pam.yaml").read_text("utf-8") + "\naliases: [michael]\n"
    )(world),
    "a persona edited": lambda world: written(
        "personas/michael.yaml", (world / "personas" / "michael.yaml").read_text("utf-8").replace("Michael", "michael")
    )(world),
    "a baseline lowered": golden("michael", lowered),
    "a baseline lowered that names no recordings": golden("michael", lambda data: (lowered(data), unnamed(data))),
    "a baseline of four keys": golden("michael", lambda data: (lowered(data), data.pop("provenance"))),
    "a baseline raised": golden("pam", lambda data: (lowered(data, 9.0), unnamed(data))),
    "a baseline deleted": remove("baselines/michael.json"),
    "a baseline without the dimension": golden(
        "michael", lambda data: (data["dimensions"].clear(), data["propositionScores"].clear(), data.pop("provenance"))
    ),
    "a baseline's own noise": golden("michael", noisy),
    "a neighbour's noise": golden("pam", noisy),
    "a new neighbour's noise": ghost,
    "a baseline of another judge": golden("michael", other_judge),
    "anchors of no agent": written("baselines/anchors.jsonl", '{"agent_id": "a", "name": "a", "persona": null, "anchors": []}\n'),
    "labels invented": labels,
    "a lexicon": written("lexicons/agreement.xx.yaml", "language: xx\nphrases: [paper, ream]\n"),
    "nudges": written("nudges/repetition.yaml", "texts: ['{example}']\n"),
    "settings of the world": written("persona.yaml", "regression_delta: 9\n"),
    "a store": store,
    "a store and the week deleted": several(store, each("messages/*.jsonl", lambda row: None if is_of_the_week(row) else row)),
    "recordings forged": forged,
    "recordings deleted": remove("recordings/michael"),
    "recordings relabelled": each(
        "recordings/pam/*.jsonl", lambda row: {**row, "agent_id": "michael"} if row["score"] else row
    ),
    "recordings given twice": lambda world: write_rows(
        world / "recordings" / "michael" / "more.jsonl",
        [{**row, "score": 9 - row["score"]} for row in rows(world / "recordings" / "michael" / "adherence.jsonl") if bad(row)],
    ),
    "claims weakened": claims(lambda data: [item.update(claim=f"{item['claim']}, or not") for item in data["propositions"]]),
    "claims of no weight": claims(lambda data: [item.update(weight=0) for item in data["propositions"]]),
    "claims of hardly any weight": claims(of_claims(weight=0.0001), "michael"),
    "claims turned round": claims(turned),
    "claims deleted": claims(lambda data: data.update(propositions=data["propositions"][:1])),
    "a file of claims deleted": remove("propositions/adherence/michael.yaml"),
    "a dimension deleted": remove("propositions/adherence"),
    "messages deleted": each("messages/*.jsonl", lambda row: None if is_of_the_week(row) else row),
    "messages edited": each(
        "messages/*.jsonl", lambda row: {**row, "text": "Paper!"} if is_of_the_week(row) else row
    ),
    "messages dated back": each(
        "messages/*.jsonl", lambda row: {**row, "created_at": "2025" + row["created_at"][4:]} if is_of_the_week(row) else row
    ),
    "messages of the future": each(
        "messages/*.jsonl", lambda row: {**row, "created_at": "2999" + row["created_at"][4:]} if is_of_the_week(row) else row
    ),
    "messages of somebody else": each(
        "messages/*.jsonl", lambda row: {**row, "agent_id": "micheal"} if is_of_the_week(row) else row
    ),
    "a file of messages deleted": remove("messages/general.jsonl"),
    "a link in the place of messages": linked("messages/general.jsonl", "/dev/null"),
    "a link out of the world": linked("messages/more.jsonl", ""),
    "a link in the place of baselines": linked("baselines", ""),
    "a workflow": written("../.github/workflows/personas.yml", "on: push\n"),
    "how files are checked out": written(".gitattributes", "messages/*.jsonl export-ignore -text\n"),
    "variables in a file": written(".env", "PERSONA_MIN_COVERAGE_REPLAY=0\n"),
    "a suite": written("suites/office.eval.yaml", "tests: []\n"),
}  # fmt: skip


# What signatures cover, or could be thought to.
SIGNED = [
    name
    for name in MUTATIONS
    if any(word in name for word in ("baseline", "recordings", "labels", "judge", "noise", "claims"))
]


@pytest.mark.parametrize(
    ("name", "secret"),
    [*((name, "") for name in MUTATIONS), *((name, SECRET) for name in SIGNED)],
    ids=lambda value: value and "signed" if value in ("", SECRET) else value,
)
def test_no_author_makes_a_collapse_green_unseen(
    repositories: dict[str, Path], tmp_path: Path, name: str, secret: str
) -> None:
    told = judge(repositories[secret], tmp_path, MUTATIONS[name], secret=secret)
    changed = git(tmp_path / "checkout", "diff", "--name-only", "week^", "week").splitlines()
    assert told.code or names_one_of(told.first_lines, changed), (
        f"green, and not named:\n{told.first_lines}\n{told.said}"
    )
    if told.comment:
        assert told.lines_before_the_verdict <= 3


def names_one_of(text: str, paths: list[str]) -> bool:
    """Whether a file is named by its path, its folder and agent, or its name."""
    places = [Path(path).relative_to("world") if path.startswith("world/") else Path(path) for path in paths]
    return any(str(place) in text or place.name in text or place.with_suffix("").name in text for place in places)


def persona(agent: str, old: str, new: str) -> Edit:
    def edit(world: Path) -> None:
        path = world / "personas" / f"{agent}.yaml"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")

    return edit


def said(*lines: tuple[str, str]) -> Edit:
    """Return what adds a healthy day's messages: agent and text."""

    def edit(world: Path) -> None:
        path = world / "messages" / "later.jsonl"
        day = "2026-06-14T1{}:00:00Z"
        found = [
            {"id": f"later-{n}", "agent_id": agent, "channel": "general", "text": text, "created_at": day.format(n)}
            for n, (agent, text) in enumerate(lines)
        ]
        write_rows(path, found)

    return edit


def taken_again(world: Path) -> None:
    """Baselines of the newest week, as the command takes them."""
    from persona_pipeline.base.options import EvaluationRequest
    from persona_pipeline.evaluation.against import fresh_world
    from persona_pipeline.evaluation.run import run_evaluation
    from persona_pipeline.judging.open import open_judge

    with fresh_world(world) as opened:
        run_evaluation(
            opened, open_judge("recorded", opened), EvaluationRequest(update_baseline=True, accept="the new manner")
        )


def newcomer(world: Path) -> None:
    text = (
        (world / "personas" / "pam.yaml")
        .read_text("utf-8")
        .replace("Pam Beesly", "Erin")
        .replace("Pam", "Erin")
        .replace("agent_id: pam", "agent_id: erin")
    )
    (world / "personas" / "erin.yaml").write_text(text, "utf-8")


def taken_again_of(agent: str) -> Edit:
    def edit(world: Path) -> None:
        kept = {path: path.read_bytes() for path in (world / "baselines").iterdir()}
        taken_again(world)
        for path, data in kept.items():
            path.write_bytes(data)
        assert (world / "baselines" / f"{agent}.json").exists()

    return edit


def labels_of_people(world: Path) -> None:
    """Who agree with the judge."""
    labels(world)
    # Verdicts on messages have no score.
    scores = {row["key"]: row.get("score") for path in (world / "recordings").rglob("*.jsonl") for row in rows(path)}
    each("labels/*.jsonl", lambda row: {**row, "score": scores[row["key"]]} if scores.get(row["key"]) else None)(world)


def nudges(world: Path) -> None:
    from persona_pipeline.corrections import nudges as packaged

    source = next((Path(packaged.__file__).parent / "data" / "nudges").iterdir())
    written(f"nudges/{source.name}", source.read_text("utf-8"))(world)


def another_claim(world: Path) -> None:
    claims(
        lambda data: data["propositions"].append({"id": "says-paper", "claim": "{{agent_name}} talks of paper"}), "jim"
    )(world)


SUITE = """
description: The office.
tests:
  - id: hello
    input: Hello?
    assert:
      - {type: contains, value: Hello}
"""
HONEST: dict[str, tuple[Edit, dict[str, str]]] = {
    "documentation only": (written("../README.md", "# The office\n"), {}),
    "nothing at all": (lambda world: None, {}),
    "a display name": (several(persona("jim", "Jim Halpert", "James Halpert"), record), {}),
    "a persona with recordings": (several(persona("dwight", "\n", "\n\n"), record), {}),
    "a persona's settings": (persona("pam", "corrections: {}", "corrections: {shadow_mode: true}"), {}),
    "a claim in other words": (several(claims(of_the_first(claim="{{agent_name}} can be told by words"), "_default"), record), {}),
    "a claim's advice": (claims(of_the_first(recommendations_for_improvement="Be yourself."), "pam"), {}),
    "a claim's weight": (claims(of_the_first(weight=2), "pam"), {}),
    "a new claim": (several(another_claim, record), {}),
    "a claim removed": (claims(lambda data: data["propositions"].pop(), "pam"), {}),
    "a new day": (several(said(("pam", "I drew the truck. Somebody ate it."), ("jim", "that tracks.")), record), {}),
    "a new agent that says nothing yet": (newcomer, {}),
    "a new agent with its baseline": (several(newcomer, said(("erin", "I drew it.")), record, taken_again_of("erin")), {}),
    "a new suite": (written("suites/office.eval.yaml", SUITE), {}),
    "baselines taken again": (taken_again, {"accept_baseline": "true"}),
    "labels of people": (labels_of_people, {}),
    "a lexicon": (written("lexicons/agreement.de.yaml", "language: de\nwords: {}\nphrases:\n  - genau\n"), {}),
    "nudges": (nudges, {}),
    "recordings of nobody taken out": (each("recordings/*/*.jsonl", lambda row: None if row["agent_id"] == "nobody" else row), {}),
    "a file of messages under another name": (lambda world: moved(world, "messages/general.jsonl", "messages/everybody.jsonl"), {}),
    "a workflow's comment": (written("../.github/workflows/personas.yml", "on: pull_request  # every one\n"), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_no_honest_author_is_turned_away_or_kept_reading(
    repositories: dict[str, Path], tmp_path: Path, name: str
) -> None:
    edit, inputs = HONEST[name]
    told = judge(repositories[""], tmp_path, edit, branch="healthy", **inputs)
    assert told.code == 0, f"{told.code}\n{told.said}\n{told.comment[:3000]}"
    assert told.lines_before_the_verdict == 0, told.first_lines


def test_a_collapse_that_is_meant_is_accepted_by_the_base_alone(repositories: dict[str, Path], tmp_path: Path) -> None:
    told = judge(repositories[""], tmp_path / "a", taken_again, accept_baseline="true")
    assert told.code == 0 and told.lines_before_the_verdict == 1
    assert told.first_lines.startswith(
        "<!-- persona-pipeline -->\n**Green only because of baselines/michael.json, baselines/dwight.json, "
    )
    assert "1 more: by HEAD^1, michael drifted" in told.first_lines
    told = judge(repositories[""], tmp_path / "b", taken_again)
    assert told.code == 3 and "Green only because of baselines/michael.json" in told.first_lines
    edit = several(
        taken_again, written("../.github/workflows/personas.yml", "on: pull_request # accept-baseline: true\n")
    )
    told = judge(repositories[""], tmp_path / "c", edit, accept_baseline="true")
    assert told.code == 3 and "its baselines are not accepted" in told.said and "personas.yml" in told.first_lines
