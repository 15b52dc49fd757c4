"""What a user may set: `snakemake --penstock-POOL ...`, and what Snakemake has to know of the executor."""

# No deferred annotations: Snakemake takes the types of the fields as they are, to read its command line.
from dataclasses import dataclass, field
from typing import Optional

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

__all__ = ["INNER", "NO_POOL", "ExecutorSettings", "common_settings"]

INNER = ("auto", "always")
NO_POOL = "none"

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    # The environment goes with the jobs, as sbatch passes it on.
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    # Ends are told by the pool, so nothing is looked for on a schedule.
    init_seconds_before_status_checks=0,
    pass_group_args=True,
)


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]
    """The options of the command line."""

    pool: Optional[str] = field(
        default=None,
        metadata={
            "help": "The pool that runs the jobs (default: main, where it runs); none: all are jobs of Slurm.",
            "env_var": False,
            "required": False,
        },
    )
    inner: Optional[str] = field(
        default="auto",
        metadata={
            "help": "Whether a second Snakemake runs each job: auto (only where a plain shell command is not enough) "
            "or always.",
            "env_var": False,
            "required": False,
        },
    )
    ahead: Optional[int] = field(
        default=2,
        metadata={
            "help": "How many levels of the graph to submit ahead as jobs of Slurm that wait for each other; 0: none.",
            "env_var": False,
            "required": False,
        },
    )
