"""Every error that Penstock raises on purpose.

    PenstockError                 base; `str()` is one line for a person, `exit_code` what the command ends with
    ├── UserError                 the input is wrong: says file, line or key, and what would be right      exit 2
    │   └── ConfigError           the configuration is wrong                                             exit 78
    ├── AgentUnavailable          no agent answers; says how to start one                                exit 3
    ├── NotPermitted              authenticated, but not allowed (or not authenticated at all)           exit 4
    ├── Infeasible                Slurm will never do this: final, never repeated                        exit 5
    │   └── NotFound              the job or reservation is not there
    │       └── NoCluster         the site has no cluster of this name
    ├── NotNow                    may work later: hold and back off                                      exit 6
    │   ├── SlurmUnavailable      no answer, a broken answer, or a time limit
    │   ├── OutcomeUnknown        the request was sent, the answer lost: read back before repeating it
    │   ├── LeftAlone             paused by somebody, or outside of what the configuration allows
    │   └── StateHeld             another agent, tick or command has the state
    └── StoreError                the state cannot be read or written                                    exit 7
        ├── AuditUnwritable       the audit trail cannot be written: nothing is done for others
        ├── StateRefused          it is damaged, of a newer release, or none of ours: only a person can mend it  exit 8
        └── LeaseLost             another host has taken over the state: end

A third outcome, "it already was so", is no error: calls that are idempotent return normally.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = [
    "EXIT_CODES",
    "AgentUnavailable",
    "AuditUnwritable",
    "ConfigError",
    "Infeasible",
    "LeaseLost",
    "LeftAlone",
    "NoCluster",
    "NotFound",
    "NotNow",
    "NotPermitted",
    "OutcomeUnknown",
    "Overtaken",
    "PenstockError",
    "SlurmUnavailable",
    "StateHeld",
    "StateRefused",
    "StoreError",
    "UserError",
]


EXIT_CODES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "done",
        1: "it went wrong, in a way that no other code says",
        2: "the input is wrong",
        3: "no agent answers",
        4: "not permitted",
        5: "Slurm will never do this",
        6: "not now: try again later",
        7: "the agent's own state cannot be read or written",
        8: "the state is refused: only a person can mend it",
        78: "the configuration is wrong",
        130: "interrupted from the keyboard",
        141: "whoever read the output has gone",
    }
)
"""What the exit codes of every command mean. `penstock --help`, the man pages and the documentation show these."""


class PenstockError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class UserError(PenstockError):
    """The input is wrong. The message names the place and what would be right."""

    exit_code = 2


class ConfigError(UserError):
    """The configuration is wrong; systemd does not restart on this exit code."""

    exit_code = 78


class AgentUnavailable(PenstockError):
    """No agent answers at the socket."""

    exit_code = 3


class NotPermitted(PenstockError):
    """The peer is not who it claims, or may not do this. `by_setting`: because the administrator has set it so, which
    another setting may change."""

    exit_code = 4

    def __init__(self, text: str, *, by_setting: bool = False) -> None:
        super().__init__(text)
        self.by_setting = by_setting


class Infeasible(PenstockError):
    """Slurm refuses and will go on refusing; repeating it is pointless."""

    exit_code = 5


class NotFound(Infeasible):
    """The named job, node or partition is not there."""


class NoCluster(NotFound):
    """The site's accounting knows no cluster of this name, so nothing can be said of what should be in it."""


class NotNow(PenstockError):
    """Transient: may work later, so hold and back off; `again_in` says how long (seconds) where that is known."""

    exit_code = 6

    def __init__(self, message: str, *, again_in: float | None = None) -> None:
        super().__init__(message)
        self.again_in = again_in


class SlurmUnavailable(NotNow):
    """Slurm did not answer in time or not in a form that can be trusted."""


class OutcomeUnknown(NotNow):
    """A changing request was sent and its answer lost; the state must be read back before it is repeated."""


class LeftAlone(NotNow):
    """People have said that nothing is to be done here for now: a pause, the allow-list, a dry run."""


class Overtaken(NotNow):
    """What is to be changed is not any more as it was when that was decided on."""


class StateHeld(NotNow):
    """Another agent, tick or command has the state, on this host or another."""


class StoreError(PenstockError):
    """The agent's own state cannot be read or written."""

    exit_code = 7


class AuditUnwritable(StoreError):
    """A record of the audit trail cannot be written now; what is done for others waits until it can."""


class StateRefused(StoreError):
    """The state is not to be worked on: it is damaged, of a newer release, or none of ours. The message says the way
    out; systemd does not restart on this exit code, as starting again would not mend it."""

    exit_code = 8


class LeaseLost(StoreError):
    """Another host has taken over the state: whoever held it must do nothing more."""
