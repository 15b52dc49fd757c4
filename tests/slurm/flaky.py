"""Programs in the place of Slurm's that fail as Slurm does when it is busy: now before, now after the fact."""

from __future__ import annotations

import shutil

from agents import SlurmAgent

__all__ = ["flaky"]

_SCRIPT = """#!/bin/bash
n=$((16#$(head -c2 /dev/urandom | od -An -tx1 | tr -d ' \\n') % 10))
echo "$n" >>COUNT
if [ $n -lt BEFORE ]; then
  echo "NAME: error: ACT: Unable to contact slurm controller (connect failure)" >&2; exit 1
elif [ $n -lt AFTER ]; then
  REAL "$@" >/dev/null 2>&1; echo "NAME: error: ACT: Socket timed out on send/recv operation" >&2; exit 1
fi
exec REAL "$@"
"""
_ACTS = {"sbatch": "Batch job submission failed", "scancel": "Kill job error on job id 1"}


def flaky(site: SlurmAgent, *programs: str, before: int, after: int) -> str:
    """A folder of such programs: of ten calls `before` fail before and `after` after the fact. Its file `count` has a
    line for each call, less than before + after where it failed."""
    folder = site.place / "flaky"
    folder.mkdir()
    count = folder / "count"
    count.touch()
    count.chmod(0o666)
    path = site.cluster.user_env(site.who)["PATH"]
    for name in programs:
        real = shutil.which(name, path=path) or f"/usr/bin/{name}"
        texts = {"COUNT": str(count), "BEFORE": str(before), "AFTER": str(before + after), "REAL": real, "NAME": name}
        text = _SCRIPT.replace("ACT", _ACTS.get(name, "slurm_load_jobs"))
        for word, value in texts.items():
            text = text.replace(word, value)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)
