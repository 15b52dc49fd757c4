"""The script through which a task of a pool starts: the submitter's environment, and what a node has to look after.

It is written once for a run of Snakemake. Pure: what is written, and the argument lists that call it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

__all__ = ["LONGEST", "start_script", "task_argv", "too_long"]

LONGEST: Final = 30_000
"""Bytes of file names that an argument list may have."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"BASH_FUNC_([A-Za-z_][A-Za-z0-9_]*)%%")
# The node's and the allocation's own, or a shell's.
_LEFT_OUT: Final = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PENSTOCK_", "PMI_", "PMIX_", "BASH_FUNC_")
_LEFT_OUT_NAMES: Final = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HOSTNAME",
    "OLDPWD",
    "PWD",
    "ROCR_VISIBLE_DEVICES",
    "SHLVL",
    "TEMP",
    "TEMPDIR",
    "TMP",
    "TMPDIR",
    "ZE_AFFINITY_MASK",
    "_",
)
_TMPDIRS: Final = ("TMPDIR", "TEMP", "TMP")  # in the order in which Python asks for them

_HEAD: Final = """\
# Called as: VARIABLE=VALUE ... -- LATENCY INPUTS INPUT ... OUTPUTS OUTPUT ... COMMAND ...
penstock_tmp=${TMPDIR-}:${TEMP-}:${TMP-}
"""
# The last lines of what Python's tempfile does, then the inputs: a file system that nodes share may show one late. An
# attempt that was lost with its node may have left half an output.
_TAIL: Final = """\
IFS=: read -r penstock_a penstock_b penstock_c <<END
$penstock_tmp
END
for penstock_tmp in "$penstock_a" "$penstock_b" "$penstock_c" {own} /tmp /var/tmp /usr/tmp; do
    if [ -n "$penstock_tmp" ] && [ -d "$penstock_tmp" ] && [ -w "$penstock_tmp" ]; then
        export TMPDIR="$penstock_tmp" TEMP="$penstock_tmp" TMP="$penstock_tmp" TEMPDIR="$penstock_tmp"
        break
    fi
done
while [ "$1" != -- ]; do
    export "$1"
    shift
done
penstock_until=$(($(date +%s) + $2))
penstock_left=$3
shift 3
while [ "$penstock_left" -gt 0 ]; do
    while [ ! -e "$1" ] && [ ! -L "$1" ]; do
        if [ "$(date +%s)" -gt "$penstock_until" ]; then
            printf 'penstock: the input %s is not there on %s\\n' "$1" "$(uname -n)" >&2
            exit 1
        fi
        sleep 0.5
    done
    penstock_left=$((penstock_left - 1))
    shift
done
penstock_left=$1
shift
while [ "$penstock_left" -gt 0 ]; do
    if [ "${PENSTOCK_ATTEMPT:-1}" != 1 ]; then
        case $1 in
        d*) rm -rf -- "${1#d}" ;;
        f*) rm -f -- "${1#f}" ;;
        esac
    fi
    penstock_left=$((penstock_left - 1))
    shift
done
unset penstock_a penstock_b penstock_c penstock_tmp penstock_until penstock_left
exec "$@"
"""


def start_script(environ: Mapping[str, str], umask: int) -> str:
    """The script, for bash: it has this environment, with functions of bash, but for what is the node's to say, and
    this mask of file modes."""
    lines = [_HEAD, f"umask {umask:04o}\n"]
    for name, value in sorted(environ.items()):
        if (function := _FUNCTION.fullmatch(name)) and value.startswith("() {"):
            lines.append(f"{function[1]} {value}\nexport -f {function[1]}\n")
        elif _NAME.fullmatch(name) and not name.startswith(_LEFT_OUT) and name not in _LEFT_OUT_NAMES:
            lines.append(f"export {name}={shlex.quote(value)}\n")
    own = " ".join(shlex.quote(environ[name]) for name in _TMPDIRS if environ.get(name))
    return "".join(lines) + _TAIL.replace("{own}", own)


def task_argv(
    script: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    latency: int = 0,
    inputs: Iterable[str] = (),
    files: Iterable[str] = (),
    folders: Iterable[str] = (),
) -> list[str]:
    """The argument list of a task.

    `inputs` are waited for, for `latency` seconds; output `files` and `folders` are removed first in an attempt that is
    not the first.
    """
    own = [f"{name}={value}" for name, value in (environment or {}).items() if _NAME.fullmatch(name)]
    wait = [*inputs]
    gone = [f"f{name}" for name in files] + [f"d{name}" for name in folders]
    numbers = (str(int(latency)), str(len(wait)), str(len(gone)))
    return ["bash", script, *own, "--", numbers[0], numbers[1], *wait, numbers[2], *gone, *command]


def too_long(names: Iterable[str]) -> bool:
    """Whether there are too many names for an argument list."""
    return sum(len(name.encode(errors="surrogateescape")) + 1 for name in names) > LONGEST
