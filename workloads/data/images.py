"""Images as rows of one size: of a packed set of JPEG, PNG or `.npy` files, or the digits of scikit-learn.

A row has `x`, uint8 [size, size, channels], and `y`, int32: its class. A training row is a random part of
an image, different each time. With mixup a second image is blended in, and the row also has `other`, int32, its class,
and `share`, float32, its part of the row. All this follows from the seed of the run and the position of the row: it
is the same after a resume, and on any number of hosts.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from workloads.data.bundled import DIGITS_TESTED, scanned_digits
from workloads.data.packed import PackedSet, open_set, read_array
from workloads.data.rows import Dataset, InMemory, Numbers, Rows, split
from workloads.frame.config import ConfigError

#: Of the shorter side, what is tested on: 224 of 256 points, as ImageNet is.
_MIDDLE = 0.875
#: Log of the most that a part of an image is stretched in one direction: 3 to 4, as in most training on ImageNet.
_STRETCH = float(np.log(4 / 3))
_NPY = b"\x93NUMPY"

_Size = tuple[int, int]  #: width, height
_Box = tuple[float, float, float, float]  #: left, top, right, bottom, in points of the image


@dataclass(frozen=True)
class Augmentation:
    """The random changes of each training row."""

    crop: float = 1.0  #: least part of the area of the image that is seen
    pad: float = 0.0  #: a black border that may be seen, as a part of the shorter side
    flip: bool = False  #: whether left and right may change places
    brightness: float = 0.0  #: by which part the image may become darker or lighter
    mixup: float = 0.0  #: both parameters of the beta distribution of `share`; 0: no second image


def open_images(place: str, size: int, channels: int, change: Augmentation) -> Dataset:
    """`digits`: scikit-learn's, 8 x 8 points. Else a packed set of JPEG, PNG or `.npy` files (uint8, [height, width] or
    [height, width, 3]) in a folder for each class. A fifth is for the test, at most 2,048 images, which are read here.

    Raises ConfigError as `packed.open_set` does, and for a record that is no image, here or when it is read.
    """
    if place == "digits":
        source, middle = _Digits(), 1.0
        tested, trained = split(len(source.labels), DIGITS_TESTED)
        classes = 10
    else:
        records = open_set(place)
        source, middle = _Records(records), _MIDDLE
        tested, trained = records.parts()
        classes = len(records.classes)
    view = partial(Views, source, size=size, mode="L" if channels == 1 else "RGB", middle=middle)
    train = view(trained)
    test = InMemory(view(tested).take(np.arange(len(tested))))
    return Dataset(train, test, classes, _threads(), partial(train.drawn, change))


class Source(Protocol):
    """Images and their classes by number, from several threads at a time."""

    labels: NDArray[np.integer]

    def open(self, number: int) -> Image.Image:
        """Raises OSError or ValueError for what is no image, here or when its points are used."""
        ...

    def name(self, number: int) -> str: ...


class Views:
    """Some of the images of a source, as rows."""

    def __init__(self, source: Source, which: Numbers, size: int, mode: str, middle: float) -> None:
        self._source = source
        self._which = which
        self._size = size
        self._mode = mode
        self._part = middle

    def __len__(self) -> int:
        return len(self._which)

    def take(self, which: NDArray[np.integer]) -> Rows:
        """Return the middle of each image."""
        numbers = self._which[which]
        with ThreadPool(_threads()) as pool:
            x = pool.map(lambda number: _points(self._seen(number, self._middle)), numbers.tolist())
        return {"x": np.stack(x), "y": self._source.labels[numbers].astype(np.int32)}

    def drawn(self, change: Augmentation, row: int, random: np.random.Generator) -> Rows:
        """Return one row with random changes."""
        image, y = self._changed(change, row, random)
        if not change.mixup:
            return {"x": _points(image), "y": y}
        second, other = self._changed(change, int(random.integers(len(self))), random)
        share = random.beta(change.mixup, change.mixup)
        both = Image.blend(image, second, share)
        return {"x": _points(both), "y": y, "other": other, "share": np.array(share, np.float32)}

    def _changed(
        self, change: Augmentation, row: int, random: np.random.Generator
    ) -> tuple[Image.Image, NDArray[np.int32]]:
        number = int(self._which[np.array([row])][0])
        image = self._seen(number, partial(_any_part, change.crop, random), change.pad)
        if change.flip and random.random() < 0.5:
            image = ImageOps.mirror(image)
        if change.brightness:
            factor = random.uniform(1 - change.brightness, 1 + change.brightness)
            table = [round(factor * value) for value in range(256)]
            image = image.point(table * len(image.getbands()))
        return image, self._source.labels[number].astype(np.int32)

    def _seen(self, number: int, part: Callable[[_Size], _Box], pad: float = 0.0) -> Image.Image:
        """A part of an image in the size of a row. A JPEG is decoded no larger than needed, which may take a third of
        the time. Raises ConfigError for what is no image."""
        try:
            image = self._source.open(number)
            if pad:
                image = ImageOps.expand(image, round(pad * min(image.size)))
            box = part(image.size)
            width, height = image.size
            scale = self._size / min(box[2] - box[0], box[3] - box[1])
            if image.draft(self._mode, (int(width * scale), int(height * scale))):
                x, y = image.width / width, image.height / height
                box = (box[0] * x, box[1] * y, box[2] * x, box[3] * y)
            size = (self._size, self._size)
            return image.convert(self._mode).resize(size, Image.Resampling.BILINEAR, box)
        except (OSError, ValueError, SyntaxError, TypeError) as error:
            name = self._source.name(number)
            raise ConfigError(f"{name} is no image that can be read ({error})") from error

    def _middle(self, size: _Size) -> _Box:
        side = self._part * min(size)
        return _box(size, (side, side), (0.5, 0.5))


def _any_part(least: float, random: np.random.Generator, size: _Size) -> _Box:
    """Return a random box with at least that part of the area."""
    area = random.uniform(least, 1) * size[0] * size[1]
    ratio = np.exp(random.uniform(-_STRETCH, _STRETCH))
    side = float(np.sqrt(area * ratio)), float(np.sqrt(area / ratio))
    return _box(size, side, random.random(2).tolist())


def _box(size: _Size, side: tuple[float, float], at: Sequence[float]) -> _Box:
    """A part of so many points, or of as many as there are, at that place from left to right and from top to bottom."""
    width, height = min(side[0], size[0]), min(side[1], size[1])
    left, top = (size[0] - width) * at[0], (size[1] - height) * at[1]
    return left, top, left + width, top + height


def _points(image: Image.Image) -> NDArray[np.uint8]:
    """Return the image's points, [height, width, channels]."""
    points = np.asarray(image)
    return points if points.ndim == 3 else points[..., None]


class _Digits:
    """The scanned digits, of 8 x 8 points."""

    def __init__(self) -> None:
        rows = scanned_digits()
        self._x = np.rint(rows["x"] * 255).astype(np.uint8).reshape(-1, 8, 8)
        self.labels: NDArray[np.integer] = rows["y"]  # pyright: ignore[reportAttributeAccessIssue]

    def open(self, number: int) -> Image.Image:
        return Image.fromarray(self._x[number])

    def name(self, number: int) -> str:
        return f"digit {number}"


class _Records:
    """The records of a packed set."""

    def __init__(self, records: PackedSet) -> None:
        self._records = records
        self.labels = records.labels

    def open(self, number: int) -> Image.Image:
        [record] = self._records.read([number])
        if record.startswith(_NPY):
            return Image.fromarray(read_array(record, number))
        return Image.open(io.BytesIO(record))

    def name(self, number: int) -> str:
        return f"data={self._records.place}: record {number}"


def _threads() -> int:
    return min(os.cpu_count() or 1, 16)
