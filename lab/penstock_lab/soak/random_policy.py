"""A policy for stress: any reachable size, drawn anew after every resize, so many times for each job.

It is found by its entry point, as an installed plug-in: `installed` writes what one has.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from penstock.api import Job, Offer, Reason, ResizeVerdict, Snapshot

__all__ = ["RandomResizes", "installed"]


class RandomResizes:
    """Draws from a seed; RESIZES is how many each job gets."""

    name = "random"

    def __init__(self) -> None:
        self.draw = random.Random(1)
        self.left: dict[int, int] = {}
        self.wanted: dict[int, tuple[int, int]] = {}  # by job: the size it was drawn at, and the one that was drawn

    def decide(self, offer: Offer, job: Job, snapshot: Snapshot) -> ResizeVerdict:
        """Another reachable size for which there is room; the one drawn before until it is reached."""
        left = self.left.setdefault(job.id, int(os.environ["RESIZES"]))
        at, wanted = self.wanted.get(job.id, (offer.size, offer.size))
        if at != offer.size:  # it was resized
            left = self.left[job.id] = left - 1
        if left <= 0:
            return ResizeVerdict(offer.size, (Reason("enough", "that was the last one"),))
        room = len(snapshot.idle_nodes(job.partition)) * offer.per_node
        if at != offer.size or wanted == offer.size or wanted - offer.size > room:
            sizes = [s for s in offer.reachable() if s - offer.size <= room]
            wanted = self.draw.choice(sizes) if sizes else offer.size
        self.wanted[job.id] = (offer.size, wanted)
        return ResizeVerdict(wanted, (Reason("drawn", f"{wanted} was drawn"),))


def installed(folder: Path, resizes: int) -> dict[str, str]:
    """Put it into this folder as a plug-in; what an agent has to find in its environment then."""
    about = folder / "penstock_random-1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__), folder)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock-random\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[penstock.policies]\nrandom = random_policy:RandomResizes\n")
    return {"PYTHONPATH": str(folder), "RESIZES": str(resizes)}
