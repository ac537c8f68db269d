"""``is_json``: the answer is JSON and nothing else."""

from persona_pipeline.suites.asserts.base import Assert
from persona_pipeline.suites.asserts.context import Context
from persona_pipeline.suites.asserts.grades import Grade, UngradedError
from persona_pipeline.suites.format.javascript import is_json
from persona_pipeline.suites.targets.output import Output


class IsJson(Assert):
    """1 if the whole answer is one JSON value, scalars included; 0 for code fences, trailing commas, NaN and prose."""

    def grade(self, output: Output, context: Context) -> Grade:
        try:
            valid = is_json(output.text)
        except RecursionError as error:
            raise UngradedError("too_deep", "the answer nests too deep to be read") from error
        return Grade.of(valid, "The answer is valid JSON.", "The answer is not valid JSON.")
