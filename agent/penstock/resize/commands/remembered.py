"""The elastic jobs that a user has submitted, and what each is called."""

from __future__ import annotations

import os

from penstock.config import Config
from penstock.sbatch.remembered import SubmittedJobs, cluster_name
from penstock.state.ownership import acts_path

__all__ = ["remembered_elastic"]


def remembered_elastic(config: Config) -> SubmittedJobs:
    """Those that the caller has submitted on this host's cluster."""
    return SubmittedJobs(acts_path(config).parent / "elastic", cluster_name(os.environ))
