"""What the scripts of guarded jobs do besides their work: leave a mark at the end, wait for parents at the beginning.

It works without an agent. A job that has succeeded leaves an empty file in a folder of the user's home, which compute
nodes share; that costs Slurm nothing, is exact, and outlasts Slurm's memory of the job. It only says "succeeded", so
whoever finds no mark asks as well, at once and then now and then: the agent that `DMR_AGENT` names (`dmr.ended`), which
has looked at the queue anyway and says when to ask again; and where that does not answer twice, or does not know the
job, Slurm: `squeue` for jobs in the controller's memory, `sacct` for others, after half a minute, one, two and every
four, each time somewhat sooner or later than others do. Marks older than a month are removed by the jobs that come
later. Text only.

Each run's marks are in a folder of their own, which has a file that says so: nothing without it is ever removed, for
the folder of all marks may be one that the user has named, with other things in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["PARENT_FAILED", "TOO_EARLY", "Guard", "guard_lines", "mark_lines"]

PARENT_FAILED: Final = 65
"""The exit code of a guarded job one of whose parents has failed."""
TOO_EARLY: Final = 75
"""The exit code of a guarded job that waited for its parents in vain and could not be requeued."""

_FOLDER = 'penstock_marks="${PENSTOCK_MARKS:-$HOME/.penstock/marks}"'

_OWN: Final = ".penstock-marks"
"""The file in a run's folder that says what the folder is."""

# Of a folder that says of itself that it is a run's, nothing but empty files, and only where there is nothing else.
_CLEAR = """\
  find "$penstock_marks" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec sh -c '
    for run; do
      own=$run/{own}
      [ -f "$own" ] && [ ! -L "$own" ] && [ "$(head -c 200 "$own")" = "marks of ${run##*/}" ] || continue
      [ -z "$(find "$run" -mindepth 1 ! -path "$own" ! "(" -type f -empty ")" -print -quit)" ] || continue
      find "$run" -mindepth 1 -maxdepth 1 -type f -empty -delete && rm -f "$own" && rmdir "$run"
    done
  ' sh {} + 2>/dev/null || :"""

_WAIT = """\
penstock_asks_agent() {
  [ -n "${DMR_AGENT:-}" ] || return 1
  DMR_TIMEOUT=10 timeout 20 "${DMR_PYTHON:-python3}" -m dmr.ended "$@" 2>/dev/null
}
penstock_asks_slurm() {
  local state
  state=$(timeout 20 squeue -h -t all -j "$1" -o %T 2>/dev/null | head -n 1) || state=
  if [ -z "$state" ]; then
    state=$(timeout 20 sacct -nX -P -j "$1" -o State 2>/dev/null | tail -n 1) || state=
  fi
  echo "$state"
}
penstock_guard() {
  local grace=$1 began=$SECONDS due=$SECONDS pause=30 misses=0 again word pair stage job state left told by_slurm
  shift
  while :; do
    left=()
    for pair; do [ -e "$penstock_marks/${pair#*:}" ] || left+=("$pair"); done
    if [ ${#left[@]} -eq 0 ]; then
      [ $((SECONDS - began)) -lt 2 ] || echo "penstock: waited $((SECONDS - began)) s for the stages before"
      return 0
    fi
    set -- "${left[@]}"
    if [ "$SECONDS" -ge "$due" ]; then
      again= left=() by_slurm=
      if told=$(penstock_asks_agent "${@%%:*}"); then
        misses=0
      else
        told= misses=$((misses + 1))
      fi
      if [ -n "${DMR_AGENT:-}" ] && [ "$misses" -eq 1 ] && [ $((SECONDS - began + 15)) -lt "$grace" ]; then
        again=$((3 + RANDOM % 8)) left=("$@")
      else
        for pair; do
          job=${pair%%:*} stage=${pair##*/} state=
          while read -r word state; do [ "$word" != "$job" ] || break; done <<<"$told"
          if [ "$word" != "$job" ]; then
            by_slurm=1
            state=$(penstock_asks_slurm "$job")
          fi
          case "${state%% *}" in
            COMPLETED) ;;
            FAILED | CANCELLED | TIMEOUT | NODE_FAIL | OUT_OF_MEMORY | BOOT_FAIL | DEADLINE | PREEMPTED)
              echo "penstock: $stage (job $job) has ended $state: nothing is done" >&2
              exit {failed}
              ;;
            *) left+=("$pair") ;;
          esac
        done
      fi
      if [ -n "$by_slurm" ]; then
        again=$((pause / 2 + RANDOM % pause))
        pause=$((pause < 240 ? pause * 2 : 240))
      elif [ -z "$again" ]; then
        while read -r word again; do [ "$word" != again ] || break; done <<<"$told"
        case "$again" in '' | *[!0-9]* | ?????*) again=30 ;; esac
        again=$((10#$again + RANDOM % (10#$again / 4 + 1)))
      fi
      due=$((SECONDS + again))
      set -- "${left[@]}"
      [ $# -gt 0 ] || continue
    fi
    if [ $((SECONDS - began)) -ge "$grace" ]; then
      echo "penstock: the stages before have not ended within $grace s: too early" >&2
      scontrol requeue "$SLURM_JOB_ID" 2>/dev/null && sleep 60
      exit {early}
    fi
    sleep 1
  done
}"""


@dataclass(frozen=True, slots=True)
class Guard:
    """What a job waits for: its `parents` as (job id, name), `grace` seconds long; `run` is the run's label.

    `again` is the job's own name if it is not the first attempt: an earlier one that was given up may have completed
    all the same, and then there is nothing left to do.
    """

    run: str
    parents: Sequence[tuple[int, str]]
    grace: float
    requeue: bool = False
    again: str = ""


def guard_lines(guard: Guard) -> list[str]:
    """The lines at the beginning of the script. `#PENSTOCK-GUARD` says the same to simulations.

    A job that may be requeued may be so up to here only: its work is not begun twice unless its user wants that.
    """
    lines = [_FOLDER]
    if guard.again:
        lines.append(f'[ ! -e "$penstock_marks/{guard.run}/{guard.again}" ] || exit 0')
    if not guard.parents:
        return lines
    pairs = [f"{job}:{guard.run}/{name}" for job, name in guard.parents]
    lines += [
        f"#PENSTOCK-GUARD jobs={','.join(str(job) for job, _ in guard.parents)} grace={guard.grace:g}",
        _WAIT.replace("{failed}", str(PARENT_FAILED)).replace("{early}", str(TOO_EARLY)),
        f"penstock_guard {guard.grace:.0f} {shlex.join(pairs)}",
        "unset -f penstock_asks_agent penstock_asks_slurm",
        "unset -f penstock_guard",
    ]
    if guard.requeue:
        lines.append('timeout 20 scontrol update jobid="$SLURM_JOB_ID" requeue=0 >/dev/null 2>&1 || :')
    return lines


def mark_lines(run: str, name: str) -> list[str]:
    """The lines at the end of the script; its exit code stays what it was. Reached only if the stage did not `exit`."""
    return [
        "",
        "penstock_code=$?",
        f"{_FOLDER}",
        'if [ "$penstock_code" -eq 0 ]; then',
        f'  {{ mkdir -p "$penstock_marks/{run}" && echo "marks of {run}" >"$penstock_marks/{run}/{_OWN}" &&',
        f'    : >>"$penstock_marks/{run}/{name}"; }} 2>/dev/null || :',
        _CLEAR.replace("{own}", _OWN),
        "fi",
        'exit "$penstock_code"',
    ]
