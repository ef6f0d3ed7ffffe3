"""Plain data parallelism in PyTorch: `torchrun ... train.py STEPS SAVE_EVERY`. Rank 0 saves, for all."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

FOLDER = Path("ckpt")
steps, save_every = map(int, sys.argv[1:])

distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(0)
raw_model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(raw_model.parameters(), lr=1e-3)
done = 0
if files := sorted(FOLDER.glob("step-*.pt")):
    saved = torch.load(files[-1])
    raw_model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["step"]
    print(f"rank {rank} of {size}: resuming from step {done}", flush=True)
model = DistributedDataParallel(raw_model)

for step in range(done + 1, steps + 1):
    time.sleep(0.03)  # a step of a model that is larger than this one
    rows = torch.randn(32, 16, generator=torch.Generator().manual_seed(step * size + rank))
    loss = ((model(rows) - rows.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        mean = loss.detach() / size
        distributed.all_reduce(mean)
        if rank == 0:
            print(f"step {step}/{steps} loss {mean.item():.6f}", flush=True)
    if rank == 0 and (step % save_every == 0 or step == steps):
        FOLDER.mkdir(exist_ok=True)
        state = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, FOLDER / "new.part")
        os.replace(FOLDER / "new.part", FOLDER / f"step-{step:06}.pt")
        print(f"saved step {step}", flush=True)
distributed.destroy_process_group()
