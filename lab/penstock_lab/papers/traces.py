"""The logs of real machines, by the folder that names them."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import UserError
from penstock_lab.papers.logs import find

__all__ = ["traces"]


def traces() -> list[Path]:
    """The logs that PENSTOCK_TRACES names. UserError where there are none."""
    folder = os.environ.get("PENSTOCK_TRACES")
    if not folder:
        raise UserError("PENSTOCK_TRACES must name a folder with logs in Standard Workload Format (*.swf, *.swf.gz)")
    return find(Path(folder))
