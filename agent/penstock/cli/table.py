"""Every command of `penstock`: under which heading, where it is, what it does.

A command's module is loaded when the command is used: `penstock submit` does not pay for the imports of the demo. What
comes in a distribution of its own stands here by that distribution's name, in its place; that says where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.errors import UserError
from penstock.values.beside import DASHBOARD, LABORATORY, MESSAGES, PLANNING, POOL, SITE_VIEW

if TYPE_CHECKING:
    from penstock.host.distributions import CommandPlace

__all__ = ["commands", "headings", "place_of"]

_OWN: Final[Mapping[str, Mapping[str, tuple[str, str] | str]]] = {
    "Workflows": {
        "submit": (
            "penstock.workflow.commands.submit:submit",
            "Hand a workflow file to the agent: YAML, or WfFormat 1.5 or 1.6.",
        ),
        "try": ("penstock.workflow.commands.trying:try_", "Say how long a workflow would take on the queue as it is."),
        "sbatch": (
            "penstock.sbatch.commands.sbatch:sbatch",
            "Submit a job script as sbatch does, with #PENSTOCK lines.",
        ),
        "shim": ("penstock.fronts.commands.shim:shim", "Put front programs for Slurm's commands on PATH."),
        "status": (
            "penstock.workflow.commands.status:status",
            "Show workflows with their stages, and malleable jobs.",
        ),
        "top": ("penstock.workflow.commands.status:top", "Watch workflows and malleable jobs."),
        "explain": ("penstock.report.commands.explain:explain", "Say what was decided and why."),
        "logs": ("penstock.workflow.commands.joblog:logs", "Print what a stage has written to its standard output."),
        "cancel": ("penstock.workflow.commands.workflows:cancel", "Cancel a workflow and its jobs."),
        "more": (
            "penstock.workflow.commands.workflows:more",
            "Say that more stages of a workflow come, or are all there.",
        ),
        "retry": ("penstock.workflow.commands.workflows:retry", "Run again what failed of a workflow."),
        "dashboard": DASHBOARD,
    },
    "Waiting and planning": {
        "waits": ("penstock.waits.commands.waits:waits", "Say how long a job would wait in the queue."),
        "advise": (
            "penstock.advice.commands.advise:advise_",
            "Say which of your jobs could ask for less time or memory.",
        ),
        **dict.fromkeys(("slots", "quote", "plan", "hold", "ledger", "select", "bags", "profile", "stage"), PLANNING),
    },
    "Malleable jobs": {
        "elastic": (
            "penstock.resize.commands.elastic:elastic",
            "Submit a job whose nodes come and go, without MPI.",
        ),
        "env": ("penstock.admin.commands.agent:env", "Print what makes an MPI job malleable."),
    },
    "Pools": {"pool": POOL},
    "Site": {
        "doctor": (
            "penstock.admin.commands.doctor:doctor",
            "Say what works here, what does not, and what would change it.",
        ),
        "config": ("penstock.admin.commands.agent:config", "Check and show the configuration."),
        "agent": (
            "penstock.admin.commands.agent:agent",
            "Run the agent until SIGTERM; SIGHUP reloads its configuration.",
        ),
        "site-view": SITE_VIEW,
        "tick": ("penstock.admin.commands.tick:tick", "Do one pass of the agent and end."),
        "pause": ("penstock.admin.commands.pause:pause", "Have the agent do nothing until `penstock resume`."),
        "resume": ("penstock.admin.commands.pause:resume", "Lift pauses: those that were set with these options."),
        "off": ("penstock.admin.commands.off:off", "Give everything back and stop, until `penstock on`."),
        "on": ("penstock.admin.commands.off:on", "Take up again what `penstock off` has ended."),
        "message": MESSAGES,
        "report": ("penstock.report.commands.report:report", "Say what the agent has done and what it cost."),
        "audit": ("penstock.admin.commands.audit:audit", "Show who asked for what and what was done to Slurm."),
        "db": ("penstock.admin.commands.db:db", "Check, copy, shrink or save the state file."),
    },
    "Laboratory": dict.fromkeys(("demo", "simulate", "cluster", "backtest", "history", "whatif", "bench"), LABORATORY),
}


def commands() -> dict[str, CommandPlace]:
    """All that are installed, by name, in the order in which `penstock --help` has them."""
    from penstock.host.distributions import CommandPlace, beside  # slow to load

    others = {one.name: one for one in beside()}
    found: dict[str, CommandPlace] = {}
    for heading, names in _OWN.items():
        for name, what in names.items():
            if isinstance(what, tuple):
                found[name] = CommandPlace(heading, *what)
            elif what in others and name in others[what].commands:
                found[name] = others[what].commands[name]
    ours = {name for names in _OWN.values() for name in names}
    for one in others.values():
        found |= {name: command for name, command in one.commands.items() if name not in ours}
    return found


def headings() -> dict[str, dict[str, str]]:
    """The installed commands, with the line that says what each does, by heading."""
    found: dict[str, dict[str, str]] = {heading: {} for heading in _OWN}
    for name, command in commands().items():
        found.setdefault(command.heading, {})[name] = command.help
    return {heading: names for heading, names in found.items() if names}


def place_of(name: str) -> str | None:
    """Where a command is; what is installed beside the core is looked through for what is not the core's own. Raises
    UserError, which says what to install, where it comes with something that is not there."""
    what = next((names[name] for names in _OWN.values() if name in names), None)
    if isinstance(what, tuple):
        return what[0]
    if (found := commands().get(name)) is not None or what is None:
        return None if found is None else found.place
    if what == LABORATORY:
        raise UserError(f"`penstock {name}` comes with the laboratory: install penstock-lab (pip or apt-get)")
    raise UserError(f"`penstock {name}` comes with {what}: install that beside penstock (pip)")
