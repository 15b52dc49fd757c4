"""The command: `python -m penstock_lab.soak --help`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path


def main() -> int:
    from penstock.errors import PenstockError
    from penstock_lab.soak import idle, real, resizes, virtual

    parser = argparse.ArgumentParser(
        prog="python -m penstock_lab.soak", description="An agent under random work and mishaps."
    )
    parser.add_argument("--part", choices=("virtual", "real", "resizes", "idle"), default="virtual")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: 1)")
    parser.add_argument("--days", type=float, default=3.0, help="virtual: how long (default: 3)")
    parser.add_argument("--hours", type=float, default=24.0, help="idle: how long it lives before (default: 24)")
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="real, resizes: how long (default: 20; a calm follows)"
    )
    parser.add_argument("--agent-kills", type=int, help="real, resizes: SIGKILLs of the agent (default: one a minute)")
    parser.add_argument(
        "--controller-kills",
        type=int,
        help="real, resizes: SIGKILLs of slurmctld (default: one in six minutes); half as many restarts come besides",
    )
    parser.add_argument(
        "--keep", type=Path, help="empty folder for what a run leaves; default: kept only where one fails"
    )
    parser.add_argument("--json", action="store_true", help="print a summary for programs")
    options = parser.parse_args()
    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep: {options.keep} must be empty, else the state of another run would be gone on with")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="penstock-soak-", dir="/var/tmp"))

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        if options.part == "virtual":
            report = virtual.soak(folder, options.seed, options.days * 24, tell)
        elif options.part in ("real", "resizes"):
            agent, controller = options.agent_kills, options.controller_kills
            chances = real.Chances(
                options.minutes,
                round(options.minutes) if agent is None else agent,
                round(options.minutes / 6) if controller is None else controller,
            )
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # take everything down first
            part = real if options.part == "real" else resizes
            report = part.soak(folder, options.seed, chances, tell)
        else:
            report = idle.idle(folder, options.seed, options.hours, tell)
    except PenstockError as e:
        tell(f"soak: {e}")
        return e.exit_code
    except KeyboardInterrupt:
        tell("interrupted")
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        return 130
    if report.wrong:
        tell("\n".join(["", "the last events:", *report.last[-60:]]))
        tell("\n".join(["", f"VIOLATED with --seed {report.seed}:", *report.wrong[:20], f"kept in {folder}"]))
        (folder / "events.txt").write_text("\n".join([*report.last, "", *report.wrong, ""]))
    elif options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(report.to_dict(), indent=1))
    elif not report.wrong:
        print(f"{report.part}: all held over {report.hours:.1f} h ({report.seconds:.0f} s), seed {report.seed}")
        for name, value in {**report.counts, **report.door}.items():
            print(f"  {name}: {value:,.6g}")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    # The order of sets of names is part of what is random.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
