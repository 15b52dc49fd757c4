"""A policy for the stress tests: any reachable size, drawn anew after every resize, so many times for each job."""

import os
import random

from penstock.api import Reason, ResizeVerdict


class RandomResizes:
    """Draws from a seed; RESIZES is how many each job gets."""

    name = "random"

    def __init__(self):
        self.draw = random.Random(1)
        self.left = {}
        self.wanted = {}  # by job: the size it was drawn at, and the one that was drawn

    def decide(self, offer, job, snapshot):
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
