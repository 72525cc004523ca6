"""Train a small model by DistributedDataParallel over Gloo: an example for `pillarbox torchrun`.

    sudo ./pillarbox torchrun --ranks 8 --python ~/torch/bin/python -- docs/pytorch/ddp.py

The losses do not depend on the number of ranks, which share the samples of each step.
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAMPLES, INPUTS, HIDDEN = 4096, 64, 256

def main() -> None:
    """Train the model; rank 0 prints the loss and the time of each step."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--batch", type=int, default=256, help="Samples per step, on all ranks.")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    # All ranks draw the same data, the same initial weights and the same order of samples.
    torch.manual_seed(chosen.seed)
    inputs = torch.randn(SAMPLES, INPUTS)
    targets = torch.sin(inputs @ torch.randn(INPUTS, 1) / INPUTS**0.5 * 2)
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN),
        torch.nn.Tanh(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.Tanh(),
        torch.nn.Linear(HIDDEN, 1),
    )
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.05, momentum=0.9)
    own = slice(rank, None, ranks)  # the rank's samples of each batch
    times_s = []
    for step in range(chosen.steps):
        begin_s = time.monotonic()
        batch = torch.randint(SAMPLES, (chosen.batch,))[own]
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(replica(inputs[batch]), targets[batch])
        loss.backward()  # DDP replaces the gradients by their means over all ranks
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        mean /= ranks
        times_s.append(time.monotonic() - begin_s)
        if rank == 0:
            print(f"step {step:3}  loss {float(mean):.7f}  {times_s[-1] * 1e3:7.1f} ms")
    with torch.no_grad():
        final = torch.nn.functional.mse_loss(model(inputs), targets)
    if rank == 0:
        longest = max(range(chosen.steps), key=times_s.__getitem__)
        result = {
            "ranks": ranks,
            "final_loss": float(final),
            "median_step_ms": round(statistics.median(times_s) * 1e3, 1),
            "longest_step": longest,
            "longest_step_ms": round(times_s[longest] * 1e3, 1),
        }
        print(json.dumps(result))
    dist.destroy_process_group()


main()
