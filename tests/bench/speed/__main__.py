"""python -m tests.bench.speed [--minutes=9] [--only=jax,torch] [--tiny]

First the rate of matrix products alone, for 20 s, then rows as long as the time lasts, the most important ones first.
A row that cannot be measured says why. `--tiny` does all of it with a model of nothing, on a CPU if need be, to see
whether it works. What is printed goes to `run/speed.jsonl` as well.

Needs workloads' packages and `pip install "jax[cuda12]"`; rows of PyTorch need `torch`, one of them `timm`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.bench.speed.rows import LLAMA, ROWS, TINY, Row
from workloads.frame.chips import peak
from workloads.measure import text

GEMM_S = 20.0
LEAST_S = 20.0  #: a group that has less time than this left is not begun
IMAGE_FLOPS = (
    6 * 86.4e6 * 197 + 12 * 12 * 197**2 * 768
)  #: of ViT-B/16: weights, and scores and values of 12 layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="stop by then")
    parser.add_argument("--only", default="", help="groups of rows, such as jax,torch")
    parser.add_argument("--tiny", action="store_true", help="to see whether it works")
    parser.add_argument("--group", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.group:
        _measure(args.group, tiny=args.tiny)
        return
    end = time.monotonic() + 60 * args.minutes
    Path("run").mkdir(exist_ok=True)
    with Path("run/speed.jsonl").open("a") as file:
        for found in _found(args, end):
            file.write(json.dumps(found) + "\n")
            print(shown(found), flush=True)


def _found(args: argparse.Namespace, end: float) -> Iterator[Mapping[str, Any]]:
    """What each group's process prints, as long as there is time."""
    wanted = set(args.only.split(",")) if args.only else set()
    groups = ["gemm", *(name for name, _ in groupby(ROWS, key=lambda row: row.group))]
    for group in groups:
        if wanted and group not in wanted:
            continue
        left = end - time.monotonic()
        if left < LEAST_S:
            yield {"row": f"group {group}", "error": "left out: the time is up"}
            continue
        yield from _child(group, left, tiny=args.tiny)


def _child(group: str, seconds: float, *, tiny: bool) -> list[Mapping[str, Any]]:
    """What a process of its own measures in that time; it gives the device back when it ends."""
    rows = [row for row in ROWS if row.group == group]
    env = {**os.environ, **(rows[0].env if rows else {})}
    command = [sys.executable, "-m", "tests.bench.speed", f"--group={group}", *["--tiny"] * tiny]
    try:
        done = subprocess.run(command, env=env, capture_output=True, timeout=seconds)
        said, why = done.stdout, done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    except subprocess.TimeoutExpired as late:
        said, why = late.stdout or b"", ["the time was up"]
    found = [json.loads(line) for line in said.splitlines() if line.startswith(b"{")]
    told = {one["row"] for one in found}
    missing = [row.name for row in rows if row.name not in told]
    return found + [{"row": name, "error": " ".join(why) or "it said nothing"} for name in missing]


# In the process of a group --------------------------------------------------------------------------------------------


def _measure(group: str, *, tiny: bool) -> None:
    """Print a line of JSON for each row of the group."""
    if group == "gemm":
        from tests.bench.speed import on_jax

        rates = on_jax.gemm(1.0 if tiny else GEMM_S, size=256 if tiny else 8192)
        _tell(
            "matrix products alone",
            on_jax.device(),
            first=rates[0],
            last=rates[-1],
            flops=rates[-1],
        )
        return
    for row in ROWS:
        if row.group == group:
            try:
                _tell(row.name, *_one(row, tiny=tiny))
            except Exception as error:  # the next row may work
                _say({"row": row.name, "error": f"{type(error).__name__}: {error}"[:300]})


def _one(row: Row, *, tiny: bool) -> tuple[str, dict[str, float]]:
    """The device and the figures of one row."""
    on_torch = row.group in ("torch", "timm")
    module = importlib.import_module(f"tests.bench.speed.on_{'torch' if on_torch else 'jax'}")
    changes = {
        **row.changes,
        **({"steps": 2} if tiny else {}),
        **({"compiled": False} if tiny and on_torch else {}),
    }
    device = module.device()
    if row.group in ("vit", "timm"):
        batch, preset = (2, "tiny") if tiny else (128, "b16")
        found = module.vit(batch, preset=preset, **changes)
        return device, _rates(found, batch, 0.0 if tiny else IMAGE_FLOPS, "images/s")
    size = TINY if tiny else LLAMA
    found = module.llama(size, **changes)
    tokens = changes.get("batch", 8) * size.sequence
    return device, _rates(found, tokens, size.flops_per_token, "tokens/s")


def _rates(found: dict[str, float], things: float, flops: float, unit: str) -> dict[str, Any]:
    rate = things / found["seconds"]
    return {**found, "rate": rate, "unit": unit, "flops": rate * flops}


def _tell(name: str, device: str, figures: Mapping[str, Any] = {}, **more: Any) -> None:
    _say({"row": name, "device": device, **figures, **more})


def _say(record: Mapping[str, Any]) -> None:
    print(json.dumps(record), flush=True)


# For a person ---------------------------------------------------------------------------------------------------------


def shown(found: Mapping[str, Any]) -> str:
    """One line. What FP8 reaches is never set against the peak of bfloat16."""
    name = f"{found['row']:<52}"
    if "error" in found:
        return f"{name}  -  {found['error']}"
    parts: list[str] = []
    if "rate" in found:
        parts += [
            f"{found['rate']:>9,.0f} {found['unit']}",
            f"{text.seconds(found['seconds'])} a step",
        ]
    if tera := found["flops"] / 1e12:
        parts.append(f"{tera:,.0f} TFLOP/s" if tera >= 10 else f"{tera:.2g} TFLOP/s")
    limit = peak(found["device"])
    if limit and "FP8" not in found["row"]:
        parts.append(f"{found['flops'] / limit:.1%} of {limit / 1e12:.0f}")
    if "first" in found:
        parts.append(f"{found['first'] / 1e12:,.0f} in the first second")
    if found.get("bytes"):
        parts.append(f"{found['bytes'] / 2**30:.1f} GiB")
    return "  ".join([name, *parts])


if __name__ == "__main__":
    main()
