"""`python -m penstock` is the command `penstock`. A plain `penstock sbatch` loads nothing of the others."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] == ["sbatch"]:
        _submit_directly()
    from penstock.cli import main as any_other  # slow to load

    any_other()


def _submit_directly() -> None:
    """Submit a plain job without loading what that does not need; return where there is more to it."""
    from penstock.fronts.programs.direct import submit_directly

    def record(stage: str, quiet: bool) -> None:
        from penstock.config import load
        from penstock.sbatch.commands.telling import record_handed_on

        record_handed_on(load(), stage, quiet=quiet)

    submit_directly(sys.argv[2:], record)


if __name__ == "__main__":
    main()
