"""What a task keeps to that was submitted as a job: its files, its limit, and what it waits for. Pure.

Such a task runs a script that was copied at its submission, with the environment of that moment. Its job's number is
`first` plus the task's own, far above any that Slurm gives, so it never changes and is never another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from penstock.fronts.programs.divide import FIRST_JOB

__all__ = ["FIRST_JOB", "AfterJob", "ArrayPlace", "JobTerms", "WaitReason", "terms_from_dict", "terms_to_dict"]


class WaitReason(StrEnum):
    """Why a job waits, in Slurm's words."""

    NONE = "None"
    RESOURCES = "Resources"
    DEPENDENCY = "Dependency"
    NEVER = "DependencyNeverSatisfied"
    HELD = "JobHeldUser"
    BEGIN = "BeginTime"
    ARRAY = "JobArrayTaskLimit"


@dataclass(frozen=True, slots=True)
class AfterJob:
    """One condition of `--dependency`: `kind` is Slurm's word; `job` the number of a job, of Slurm's or of the pool's
    (None: `singleton`), `task` one of an array; `delay` in seconds after its start or end."""

    kind: str
    job: int | None = None
    task: int | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """A task's place in an array: the `position` counts from 0, `index` is what the array calls it; of the whole array
    the smallest and largest index, how many there are, and the step. `most`: how many may run at once (0: all)."""

    position: int
    index: int
    least: int
    largest: int
    count: int
    step: int = 1
    most: int = 0


@dataclass(frozen=True, slots=True)
class JobTerms:
    """See the module's text.

    `script` and `environment` name files in the pool's folder by what is in them. `stdin`, `stdout` and `stderr` are
    sbatch's patterns ("": the usual one; of `stderr` where `stdout` goes); `append` instead of truncating. `limit`
    (s): it is ended then; None: never. `signal` comes `before` seconds earlier, to the batch shell alone or (not
    `batch`) to its steps. `begin` in seconds since 1970. `after` are conditions, all of which must hold, or `one`.
    `requeue`: it runs again when its member was lost. `ntasks` times `cpus` are its cores; `ntasks_said` and the like:
    it was asked for so (`per_node`: so many tasks a node), which its variables tell. `fronts` is the folder of front
    programs. The rest is only told, to the job or to who asks for it.
    """

    first: int
    name: str
    script: str
    environment: str
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    append: bool = False
    umask: int = 0o022
    limit: float | None = None
    signal: int = 0
    before: float = 0.0
    batch: bool = False
    held: bool = False
    begin: float = 0.0
    after: tuple[AfterJob, ...] = ()
    one: bool = False
    kill_invalid: bool = False
    requeue: bool = True
    array: ArrayPlace | None = None
    ntasks: int = 1
    cpus: int = 1
    cpus_said: bool = False
    ntasks_said: bool = False
    per_node: int = 0
    memory_per_cpu: bool = False
    fronts: str = ""
    submitted_in: str = ""
    host: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    comment: str = ""
    command: str = ""
    wckey: str = ""
    line: str = ""


_USUAL = [(field.name, field.default) for field in fields(JobTerms)]


def terms_to_dict(terms: JobTerms) -> dict[str, Any]:
    """What `terms_from_dict` reads; what says nothing is left out."""
    said = {key: value for key, usual in _USUAL if (value := getattr(terms, key)) != usual}
    if terms.after:
        said["after"] = [asdict(after) for after in terms.after]
    if terms.array is not None:
        said["array"] = asdict(terms.array)
    return said


def terms_from_dict(value: Mapping[str, Any]) -> JobTerms:
    """The terms again. Raises KeyError or TypeError for what this version does not know."""
    said = dict(value)
    said["after"] = tuple(AfterJob(**one) for one in said.get("after", ()))
    if said.get("array") is not None:
        said["array"] = ArrayPlace(**said["array"])
    return JobTerms(**said)
