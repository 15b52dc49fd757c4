"""Records that are one job: the sizes of a resized one, the components of a heterogeneous one. Pure.

sacct -D has a row for every size of a job, all but the last RESIZING, and one for every component. They follow one
another; what stands apart stays apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.api import JobState
from penstock_lab.history.rows import Flag, Reason, Report, Row

__all__ = ["Joiner"]


class Joiner:
    """Takes records in the order of the dump and gives jobs, each with the place in which it begins."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._held: tuple[int, Row] | None = None

    def add(self, place: int, row: Row) -> Iterator[tuple[int, Row]]:
        """The jobs that are complete now."""
        if self._held is not None:
            first, held = self._held
            joined = self._joined(held, row)
            if joined is not None:
                place, row = first, joined
            else:
                yield from self.rest()
        self._held = (place, row)
        if row.state is not JobState.RESIZING and not row.part_of:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, Row]]:
        """What is still held back, at the end."""
        if self._held is None:
            return
        place, row = self._held
        self._held = None
        if row.state is JobState.RESIZING:
            self._report.leave(Reason.HALF_RESIZED, place)
            return
        yield place, row

    def _joined(self, held: Row, row: Row) -> Row | None:
        if held.state is JobState.RESIZING and held.id == row.id:
            self._report.join("another size of a resized job")
            return row._replace(
                submit=held.submit,
                eligible=held.eligible,
                start=held.start,
                nodes=held.nodes,
                cpus=held.cpus,
                memory=held.memory,
                flags=row.flags | Flag.RESIZED,
            )
        if held.part_of and held.part_of == row.part_of and held.submit == row.submit and held.id != row.id:
            self._report.join("a component of a heterogeneous job")
            return held._replace(
                start=min(held.start, row.start),
                end=max(held.end, row.end),
                nodes=held.nodes + row.nodes,
                cpus=held.cpus + row.cpus,
                memory=held.memory + row.memory,
            )
        return None
