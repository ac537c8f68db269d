"""The world: who is evaluated, on what they said, and when.

Names stand in ``__init__.pyi``; each brings in its own module only.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
