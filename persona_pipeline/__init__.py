"""Continuous evaluation for LLM personas.

    import persona_pipeline as pp

    world = pp.load_world("my-world")
    result = pp.evaluate(world)
    result.to_frame()

The names in ``__init__.pyi`` are public and stable. Each is imported on first use.
"""

import lazy_loader

from persona_pipeline.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
