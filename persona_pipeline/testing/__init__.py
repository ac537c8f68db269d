"""For tests of your own: a judge that is a function, and worlds piece by piece."""

from persona_pipeline.testing.judges import ScriptedJudge
from persona_pipeline.testing.worlds import WorldBuilder, write_small_world

__all__ = ["ScriptedJudge", "WorldBuilder", "write_small_world"]
