"""SciPy's special functions without the rest of SciPy, and the types of arrays that the statistics work on."""

import sys
from functools import cache
from importlib import import_module
from threading import RLock
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]

_SPECIAL, _TURN = "scipy.special", RLock()


@cache
def special() -> Any:
    """Return SciPy's special functions, such as ``stdtr``, under their names there.

    They are in two modules; the package around them brings in all of NumPy for the arrays of other libraries, which would be 24 MB
    and 0.1 s of every evaluation. Where a release keeps them elsewhere, it is the package.
    """
    with _TURN:
        if _SPECIAL not in sys.modules:
            import scipy

            around = sys.modules[_SPECIAL] = ModuleType(_SPECIAL)
            around.__path__ = [f"{folder}/special" for folder in scipy.__path__]
            try:
                basic, compiled = (vars(import_module(f"{_SPECIAL}.{name}")) for name in ("_basic", "_ufuncs"))
                return SimpleNamespace(**basic | compiled)
            except ImportError:
                pass
            finally:
                # Who asks for the package gets the whole of it.
                del sys.modules[_SPECIAL]
        return import_module(_SPECIAL)
