"""Falls in one sentence a person can act on."""

from persona_pipeline.baselines.models import DimensionComparison, PropositionDrop

MOST_CLAIMS = 2


def fall_sentence(agent_id: str, item: DimensionComparison, allowed: float) -> str:
    """Return what fell, by how much, how sure that is, and which claims to read first.

    Args:
        item: a dimension that regressed.
        allowed: points it may fall.
    """
    fell = -(item.delta or 0.0)
    text = f"{agent_id}: {item.dimension} fell by {fell:.2f} from {item.baseline:.2f} to {item.current:.2f} (allowed {allowed:g}"
    text += f"; {_sure(item.interval)})" if item.interval else ")"
    worst = sorted((test.delta, claim) for claim, test in item.claims.items() if test.delta <= -allowed)[:MOST_CLAIMS]
    if not worst:
        return text
    named = " and ".join(f"{claim} ({delta:+.1f})" for delta, claim in worst)
    return f"{text}; most of it in {named}: read {'those' if len(worst) > 1 else 'that'} first"


def drop_sentence(agent_id: str, drop: PropositionDrop, allowed: float) -> str:
    """Return which claim fell, by how much, and what to do about it where its file says so."""
    text = (
        f"{agent_id}: {drop.dimension}/{drop.proposition_id} fell by {-drop.delta:.1f} from {drop.baseline:.1f} to "
        f"{drop.current:.1f} (allowed {allowed:g}"
    )
    text += f"; {_sure(drop.interval)})" if drop.interval else ")"
    return f"{text}; {drop.recommendation}" if drop.recommendation else text


def _sure(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"95 % sure of {max(0.0, -high):.1f} to {-low:.1f}"
