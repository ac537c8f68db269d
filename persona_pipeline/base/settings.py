"""Settings from the environment, prefix ``PERSONA_``."""

from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from persona_pipeline.base.errors import not_valid
from persona_pipeline.base.text import names_in

PREFIX = "PERSONA_"
PACKAGE_PARENT = Path(__file__).resolve().parents[2]
DEFAULT_JUDGE_MODEL = "claude-haiku-5-5"
LIVE_COVERAGE = 0.95
SCORE_BACKENDS = ("langfuse", "phoenix")

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


class TokenPrices(NamedTuple):
    """What a model costs, in US dollars a million tokens."""

    input: float
    output: float
    cache_write: float
    cache_read: float


class Settings(BaseSettings):
    """What can be set from outside. Every field has a default that works on a fresh machine.

    Attributes:
        root: the world's folder (personas/, propositions/, messages/, recordings/, baselines/, suites/). Default: the current
            folder.
        database_url: the store; default SQLite in ``<root>/.persona/store.db``. A Postgres URL switches everything.
        state: folder of generated files outside git (reports, results of suites); default ``.persona`` in the world, or at the
            top of a suite's repository. To be set where the world cannot be written.
        reports: where Dagster's jobs write reports: a folder, or a URL of an object store such as ``s3://bucket/reports``; default
            ``reports`` in the folder of the state.
        judge: who judges where a command does not say: ``recorded``, or the provider of a live judge.
        judge_model: model id the live judge asks for.
        judge_prices: prices of models as ``MODEL=INPUT/OUTPUT[/CACHE WRITE/CACHE READ]`` with commas between them, in US dollars a
            million tokens.
        judge_effort: how much the judge thinks, where the model takes that parameter; empty: not sent.
        judge_grouping: claims per call, all about the same transcript.
        judge_canaries: share (0-1) of transcripts that a live judge also gets two claims with a known answer about; 1 takes all.
        judge_width: calls to the judge under way at once.
        judge_max_tokens: tokens of an answer and the thinking before it.
        judge_deadline: wall-clock seconds one judge call may take in all, retries included.
        judge_requests_per_minute, judge_input_tokens_per_minute, judge_output_tokens_per_minute: the most that the judge is asked;
            None: what the server says.
        message_verdicts: an agent's messages in a window that are judged one by one, the newest; 0: none.
        anchors: messages with a known verdict by which the judge is checked in every run; 0: it is not checked.
        daily_usd: US dollars live judges may spend a UTC day, over all runs and hosts that share the store; 0: no limit.
        run_deadline: wall-clock seconds all judge calls of an evaluation may take, None for no limit.
        suite_allow_env: environment variables, with commas between them, that targets files inside a suite's repository may read.
        suite_allow_targets: let targets of such a file ask servers.
        suite_allow_path: folders, with commas between them, whose files suites may name in addition to those of their repository.
        recordings_secret: what recordings are signed with and must be signed with; None: they are not.
        keep_reasons_days: days after whose end a window's run loses claims, reasons and quotes; None: never.
        keep_messages_days: days after which messages are deleted from the store; None: never.
        keep_text_days: days after which texts in the log of corrections lose their words; None: never.
        min_coverage_replay, min_coverage_live: share of expected judgments (0-1) below which the gate fails.
        undecided_delta: points (0-9) from which a drop that may be chance is inconclusive instead of held.
        require_calibration: the gate fails until people have labelled 20 messages or 50 judgments.
        otel_events: send scores as OpenTelemetry events.
        otel_explanations: send the judge's reasons along with them.
        score_backends: further places that show scores of spans, with commas between them: ``langfuse``, ``phoenix``.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    root: Path | None = None
    judge: str = "recorded"
    database_url: SecretStr | None = None
    state: Path | None = None
    reports: str = ""
    judge_model: str = DEFAULT_JUDGE_MODEL
    judge_effort: str = "low"
    judge_prices: str = ""
    judge_grouping: int = Field(default=1, ge=1)
    judge_canaries: float = Field(default=0.1, ge=0, le=1)
    judge_width: int = 20
    judge_deadline: float = 60.0
    judge_max_tokens: int = 2048
    judge_requests_per_minute: float | None = Field(default=None, gt=0)
    judge_input_tokens_per_minute: float | None = Field(default=None, gt=0)
    judge_output_tokens_per_minute: float | None = Field(default=None, gt=0)
    message_verdicts: int = Field(default=400, ge=0)
    anchors: int = Field(default=20, ge=0, le=40)
    daily_usd: float = Field(default=0.0, ge=0)
    run_deadline: float | None = None
    suite_allow_env: str = ""
    suite_allow_targets: bool = False
    suite_allow_path: str = ""
    recordings_secret: SecretStr | None = None
    keep_reasons_days: int | None = Field(default=None, ge=1)
    keep_messages_days: int | None = Field(default=None, ge=1)
    keep_text_days: int | None = Field(default=None, ge=1)
    min_coverage_replay: float = 1.0
    min_coverage_live: float = LIVE_COVERAGE
    undecided_delta: float = Field(default=2.5, ge=0, le=9)
    require_calibration: bool = False
    otel_events: bool = False
    otel_explanations: bool = False
    score_backends: str = ""

    @field_validator("*", mode="before")
    @classmethod
    def _blank_is_unset(cls, value: object, info: ValidationInfo) -> object:
        # Of a default that is validated, older pydantics do not name the field.
        field = cls.model_fields.get(info.field_name or "") if value == "" else None
        is_off = info.field_name in ("daily_usd", "judge", "otel_events", "otel_explanations")
        return field.default if field and (is_off or field.default is None) else value

    @field_validator("judge_prices")
    @classmethod
    def _prices_can_be_read(cls, value: str) -> str:
        read_prices(value)
        return value

    @field_validator("score_backends")
    @classmethod
    def _backends_are_known(cls, value: str) -> str:
        if unknown := set(names_in(value)) - set(SCORE_BACKENDS):
            raise ValueError(f"{', '.join(sorted(unknown))} is none of {', '.join(SCORE_BACKENDS)}")
        return value

    @property
    def signing_secret(self) -> bytes | None:
        """What recordings are signed with and must be signed with; None: they are not."""
        return None if self.recordings_secret is None else self.recordings_secret.get_secret_value().encode("utf-8")

    @property
    def suite_environment(self) -> list[str]:
        """The names in ``suite_allow_env``."""
        return names_in(self.suite_allow_env)

    @property
    def suite_paths(self) -> list[Path]:
        """The folders in ``suite_allow_path``."""
        return [Path(name) for name in names_in(self.suite_allow_path)]

    @property
    def world_root(self) -> Path:
        """The world's folder, absolute: the named one, else the current folder."""
        return Path.cwd() if self.root is None else self.root.expanduser().resolve()


