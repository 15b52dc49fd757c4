"""Programs in the place of Slurm's that fail as Slurm does when it is busy: now before, now after the fact."""

from __future__ import annotations

import shutil

from agents import SlurmAgent

__all__ = ["flaky"]

_SCRIPT = """#!/bin/bash
exec 9>>COUNT
flock 9
n=$(($(wc -l <COUNT) % 10))
echo "$n" >&9
exec 9>&-
if [ $n = 0 ]; then
  REAL "$@" >/dev/null 2>&1; echo "NAME: error: ACT: Socket timed out on send/recv operation" >&2; exit 1
elif [ $n = 5 ]; then
  echo "NAME: error: ACT: Unable to contact slurm controller (connect failure)" >&2; exit 1
fi
exec REAL "$@"
"""
_ACTS = {"sbatch": "Batch job submission failed", "scancel": "Kill job error on job id 1"}


def flaky(site: SlurmAgent, *programs: str) -> dict[str, int]:
    """Put such programs into the folder `flaky` of the site's place; call it again to know how often each was called.

    Of ten calls of each the first fails when all is done, and the sixth before anything is.
    """
    folder = site.place / "flaky"
    folder.mkdir(exist_ok=True)
    path = site.cluster.user_env(site.who)["PATH"]
    found = {}
    for name in programs:
        count = folder / f"{name}.calls"
        if not count.exists():
            count.touch()
            count.chmod(0o666)
            real = shutil.which(name, path=path) or f"/usr/bin/{name}"
            text = _SCRIPT.replace("ACT", _ACTS.get(name, "slurm_load_jobs"))
            for word, value in {"COUNT": str(count), "REAL": real, "NAME": name}.items():
                text = text.replace(word, value)
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        found[name] = len(count.read_text().split())
    return found
