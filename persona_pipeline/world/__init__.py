"""The world: agents, their messages, and the windows of an evaluation.

Names are in ``__init__.pyi``; each imports its module only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
