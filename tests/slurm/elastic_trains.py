"""A training for torchrun that any number of processes computes alike: float64, a fixed global batch, plain SGD.

`elastic_trains.py FOLDER STEPS SECONDS`. After each step rank 0 writes the checkpoint that all load at their start.
Where there is a GPU it trains there: by NCCL if each process can have one of its own, else all on the first by gloo.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

BATCH, WIDTH, RATE = 48, 32, 0.05


def gradient(weights: torch.Tensor, step: int, rank: int, size: int) -> torch.Tensor:
    """Of this rank's share of the step's batch; the sum over the ranks is that of the whole batch."""
    draw = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, WIDTH, generator=draw, dtype=torch.float64)[rank::size].to(weights.device)
    wanted = torch.tanh(inputs.sum(1))
    return inputs.T @ (torch.tanh(inputs @ weights) - wanted)


def main() -> None:
    folder, steps, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    own = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl" if own else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    place = torch.device(f"cuda:{os.environ['LOCAL_RANK'] if own else 0}" if torch.cuda.is_available() else "cpu")
    first, weights = 0, torch.zeros(WIDTH, dtype=torch.float64, device=place)
    if (folder / "checkpoint").exists():
        saved = torch.load(folder / "checkpoint", map_location=place)
        first, weights = saved["step"], saved["weights"]
    for step in range(first, steps):
        mine = gradient(weights, step, rank, size)
        dist.all_reduce(mine)
        weights = weights - RATE * mine / BATCH
        if rank == 0:
            new = folder / f"new-{os.getpid()}"
            torch.save({"step": step + 1, "weights": weights}, new)
            new.replace(folder / "checkpoint")
            print(f"step {step} of {size} at {time.time():.2f} by {dist.get_backend()} on {place}", flush=True)
        time.sleep(seconds)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
