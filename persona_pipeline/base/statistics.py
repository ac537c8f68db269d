"""Statistics that several rooms use."""


def share_interval(count: int, total: int) -> tuple[float, float] | None:
    """Return the exact 95 % interval (Clopper and Pearson) of a share, 0-1; None of no cases."""
    if total == 0:
        return None
    from scipy.special import betaincinv

    low = float(betaincinv(count, total - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return low, high
