"""Malleable requests and what is said of them: one table for `penstock sbatch`, penstock.lua and a real slurmctld.

Each case: the lines of a script's head, DMR_SIZES, options of sbatch, and how the refusal begins (None: accepted).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CASES", "LEFT_ALONE", "Case"]

FORM = "malleable: must be min:max[:preferred[:factor]] in processes, such as 2:32:8:2, not"


class Case(NamedTuple):
    """`forced` is what DMR_SIZES says, "" where it is not set."""

    lines: str = ""
    refusal: str | None = None
    forced: str = ""
    options: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        return f"#!/bin/sh\n{self.lines}\ntrue\n"


def said(malleable: str, refusal: str | None = None) -> Case:
    return Case(f"#PENSTOCK malleable={malleable}", refusal and f"script:2: {refusal}")


def forced(sizes: str, refusal: str | None = None, lines: str = "") -> Case:
    return Case(lines, refusal and f"DMR_SIZES: {refusal}", sizes)


def per_node(count: int, malleable: str, refusal: str | None = None, *more: str) -> Case:
    return Case(f"#PENSTOCK malleable={malleable}", refusal, options=(f"--ntasks-per-node={count}", *more))


CASES = [
    # Nothing is said.
    Case(),
    Case("#SBATCH --comment='malleable=8:4'\n# PENSTOCK malleable=8:4"),
    Case("#PENSTOCKS malleable=8:4\n#penstock malleable=8:4\n #PENSTOCK malleable=8:4"),
    Case("hostname\n#PENSTOCK malleable=8:4"),
    Case("#PENSTOCK workflow=mosaic stage=merge after=project"),
    # Sizes.
    said("2:8"),
    said("2:32:8:2"),
    said("8:8:8"),
    said("1:2147483647:2147483647:2147483647"),
    said("0000000002:0000000008"),
    said("8", f"{FORM} '8'"),
    said("", f"{FORM} ''"),
    said("2:8:4:2:1", f"{FORM} '2:8:4:2:1'"),
    said("2:8:", f"{FORM} '2:8:'"),
    said(":8", f"{FORM} ':8'"),
    said("0:8", f"{FORM} '0:8'"),
    said("2:8:4:0", f"{FORM} '2:8:4:0'"),
    said("2:2147483648", f"{FORM} '2:2147483648'"),
    said("2:00000000008", f"{FORM} '2:00000000008'"),
    said("-2:8", f"{FORM} '-2:8'"),
    said("2:8.0", f"{FORM} '2:8.0'"),
    said("0x2:8", f"{FORM} '0x2:8'"),
    said("2:1e1", f"{FORM} '2:1e1'"),
    said("2-8", f"{FORM} '2-8'"),
    said("'2: 8'", f"{FORM} '2: 8'"),
    said('"%s%d\'"', f'{FORM} "%s%d\'"'),
    said(r"'a\b'", rf"{FORM} 'a\\b'"),
    said(f"2:{'8' * 70}", f"{FORM} '2:{'8' * 58}'"),
    said("8:4", "malleable: the minimum 8 is above the maximum 4"),
    said("2:8:9", "malleable: the preferred size 9 is outside 2..8"),
    said("2:8:1:2", "malleable: the preferred size 1 is outside 2..8"),
    # Lines.
    Case("#SBATCH -t1\n\n# words\n#PENSTOCK workflow=w stage=s malleable=8:4", "script:5: malleable: the minimum 8"),
    Case("#PENSTOCK\tmalleable='8:4'  # why", "script:2: malleable: the minimum 8"),
    Case('#PENSTOCK mall"e"able=8\\:4#why', "script:2: malleable: the minimum 8"),
    Case('#PENSTOCK "malleable=2:\\8"', f"script:2: {FORM} '2:\\\\8'"),
    Case("#PENSTOCK strategy=asa # malleable=8:4\n#PENSTOCK malleable=2:8"),
    Case("#PENSTOCK malleable", "script:2: #PENSTOCK malleable needs a value: malleable=..."),
    Case(
        "#PENSTOCK malleable=2:8\n#PENSTOCK malleable=2:8",
        "script:3: #PENSTOCK malleable= was given in script:2 already",
    ),
    Case("#PENSTOCK malleable='2:8", "script:2: #PENSTOCK cannot be read: No closing quotation"),
    Case('#PENSTOCK malleable="2:8', "script:2: #PENSTOCK cannot be read: No closing quotation"),
    Case("#PENSTOCK malleable=2:8\\", "script:2: #PENSTOCK cannot be read: No escaped character"),
    # The environment counts before the script.
    forced("2:8"),
    forced("2:32:8:2", lines="#PENSTOCK malleable=8:4"),
    forced("8:4", "malleable: the minimum 8 is above the maximum 4"),
    forced("8:4", "malleable: the minimum 8 is above the maximum 4", lines="#PENSTOCK malleable=2:8"),
    forced("four", f"{FORM} 'four'"),
    # Whole nodes, where the user does not say how many.
    per_node(4, "8:16"),
    per_node(4, "3:7"),
    per_node(4, "5:7", "malleable=5:7: no size of it fills whole nodes of 4 processes"),
    per_node(4, "5:7:6:1", "malleable=5:7:6:1: no size of it fills whole nodes of 4 processes"),
    per_node(4, "5:7", None, "--nodes=1"),
    per_node(4, "5:7", None, "--nodelist=n1"),
]

# `penstock sbatch` refuses these, for other reasons than their sizes; nobody else judges them.
LEFT_ALONE = [
    "#PENSTOCK",
    "#PENSTOCK mallable=2:8",
    "#PENSTOCK workflow=a/b stage=x",
    "#PENSTOCK stage=x",
]
