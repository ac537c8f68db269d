"""How Dagster runs this project, from the environment: prefix ``PERSONA_``."""

from datetime import date
from functools import cache

import dagster as dg
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from persona_pipeline.base.settings import from_environment
from persona_pipeline.base.text import names_in


class OrchestrationSettings(BaseSettings):
    """Settings of schedules, sensors and alerts. Every field has a default that works on a fresh machine.

    Attributes:
        automation: whether sensors and schedules run as soon as they are deployed; else each is switched on in the UI.
        judge: judge of scheduled and sensed runs: 'recorded', or the provider of a live one.
        window: length of the window they evaluate, such as 7d, or 'all'.
        max_usd: US dollars a run may spend; 0: no limit.
        timezone: IANA name the schedules go by.
        nightly_hour: hour (0-23) of the nightly evaluation.
        nightly_agents: agents it covers, separated by commas; empty: all.
        nightly_touched: it also judges earlier windows again whose messages changed since.
        suites_cron: when the eval suites run.
        suite_allow_code: let eval suites run their programs.
        shard_size: agents that one run evaluates together, where many are to be evaluated.
        sensor_seconds: pause between two looks at the files and messages.
        new_messages: messages an agent must have sent since its last evaluation for a new one at once.
        quiet_minutes: silence after which fewer new messages are enough.
        cooldown_minutes: pause between two evaluations of the same agent that sensors request, over all hosts; 0: none.
        alert_webhook: where failed runs are reported, a Slack incoming webhook or anything that takes its JSON.
        dagster_url: address of the web interface, for links in alerts.
        reports_url: address under which the world's `.persona/reports` folder is served, for links to the HTML report.
        fresh_hours: hours after which an agent's evaluation is old, and after twice as many an error; 0: never.
        keep_days: age in days from which a run is forgotten; the newest about each agent and suite is kept.
        first_week: first day, such as 2026-06-01, of the weeks from which on there are scores by week; empty: there are none.
    """

    model_config = SettingsConfigDict(env_prefix="PERSONA_", extra="ignore", env_ignore_empty=True)

    automation: bool = False
    judge: str = "recorded"
    window: str = "7d"
    max_usd: float = Field(default=0.0, ge=0)
    timezone: str = "UTC"
    nightly_hour: int = Field(default=2, ge=0, le=23)
    nightly_agents: str = ""
    nightly_touched: bool = False
    suites_cron: str = "30 3 * * *"
    suite_allow_code: bool = False
    shard_size: int = Field(default=25, ge=1)
    sensor_seconds: int = Field(default=30, ge=1)
    new_messages: int = Field(default=20, ge=1)
    quiet_minutes: float = Field(default=15.0, ge=0)
    cooldown_minutes: float = Field(default=0.0, ge=0)
    alert_webhook: SecretStr | None = None
    dagster_url: str = ""
    reports_url: str = ""
    keep_days: int = Field(default=90, ge=1)
    fresh_hours: float = Field(default=26.0, ge=0)
    first_week: date | None = None

    @field_validator("dagster_url", "reports_url")
    @classmethod
    def _without_slash(cls, value: str) -> str:
        return value.rstrip("/")

    @property
    def sensor_status(self) -> dg.DefaultSensorStatus:
        """The default status of sensors."""
        return dg.DefaultSensorStatus.RUNNING if self.automation else dg.DefaultSensorStatus.STOPPED

    @property
    def schedule_status(self) -> dg.DefaultScheduleStatus:
        """The default status of schedules."""
        return dg.DefaultScheduleStatus.RUNNING if self.automation else dg.DefaultScheduleStatus.STOPPED

    @property
    def nightly_agent_ids(self) -> list[str]:
        """The agents of the nightly evaluation; empty: all."""
        return names_in(self.nightly_agents)


@cache
def orchestration() -> OrchestrationSettings:
    """Return this process's, read once from the environment; ConfigError names every variable that cannot be."""
    return from_environment(OrchestrationSettings)
