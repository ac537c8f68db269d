"""What every asset carries alike: whose it is, and the judge whose scores it holds."""

from persona_pipeline.judging.prompt import PROMPT_VERSION
from persona_pipeline.settings import get_settings

OWNERS = ["team:persona-quality"]
JUDGE_POOL = "judge"
# Changing the judge or its prompt makes every score visibly stale.
JUDGE_VERSION = f"{PROMPT_VERSION}:{get_settings().judge_model}"
