"""How fast rows come from each kind of data, and how long a step waits for them.

    python -m tests.bench.bench_rows [--seconds=3]

Reads batches as the training does: as fast as they come, then with a step of 50 ms between them, in which the CPU is
idle, as it is while a TPU or a GPU computes.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from tests.contract.data.rig import Silent
from tpujob.data.pack.places import FolderTarget
from tpujob.data.pack.run import Pack
from tpujob.data.places import Folder
from workloads.data import packed
from workloads.data.bundled import digits
from workloads.data.images import Augmentation, open_images
from workloads.data.rows import Dataset, Feed
from workloads.data.tokens import open_text

STEP_S = 0.05
PHOTO = Augmentation(crop=0.05, flip=True, brightness=0.2)
SMALL = Augmentation(crop=0.7, pad=0.125, brightness=0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args(sys.argv[1:]).seconds
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TPUJOB_CACHE"] = f"{folder}/cache"
        print(f"{'':44}{'rows/s':>10}{'MB/s':>8}{'tokens/s':>12}{'waiting':>20}")
        for name, dataset, batch in _sets(Path(folder)):
            _show(name, dataset, batch, seconds)


def _sets(folder: Path) -> Iterator[tuple[str, Dataset, int]]:
    yield "digits in memory, 256 a batch", digits(), 256
    place = _packed(folder / "arrays", {f"{i % 10}/{i}.npy": _npy(i) for i in range(2000)})
    yield "packed .npy of 784 floats, 256", packed.dataset(place), 256
    for tokenizer in ("bytes", "bpe"):
        text = open_text("stdlib", tokenizer).dataset(2048)
        yield f"standard library, {tokenizer}, 32 x 2048", text, 32
    texts = {f"{i}.txt": bytes(_noise(i, 4096)) for i in range(2000)}
    text = open_text(_packed(folder / "texts", texts), "bytes").dataset(2048)
    yield "packed text of 4 KiB, bytes, 32 x 2048", text, 32
    yield "digits, drawn anew, 128", open_images("digits", 8, 1, SMALL), 128
    photos = {f"{i % 10}/{i}.jpg": _jpeg(i) for i in range(300)}
    place = _packed(folder / "photos", photos)
    size = sum(map(len, photos.values())) // len(photos) // 1000
    yield f"packed JPEG of {size} kB at 224, 8", open_images(place, 224, 3, PHOTO), 8


def _show(name: str, dataset: Dataset, batch: int, seconds: float) -> None:
    feed = Feed(dataset, batch, seed=0, host=0, hosts=1)
    rows = next(feed)
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        next(feed)
        count += 1
    rate = count * batch / took
    megabytes = rate / batch * sum(array.nbytes for array in rows.values()) / 1e6
    tokens = f"{rate * rows['tokens'][0].size:,.0f}" if "tokens" in rows else ""
    waited = []
    for _ in range(max(5, int(seconds / STEP_S))):
        time.sleep(STEP_S)
        next(feed)
        waited.append(feed.waited_ms)
    share = 100 * np.mean(waited) / (np.mean(waited) + STEP_S * 1000)
    waiting = f"{np.mean(waited):.2f} ms, {share:.1f} %"
    print(f"{name:44}{rate:10,.0f}{megabytes:8,.0f}{tokens:>12}{waiting:>20}")


def _packed(place: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        path = place / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    target = FolderTarget(str(place / "packed"))
    Pack(Folder(str(place / "source")), shard_bytes=64 << 20, seed=1).run(target, Silent())
    return str(place / "packed")


def _noise(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(32, 127, count, dtype=np.uint8)


def _npy(seed: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(seed).standard_normal(784, dtype=np.float32))
    return file.getvalue()


def _jpeg(seed: int) -> bytes:
    """500 x 375 points, as most of ImageNet has, about as hard to compress."""
    coarse = np.random.default_rng(seed).integers(0, 256, (75, 100, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(
        file, "JPEG", quality=95
    )
    return file.getvalue()


if __name__ == "__main__":
    main()
