"""A training loop in PyTorch/XLA: the rows of a batch are split over all chips of all hosts, host 0 saves for all."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import argparse
import math
import os
import sys
from pathlib import Path

import torch
import torch_xla
from torch_xla import runtime
from torch_xla.distributed import spmd

FOLDER = Path("checkpoints")


def newest() -> tuple[int, Path | None]:
    """The step and the file of the newest checkpoint."""
    saved = {int(path.stem.removeprefix("step-")): path for path in FOLDER.glob("step-*.pt")}
    return max(saved.items(), default=(0, None))


def save(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save on host 0, where a file has its name only once it is complete."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    on_cpu = torch.utils._pytree.tree_map_only(torch.Tensor, lambda array: array.cpu(), state)
    if runtime.process_index() == 0:
        FOLDER.mkdir(exist_ok=True)
        torch.save(on_cpu, FOLDER / "new.part")
        os.replace(FOLDER / "new.part", FOLDER / f"step-{step}.pt")
        print(f"saved step {step}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1024)
    args = parser.parse_args()
    runtime.use_spmd()
    if runtime.process_count() != int(os.environ.get("TPUJOB_HOSTS", "1")):
        print(
            f"the hosts do not find each other: {runtime.process_count()} process. torch_xla on CPUs works on one "
            "host: write `tpu: {type: v4-8}`",
            file=sys.stderr,
        )
        raise SystemExit(78)  # the configuration is wrong: no other attempt can help
    mesh = spmd.get_1d_mesh("data")
    print(
        f"{mesh.size()} {runtime.device_type()} devices, {runtime.process_count()} processes",
        flush=True,
    )

    torch.manual_seed(0)  # the same weights on every host
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
    optimizer_state = None
    done, file = newest()
    if file:
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        optimizer_state = saved["optimizer"]
        print(f"resuming from step {done}", flush=True)
    model = model.to("xla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if optimizer_state:
        optimizer.load_state_dict(optimizer_state)

    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    for step in range(done + 1, args.steps + 1):
        rows = torch.randn(args.batch, 64, generator=torch.Generator().manual_seed(1 + step))
        labels = (rows @ teacher).argmax(1)
        rows, labels = rows.to("xla"), labels.to("xla")
        spmd.mark_sharding(rows, mesh, ("data", None))
        spmd.mark_sharding(labels, mesh, ("data",))
        loss = torch.nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        if step % 10 == 0:
            value = loss.item()
            print(f"step {step}/{args.steps} loss {value:.6f}", flush=True)
            if not math.isfinite(value):
                raise SystemExit("the loss is not finite")
        if step % args.save_every == 0 or step == args.steps:
            save(step, model, optimizer)


if __name__ == "__main__":
    main()
