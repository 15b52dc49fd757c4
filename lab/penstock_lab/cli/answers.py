"""What the laboratory's commands print with --json; `penstock.cli.schemas` has the agent's. Durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.console.answers import Answer, AnswerPart

__all__ = ["ANSWERS"]


class Rows(AnswerPart):
    """What one part of an experiment found."""

    rows: list[dict[str, Any]]


class Experiment(BaseModel):
    """The `rows` of one part; of several parts those of each by its name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Rows] = Field(init=False)
    format: Literal[1]
    rows: list[dict[str, Any]] = Field(default_factory=list)


class Cluster(Answer):
    """Which daemons run, and what Slurm says of its nodes; `users` are names on the cluster by role."""

    name: str
    folder: str
    slurm_version: str
    up: bool
    daemons: dict[str, bool]
    nodes: dict[str, str]
    users: dict[str, str]
    healthy: bool


class Model(Answer):
    """The log that was written."""

    model: str
    jobs: int
    procs: int
    seed: int
    estimates: str
    load: float | None
    span_s: float
    mean_run_s: float
    mean_procs: float
    out: str


class Figures(AnswerPart):
    """How `n` jobs waited; null where there are none."""

    n: int
    total_wait_s: float | None
    mean_wait_s: float | None
    mean_bounded_slowdown: float | None
    utilisation: float | None
    makespan_s: float | None
    sha256: str | None


class Replay(Answer, Figures):
    """A log that was replayed."""

    file: str
    procs: int
    policy: str
    estimates: str
    filter: str
    ties: str
    records: int
    dropped: int
    bad_lines: int
    first_bad: str | None


class Simulation(Answer, Figures):
    """Jobs on a simulated cluster; `states` are counts."""

    source: str
    nodes: int
    cpus_per_node: int
    scheduler: str
    estimates: str
    jobs: int
    states: dict[str, int]
    requeues: int


class LeftOut(AnswerPart):
    """Records that are no jobs of the history, and where the first of them stands."""

    reason: str
    records: int
    first: str


class Joined(AnswerPart):
    """Records that became part of another one's job."""

    what: str
    records: int


class Machine(AnswerPart):
    """The most that jobs had at one time, or what was said."""

    cpus: int
    nodes: int
    cpus_per_node: int


class HistoryAbout(AnswerPart):
    """What a history holds; times are ISO 8601 in UTC."""

    file: str
    jobs: int
    never_ran: int
    first_submit: str
    last_submit: str
    source: list[str]
    cluster: str
    anonymous: bool
    machine: Machine
    users: int
    accounts: int
    partitions: list[str]
    qos: list[str]
    read: int
    joined: list[Joined]
    left_out: list[LeftOut]
    notes: list[str]


class History(Answer, HistoryAbout):
    """A history, and what became of the records that it was made of."""


class Predictor(AnswerPart):
    """How right one predictor was: errors in seconds, with 95 % intervals; `over_plain` is its mean error over that of
    `plain` on the same jobs. `sampled`: judged on stretches of the log."""

    what: str
    predictor: str
    sampled: bool
    jobs: int
    mean_error: float
    mean_error_low: float
    mean_error_high: float
    median_error: float
    median_error_low: float
    median_error_high: float
    log10_error: float
    log10_error_low: float
    log10_error_high: float
    coverage_95: float | None
    coverage_95_low: float | None
    coverage_95_high: float | None
    bounded: float
    plain: str
    over_plain: float
    over_plain_low: float
    over_plain_high: float
    log10_over_plain: float
    log10_over_plain_low: float
    log10_over_plain_high: float
    jobs_per_second: float


class Strategy(AnswerPart):
    """One way to submit a chain of stages, over windows: seconds, and ratios over the plain chain's, with intervals."""

    strategy: str
    windows: int
    mean_makespan: float
    mean_later_waits: float
    median_over_plain: float
    worse: int
    makespan_over_plain: float
    makespan_over_plain_low: float
    makespan_over_plain_high: float
    node_seconds_over_plain: float
    node_seconds_over_plain_low: float
    node_seconds_over_plain_high: float


class Backtest(Answer):
    """The predictors of run times and waits, what to make of them, and the strategies where they were asked for."""

    file: str
    partition: str | None
    jobs: int
    rows: list[Predictor]
    strategies: list[Strategy]
    verdicts: list[str]


class Spanned(AnswerPart):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class ReplayError(AnswerPart):
    """Recorded and simulated waits as the site is, the difference, and by how much a start is off (s)."""

    recorded: Spanned
    simulated: Spanned
    bias: Spanned
    mean: Spanned
    median: Spanned


class Effect(AnswerPart):
    """Waits before and after, by how much they became longer (s); ratios of means, after over before; shares."""

    now: Spanned
    then: Spanned
    median_now: Spanned
    median_then: Spanned
    longer: Spanned
    median_longer: Spanned
    wait: Spanned
    response: Spanned
    slowdown: Spanned
    makespan: Spanned
    later: Spanned
    earlier: Spanned


class WhatIf(Answer):
    """What a change would have done; `effect` and `verdict` are null where none was asked for."""

    file: str
    partition: str | None
    policy: str
    depth: int
    units: int
    cpus_per_unit: int
    whole_nodes: bool
    windows: int
    jobs: int
    replay_error: ReplayError
    changes: list[str]
    effect: Effect | None
    verdict: str | None


ANSWERS: Final[Mapping[str, Any]] = {
    "backtest": Backtest,
    "bench asa": Experiment,
    "bench dmr": Experiment,
    "bench provision": Experiment,
    "bench select": Experiment,
    "cluster status": Cluster,
    "history import": History,
    "history show": History,
    "simulate cluster": Simulation,
    "whatif": WhatIf,
    "simulate model": Model,
    "simulate swf": Replay,
}
"""By the words after `penstock`."""