def read_prices(text: str) -> dict[str, TokenPrices]:
    """Return prices by model from ``MODEL=INPUT/OUTPUT[/CACHE WRITE/CACHE READ]`` with commas between them.

    ``ValueError``: the form is wrong, a price is not a finite number from 0, or a model occurs twice.
    """
    found: dict[str, TokenPrices] = {}
    for item in names_in(text):
        model, _, written = (part.strip() for part in item.rpartition("="))
        try:
            prices = [float(price) for price in written.split("/")]
        except ValueError:
            prices = []
        if not model or len(prices) not in (2, 4) or not all(0 <= price < float("inf") for price in prices):
            raise ValueError(
                f"{item!r} is no price; write MODEL=INPUT/OUTPUT or MODEL=INPUT/OUTPUT/CACHE WRITE/CACHE READ,"
                " in dollars a million tokens"
            )
        if model in found:
            raise ValueError(f"{model!r} has two prices")
        # Without prices for the cache, reading and writing it cost as much as other input.
        found[model] = TokenPrices(*prices, *(prices[:1] * 2 if len(prices) == 2 else []))
    return found


def from_environment(settings: type[SettingsT]) -> SettingsT:
    """Return settings read from the environment; ``ConfigError`` names every variable with a value it cannot have."""
    try:
        return settings()
    except ValidationError as error:
        raise not_valid(
            error, f"environment variable {PREFIX}{{variable}} is {{value!r}}: {{why}}; correct or unset it"
        ) from None


@cache
def get_settings() -> Settings:
    """Return this process's settings, read once, for where a door opens; ``ConfigError`` as of ``from_environment``."""
    return from_environment(Settings)
