"""Training by Accelerate: `accelerate launch ... train.py STEPS SAVE_EVERY`. Host 0 saves for all hosts."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, TensorDataset

FOLDER = Path("ckpt")
steps, save_every = map(int, sys.argv[1:])

accelerator = Accelerator(
    cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)
)
set_seed(0)
rows = torch.randn(512, 16, generator=torch.Generator().manual_seed(1))
data = DataLoader(TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
done = 0
if folders := sorted(FOLDER.glob("step-*")):
    accelerator.load_state(str(folders[-1]))
    done = int(folders[-1].name.removeprefix("step-"))
    place = f"rank {accelerator.process_index} of {accelerator.num_processes}"
    print(f"{place}: resuming from step {done}", flush=True)

while done < steps:
    data.set_epoch(done // len(data))
    for inputs, targets in accelerator.skip_first_batches(data, done % len(data)):
        time.sleep(0.03)  # a step of a model that is larger than this one
        loss = ((model(inputs) - targets) ** 2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        done += 1
        if done % 5 == 0:
            mean = accelerator.reduce(loss.detach(), "mean").item()
            accelerator.print(f"step {done}/{steps} loss {mean:.6f}", flush=True)
        if done % save_every == 0 or done == steps:
            accelerator.save_state(str(FOLDER / "new.part"))
            accelerator.wait_for_everyone()
            if accelerator.is_local_main_process:
                (FOLDER / "new.part").rename(FOLDER / f"step-{done:06}")
            accelerator.print(f"saved step {done}", flush=True)
        if done == steps:
            break
accelerator.end_training()
