"""Stands in for nanoGPT's train.py, with its libraries, flags, lines and checkpoint: a bigram model, under torchrun."""

import os
import pathlib
import sys
import time

import numpy as np
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

flags = dict(word.removeprefix("--").split("=") for word in sys.argv[1:] if "=" in word)
for name, value in flags.items():
    print(f"Overriding: {name} = {value}")
last, every = int(flags["max_iters"]), int(flags["eval_interval"])
file = pathlib.Path(flags["out_dir"], "ckpt.pt")

init_process_group(backend=flags["backend"])
rank = int(os.environ["RANK"])
if rank == 0:
    file.parent.mkdir(exist_ok=True)
torch.manual_seed(1337 + rank)  # also after a resume: nanoGPT saves no random state
data = np.memmap("data/shakespeare_char/train.bin", dtype=np.uint16, mode="r")


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    at = torch.randint(len(data) - 1, (2048,)).numpy()
    return tuple(torch.from_numpy(data[at + k].astype(np.int64)) for k in (0, 1))


def estimate() -> float:
    with torch.no_grad():
        return sum(loss_of(batch()).item() for _ in range(20)) / 20


def loss_of(rows: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(rows[0]), rows[1])


model = torch.nn.Embedding(256, 256)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
iteration = 0
if flags["init_from"] == "resume":
    print(f"Resuming training from {flags['out_dir']}")
    saved = torch.load(file)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    iteration = saved["iter_num"]
else:
    print("Initializing a new model from scratch")
raw_model, model = model, DistributedDataParallel(model)
while iteration <= last:
    if iteration % every == 0 and rank == 0:
        print(f"step {iteration}: train loss {estimate():.4f}, val loss {estimate():.4f}")
        if iteration > 0:
            print(f"saving checkpoint to {flags['out_dir']}")
            state = {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "iter_num": iteration}, file)
    began = time.time()
    time.sleep(0.03)  # a step of a model that is larger than this one
    loss = loss_of(batch())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if iteration % int(flags["log_interval"]) == 0 and rank == 0:
        milliseconds = 1000 * (time.time() - began)
        print(f"iter {iteration}: loss {loss.item():.4f}, time {milliseconds:.2f}ms, mfu -100.00%")
    iteration += 1
destroy_process_group()
