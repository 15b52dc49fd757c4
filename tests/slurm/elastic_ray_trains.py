"""The training of `elastic_trains` under Ray Train, whose group of workers grows and shrinks with Ray's nodes.

`elastic_ray_trains.py FOLDER STEPS SECONDS LARGEST`, beside `trains.py`. Each step ends with a checkpoint, and is told
in the file `steps` of the folder.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train(config: dict[str, Any]) -> None:
    """On each worker."""
    sys.path.insert(0, config["beside"])
    import torch
    import torch.distributed as dist
    from trains import BATCH, RATE, WIDTH, gradient

    folder = Path(config["folder"])
    here = ray.train.get_context()
    rank, size = here.get_world_rank(), here.get_world_size()
    first, weights = 0, torch.zeros(WIDTH, dtype=torch.float64)
    if (last := ray.train.get_checkpoint()) is not None:
        with last.as_directory() as place:
            saved = torch.load(Path(place) / "state")
        first, weights = saved["step"], saved["weights"]
    for step in range(first, config["steps"]):
        mine = gradient(weights, step, rank, size)
        dist.all_reduce(mine)
        weights = weights - RATE * mine / BATCH
        state = {"step": step + 1, "weights": weights}
        with tempfile.TemporaryDirectory() as place:
            if rank == 0:
                torch.save(state, Path(place) / "state")
            ray.train.report({"step": step}, checkpoint=Checkpoint(place) if rank == 0 else None)
        if rank == 0:
            with (folder / "steps").open("a") as file:
                file.write(f"step {step} of {size} at {time.time():.2f}\n")
            if step + 1 == config["steps"]:
                torch.save(state, folder / "checkpoint")
        time.sleep(config["seconds"])


def main() -> None:
    folder, steps, seconds = Path(sys.argv[1]).resolve(), int(sys.argv[2]), float(sys.argv[3])
    ray.init(log_to_driver=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={
            "folder": str(folder),
            "steps": steps,
            "seconds": seconds,
            "beside": str(Path(__file__).resolve().parent),
        },
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=(1, int(sys.argv[4])), elastic_resize_monitor_interval_s=5),
        run_config=RunConfig(
            name="training",
            storage_path=str(folder),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            failure_config=FailureConfig(max_failures=-1),
        ),
    )
    print("done:", trainer.fit().metrics, flush=True)


if __name__ == "__main__":
    main()
