"""The shell command of a job, as Snakemake itself would run it, without running Snakemake again for it.

Snakemake's own code is asked: the function that it made of the rule, and its `shell`, both with the one difference
that the process is not started but written down. So quoting, prefixes, the shell's path and the variables of the
environment are right by construction. What the second Snakemake on a node does besides, for conda, containers,
shadow folders and so on, is not imitated: `obstacle` says why such a job needs it.
"""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, Final

from snakemake.io import is_flagged
from snakemake.settings.types import DeploymentMethod
from snakemake.shell import shell
from snakemake_interface_executor_plugins.settings import SharedFSUsage

__all__ = ["NotPlain", "ShellCall", "obstacle", "shell_call"]

_TBD: Final = "<TBD>"
_DEFAULT_TMPDIR: Final = "system_tmpdir"
_SHARED: Final = (
    SharedFSUsage.PERSISTENCE,
    SharedFSUsage.INPUT_OUTPUT,
    SharedFSUsage.SOURCES,
    SharedFSUsage.STORAGE_LOCAL_COPIES,
)
_FLAGS: Final = ("pipe", "service", "update")


class NotPlain(Exception):
    """The job needs a second Snakemake; the text says why."""


@dataclass(frozen=True, slots=True)
class ShellCall:
    """An argument list, and what of the environment is the job's own."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class _Called(BaseException):
    """Where the process would have been started. No Exception, so that nothing on the way takes it for an error."""

    def __init__(self, command: str, named: Mapping[str, Any]) -> None:
        super().__init__()
        self.command = command
        self.named = named


def _popen(command: str, **named: Any) -> None:  # noqa: ANN401
    raise _Called(command, named)


def _mkdtemp(**_named: Any) -> None:  # noqa: ANN401
    raise NotPlain("its command is too long for one word")


def obstacle(job: Any, workflow: Any) -> str:  # noqa: ANN401
    """Why the job cannot be run as its shell command alone; "": it can, as far as is said."""
    methods = workflow.deployment_settings.deployment_method
    shared = workflow.storage_settings.shared_fs_usage
    remote = workflow.remote_execution_settings
    if job.is_group():
        return "it is a group"
    rule = job.rule
    tmpdir = rule.resources.get("tmpdir")
    checks: tuple[tuple[object, str], ...] = (
        (not job.is_shell, "its rule is no shell command"),
        (job.is_template_engine or rule.norun, "its rule is no shell command"),
        (rule.is_handover, "it hands over"),
        (job.is_shadow, "it has a shadow folder"),
        (job.benchmark is not None, "it is benchmarked"),
        (rule.cache and workflow.workflow_settings.cache is not None, "it is cached between workflows"),
        (DeploymentMethod.CONDA in methods and job.conda_env_spec, "it has a conda environment"),
        (DeploymentMethod.APPTAINER in methods and job.container_img_url, "it has a container"),
        (DeploymentMethod.ENV_MODULES in methods and job.env_modules, "it has environment modules"),
        (any(usage not in shared for usage in _SHARED), "not all is on a shared file system"),
        (any(f.is_storage for f in [*job.input, *job.output, *job.log]), "it has files in a storage"),
        (any(is_flagged(f, flag) for f in job.output for flag in _FLAGS), "it has a pipe, or output that is updated"),
        (remote.precommand, "there is a command to run before each job"),
        (remote.jobscript, "there is a job script of one's own"),
        (tmpdir is not None and tmpdir.raw != _DEFAULT_TMPDIR, "it says where its temporary files are"),
    )
    return next((why for found, why in checks if found), "")


def shell_call(job: Any, workflow: Any, environ: Mapping[str, str]) -> ShellCall:  # noqa: ANN401
    """What is to be run for the job. Raises NotPlain.

    Its variable TMPDIR is the node's to say.
    """
    if why := obstacle(job, workflow):
        raise NotPlain(why)
    run = job.rule.run_func
    if run.__globals__.get("shell") is not shell or run.__closure__:
        raise NotPlain("`shell` is not Snakemake's own there")
    # tmpdir is known on the node only: a command that names it is refused below, for want of it.
    resources = type(job.resources)(fromdict={k: v for k, v in job.resources.items() if k != "tmpdir"})
    known = {
        "input": job.input._plainstrings(),
        "output": job.output._plainstrings(),
        "params": job.params,
        "wildcards": job.wildcards,
        "threads": job.threads,
        "resources": resources,
        "log": job.log._plainstrings(),
        "rule": job.rule.name,
        "conda_env": None,
        "container_img": None,
        "singularity_args": workflow.deployment_settings.apptainer_args,
        "use_singularity": False,
        "env_modules": None,
        "bench_record": None,
        "jobid": job.jobid,
        "is_shell": True,
        "bench_iteration": None,
        "cleanup_scripts": workflow.execution_settings.cleanup_scripts,
        "shadow_dir": None,
        "edit_notebook": None,
        "conda_base_path": workflow.conda_base_path,
        "basedir": job.rule.basedir,
        "sourcecache_path": workflow.sourcecache.cache_path,
        "runtime_sourcecache_path": workflow.sourcecache.runtime_cache_path,
        "runtime_paths": workflow.runtime_paths,
    }
    needed = [p.name for p in inspect.signature(run).parameters.values() if p.default is p.empty]
    if missing := [name for name in needed if name not in known]:
        raise NotPlain(f"this release of Snakemake asks for more ({', '.join(missing)})")
    recording = _with(run, shell=partial(_recording_shell(), shell))
    try:
        recording(**{name: known[name] for name in needed})
    except _Called as call:
        return _call(call, environ)
    except NotPlain:
        raise
    except Exception as e:
        raise NotPlain(f"its command could not be made here: {' '.join(str(e).split())[:200]}") from e
    raise NotPlain("its rule started no shell")


def _call(call: _Called, environ: Mapping[str, str]) -> ShellCall:
    if not call.named.get("shell") or _TBD in call.command or "\0" in call.command:
        raise NotPlain("its command is known on the node only")
    # As subprocess makes it.
    argv = (str(call.named.get("executable") or "/bin/sh"), "-c", call.command)
    own = {k: v for k, v in call.named["env"].items() if environ.get(k) != v}
    return ShellCall(argv, own)


def _recording_shell() -> Callable[..., Any]:
    new = shell.__dict__["__new__"]
    function = getattr(new, "__func__", new)
    seen = SimpleNamespace(Popen=_popen, PIPE=subprocess.PIPE, CalledProcessError=subprocess.CalledProcessError)
    return _with(function, sp=seen, tempfile=SimpleNamespace(mkdtemp=_mkdtemp))


def _with(function: Any, **names: Any) -> Callable[..., Any]:  # noqa: ANN401
    """The function with other things behind these names of its module."""
    made = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made
