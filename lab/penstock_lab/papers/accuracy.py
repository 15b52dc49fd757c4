"""Table 2 of the ASA paper again: how good the predicted waits of the workflows' parallel stages are.

Each of the nine geometries of a machine is submitted every half hour for a week, from which the predictors learn, and
then on eight days 60 times, one a minute, which are judged. A prediction is made at the submission by what was known
then. A hit is a wait that was not over-predicted by more than a minute; an over-predicted one would have had its nodes
too early (a miss, submitted anew, or idle until the stage before has ended: the overhead). Beside it, which predictions
are right within a factor of two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.api import JobSpec
from penstock.values.waits import Estimate, Observation
from penstock.waits.learners.alternatives import ALTERNATIVES, LIVE_ALTERNATIVES
from penstock.waits.learners.base import Learner
from penstock.waits.learners.learners import make
from penstock.waits.learners.queue_learner import QueueLearner
from penstock_lab.intervals import Interval, mean_of
from penstock_lab.papers import paper
from penstock_lab.papers.queue_log import Submission, Submitted, walk
from penstock_lab.papers.site import MACHINES, background, cluster
from penstock_lab.sim.cluster import SimulatedJob, run

__all__ = ["PREDICTORS", "Row", "measure"]

PREDICTORS: Final = ("asa-default", "asa-tuned", "share-mix", "last", "median")
_DAY: Final = 86400.0
_LEARN_FROM: Final = 2 * _DAY
_JUDGED_FROM: Final = 9 * _DAY
_EVERY: Final = 1800.0
_WINDOWS: Final = 8
_BETWEEN: Final = 27 * 3600.0  # each window at another time of day
_SUBMISSIONS: Final = 60
_APART: Final = 60.0
_NOBODY: Final = ("", 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One predictor on the submissions of a geometry; waits in hours (mean and standard deviation), shares in
    percent with their intervals over the days, overhead in core-hours a submission."""

    machine: str
    workflow: str
    cores: int
    predictor: str
    real: tuple[float, float]
    predicted: tuple[float, float]
    perceived: tuple[float, float]
    hit: Interval
    overhead: float
    within_two: Interval

    def row(self) -> dict[str, object]:
        """The table's row, the paper's own values beside it."""
        theirs = paper.TABLE_2[self.workflow, self.cores]
        return {
            "machine": self.machine,
            "workflow": self.workflow,
            "cores": self.cores,
            "predictor": self.predictor,
            "real_wait_h": self.real[0],
            "real_wait_sd_h": self.real[1],
            "predicted_wait_h": self.predicted[0],
            "predicted_wait_sd_h": self.predicted[1],
            "perceived_wait_h": self.perceived[0],
            "perceived_wait_sd_h": self.perceived[1],
            "hit_percent": self.hit.value,
            "hit_percent_low": self.hit.low,
            "hit_percent_high": self.hit.high,
            "miss_percent": 100.0 - self.hit.value,
            "overhead_core_hours": self.overhead,
            "within_factor_2_percent": self.within_two.value,
            "within_factor_2_percent_low": self.within_two.low,
            "within_factor_2_percent_high": self.within_two.high,
            "paper_real_wait_h": theirs.real,
            "paper_predicted_wait_h": theirs.predicted,
            "paper_perceived_wait_h": theirs.perceived,
            "paper_hit_percent": theirs.hit,
            "paper_overhead_core_hours": theirs.overhead,
        }


