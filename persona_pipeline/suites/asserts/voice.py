"""``voice``: the answer sounds like the agent, by the check that people's labels of its messages train."""

from pydantic import Field

from persona_pipeline.suites.answering.output import Output
from persona_pipeline.suites.format.models import Text
from persona_pipeline.suites.grading.base import Assert, Context
from persona_pipeline.suites.grading.results import Grade, UngradedError


class VoiceSounds(Assert):
    """How likely the answer sounds like the agent, 0-1: the lowest of its messages. Nobody is asked.

    The check is learnt from the world's ``labels/voice.jsonl``. Without enough labels the assert is an error: nothing can be told.
    """

    agent: Text = Field(description="The agent it should sound like.")

    def default_name(self, spelled: str) -> str:
        return f"{spelled}-{self.agent}"

    def grade(self, output: Output, context: Context) -> Grade:
        from persona_pipeline.guard.labels.check import NoCheck
        from persona_pipeline.suites.grading.persona_evaluation import answered, voice_check_of

        check = voice_check_of(context, self.agent)
        if isinstance(check, NoCheck):
            raise UngradedError("no_labels", f"the check of {self.agent}'s voice {check}; label with --voice")
        texts = answered(output)
        if not texts:
            raise UngradedError("no_evidence", f"there is no message of {self.agent} to check")
        score, worst = min((check.score(text), text) for text in texts)
        said = f"{worst[:80]!r} sounds like {self.agent} with {score:.2f} of 1; {check} {check.error()}."
        details = {"labels": check.labels, "auc": round(check.auc, 4)}
        return Grade(score, *(((said,), ()) if score >= 0.5 else ((), (said,))), details=details)
