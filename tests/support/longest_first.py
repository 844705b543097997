"""The order in which the workers of a run take files: the longest first, so that none is left alone at the end."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# What takes longest, in this order. The tests of a folder share what the first of them makes: one worker runs them.
FOLDERS = ("tests/images/",)
FILES = (
    "tests/registry/test_debian_image.py",
    "tests/engine/test_store_users.py",
    "tests/engine/test_embedded_failures.py",
    "tests/clients/test_squashfs_variants.py",
    "tests/clients/test_squashfs_edges.py",
    "tests/attack/test_hostile_images.py",
    "tests/attack/test_kills.py",
)
ORDER = (*FOLDERS, *FILES)


def unit_of_work(node_id: str) -> str:
    """Return the folder or the file whose tests one worker runs one after the other."""
    file = node_id.partition("::")[0]
    return next((folder for folder in FOLDERS if file.startswith(folder)), file)


def place(unit: str) -> int:
    return ORDER.index(unit) if unit in ORDER else len(ORDER)


class LongestFirst(LoadFileScheduling):
    """``--dist loadfile``, which takes the files with most tests first, after those of `ORDER`."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of_work(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=place), last=False)
        super()._assign_work_unit(node)
