"""What an agent costs while nothing happens: its use of a core, Slurm commands included, and its memory.

    python -m penstock_lab.bench.idle [--seconds 40] [--json]

Starts a throw-away Slurm of eight nodes and an agent; once with the demo's two looks a second, once as shipped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal

import psutil
import yaml

from penstock_lab.demo.sites import Site, slurm_site


async def idle(site: Site, seconds: float) -> dict[str, float]:
    """Over so many seconds."""
    agent = next(p for p in psutil.process_iter(["pid"]) if p.pid == site.agent.pid)
    before = agent.cpu_times()
    await asyncio.sleep(seconds)
    after = agent.cpu_times()
    used = sum(after[:4]) - sum(before[:4])  # its own and that of the Slurm commands it ran
    return {"core_percent": 100 * used / seconds, "rss_mb": agent.memory_info().rss / 1e6}


async def measure(seconds: float) -> dict[str, dict[str, float]]:
    async with slurm_site((1.0, 10.0, 60.0)) as site:
        busy = await idle(site, seconds)
        settings = yaml.safe_load(site.config.read_text())
        for key in ("interval", "idle_interval"):
            del settings["agent"][key]
        del settings["slurm"]["min_interval"]
        site.config.write_text(yaml.safe_dump(settings))
        site.agent.send_signal(signal.SIGHUP)
        await asyncio.sleep(2)
        return {"two looks a second": busy, "as shipped": await idle(site, seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options.seconds))
    if options.json:
        print(json.dumps(found))
        return
    for name, row in found.items():
        print(f"{name}: {row['core_percent']:.2f} % of a core, {row['rss_mb']:.0f} MB")
    print(f"over {options.seconds:g} s each, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