def measure(machine: str, seed: int = 1) -> list[Row]:
    """Simulate a machine under its load with these submissions; rows by geometry and predictor."""
    probes = list(_probes(machine))
    others = [
        (_NOBODY, SimulatedJob(a.submit, a.spec, a.seconds, a.user))
        for a in background(MACHINES[machine], probes[-1][1].submit / _DAY, seed)
    ]
    jobs = sorted([*others, *probes], key=lambda item: item[1].submit)
    outcomes = run(cluster(MACHINES[machine], "default"), [job for _, job in jobs])
    submissions = []
    for (_, job), outcome in zip(jobs, outcomes, strict=True):
        assert outcome.start is not None and outcome.end is not None
        wait, took = int(outcome.start - outcome.submit), max(int(outcome.end - outcome.start), 1)
        limit = int(job.spec.time_limit or 0)
        submissions.append(Submission(int(outcome.submit), wait, took, job.spec.nodes, limit, "", job.user))
    judged = _predict(machine, [geometry for geometry, _ in jobs], submissions)
    return [
        _row(machine, *geometry, predictor, pairs)
        for predictor in PREDICTORS
        for geometry in sorted({g for g, p in judged if p == predictor})
        if (pairs := judged[geometry, predictor])
    ]


def _probes(machine: str) -> Iterator[tuple[tuple[str, int], SimulatedJob]]:
    learned_from = np.arange(_LEARN_FROM, _JUDGED_FROM, _EVERY)
    windows = _JUDGED_FROM + _BETWEEN * np.arange(_WINDOWS)
    judged = (windows[:, None] + _APART * np.arange(_SUBMISSIONS)).ravel()
    for at in np.concatenate([learned_from, judged]):
        for cores in paper.SCALES[machine]:
            for workflow in paper.WORKFLOWS:
                stage = max(paper.stages(workflow, cores), key=lambda s: (s.nodes, s.run_time))
                spec = JobSpec("probe", "#!/bin/sh\n", stage.nodes, stage.time_limit)
                yield (workflow, cores), SimulatedJob(float(at), spec, 1.0, "scientist")


def _predict(
    machine: str, geometries: list[tuple[str, int]], submissions: list[Submission]
) -> dict[tuple[tuple[str, int], str], list[tuple[float, float]]]:
    """(predicted, real) waits in seconds of the judged submissions, by geometry and predictor."""
    rng = np.random.default_rng(0)
    queue = QueueLearner()
    learners: dict[tuple[str, int], dict[str, Learner]] = defaultdict(
        lambda: {n: make(n, ALTERNATIVES if n.startswith("asa") else LIVE_ALTERNATIVES) for n in PREDICTORS}
    )
    views, said = {}, dict[int, dict[str, Estimate]]()
    judged: dict[tuple[tuple[str, int], str], list[tuple[float, float]]] = defaultdict(list)
    for event in walk(submissions, MACHINES[machine].slots):
        job, geometry = submissions[event.job], geometries[event.job]
        if isinstance(event, Submitted):
            views[event.job] = event.view
            if geometry == _NOBODY:
                continue
            expected = queue.expect(event.view)
            hints = {} if expected is None else {"queue": expected}
            said[event.job] = {n: learner.predict(rng, hints) for n, learner in learners[geometry].items()}
            if job.submit >= _JUDGED_FROM:
                for name, estimate in said[event.job].items():
                    judged[geometry, name].append((estimate.seconds, float(job.wait)))
            continue
        queue.add(views.pop(event.job), job.wait)
        if queue.due:
            queue.refit()
        for name, estimate in said.pop(event.job, {}).items():
            learners[geometry][name].update(Observation(float(job.wait)), estimate, rng)
    return judged


def _row(machine: str, workflow: str, cores: int, predictor: str, pairs: list[tuple[float, float]]) -> Row:
    predicted, real = np.array(pairs).T / 3600.0
    floored = np.maximum(np.array(pairs), _APART)
    within = np.abs(np.log2(floored[:, 0] / floored[:, 1])) <= 1.0
    early = np.maximum(predicted - real, 0.0)
    return Row(
        machine,
        workflow,
        cores,
        predictor,
        _of(real),
        _of(predicted),
        _of(np.maximum(real - predicted, 0.0)),
        hit=mean_of(100.0 * (predicted <= real + _APART / 3600.0), _WINDOWS),
        overhead=float(early.mean()) * cores,
        within_two=mean_of(100.0 * within, _WINDOWS),
    )


def _of(waits: NDArray[np.float64]) -> tuple[float, float]:
    return float(waits.mean()), float(waits.std())
