"""Runtime corrections: keep agents in character while they run, at the price of no message ever.

Nudges need no database and statistics no judge: each name of ``__init__.pyi`` brings in its own module only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
