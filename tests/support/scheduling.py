"""Which worker runs which test, where pytest-xdist has several."""

import pytest
from _pytest.nodeid import NodeId
from xdist.scheduler import LoadGroupScheduling


class FileScheduling(LoadGroupScheduling):
    """A group's tests go to one worker, and so do those of a file: what they share is made once.

    They go in the order of the collection, see ``in_order``.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return scope.partition("::")[0] if scope == nodeid else scope


def in_order(items: list[pytest.Item], *, named: bool) -> None:
    """Put what takes long in front, so that workers end together.

    Args:
        named: write each test's group behind its name, where the scheduler looks for it. pytest-xdist 3.8 does so to an attribute
            that pytest 9.2 no longer reads.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items if named else ():
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            item._id = NodeId.parse(f"{item.nodeid}@{group.args[0]}")
