"""Images as rows: whatever file they come from, drawn anew each time, and the same after a resume."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.contract.data.rig import Silent
from tpujob.data.pack import Pack
from workloads.data.bundled import digits
from workloads.data.images import Augmentation, open_images
from workloads.data.rows import Dataset
from workloads.frame.config import ConfigError

PLAIN = Augmentation()
KINDS = ("jpg", "png", "npy")


def picture(number: int, height: int = 60, width: int = 80) -> np.ndarray:
    """Red grows to the right, green to the bottom, blue with the number."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    pixels[..., 2] = 10 * number
    return pixels


def encoded(array: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "npy":
        np.save(file, array)
    else:
        Image.fromarray(array).save(file, {"jpg": "JPEG", "png": "PNG"}[kind], quality=95)
    return file.getvalue()


def pack(files: dict[str, bytes], place: Path) -> str:
    for name, content in files.items():
        path = place / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    Pack(str(place / "source"), shard_bytes=64 << 10).run(str(place / "packed"), Silent())
    return str(place / "packed")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """24 pictures of three kinds of files, which are also their classes."""
    files = {
        f"{kind}/{number:02d}.{kind}": encoded(picture(number), kind)
        for number in range(8)
        for kind in KINDS
    }
    return pack(files, tmp_path_factory.mktemp("photos"))


def numbers_of(x: np.ndarray) -> np.ndarray:
    """Return the numbers of the pictures that these rows show."""
    return np.rint(x[..., 2].mean(axis=(1, 2)) / 10).astype(int)


def test_a_row_is_the_middle_of_its_image_whatever_the_file(photos: str) -> None:
    dataset = open_images(photos, 32, 3, PLAIN)
    rows = dataset.train.take(np.arange(len(dataset.train)))
    test = dataset.test.take(np.arange(len(dataset.test)))
    assert dataset.classes == 3
    assert rows["x"].shape == (20, 32, 32, 3)
    assert rows["x"].dtype == np.uint8
    assert len(test["y"]) == 4
    seen = np.concatenate([rows["x"], test["x"]])
    kinds = np.concatenate([rows["y"], test["y"]])
    assert sorted(zip(numbers_of(seen), kinds, strict=True)) == [
        (number, kind) for number in range(8) for kind in range(3)
    ]
    # 60 of 80 points are the square in the middle, and of these 7/8 are seen
    red = seen[..., 0].astype(float)
    assert abs(red.mean() - 127.5) < 3
    assert np.abs(red[:, :, -1] - red[:, :, 0] - 255 * 52.5 / 80).max() < 12


def test_grey_and_coloured_images_become_what_the_model_takes(photos: str) -> None:
    assert open_images(photos, 16, 1, PLAIN).test.take(np.arange(2))["x"].shape == (2, 16, 16, 1)
    assert open_images("digits", 16, 3, PLAIN).test.take(np.arange(2))["x"].shape == (2, 16, 16, 3)


def test_the_digits_are_those_of_every_program(photos: str) -> None:
    dataset = open_images("digits", 8, 1, PLAIN)
    expected = digits()
    for source_, same in ((dataset.train, expected.train), (dataset.test, expected.test)):
        rows, expected_rows = (source.take(np.arange(len(same))) for source in (source_, same))
        np.testing.assert_array_equal(rows["y"], expected_rows["y"])
        np.testing.assert_array_equal(
            rows["x"].reshape(-1, 64), np.rint(expected_rows["x"] * np.float32(255))
        )


def read_all(dataset: Dataset) -> None:
    for row in range(len(dataset.train)):
        drawn(dataset, row)


def drawn(dataset: Dataset, row: int, seed: int = 0) -> dict[str, np.ndarray]:
    assert dataset.augmented
    return dataset.augmented(row, np.random.default_rng(seed))


def test_each_change_does_what_it_says(photos: str) -> None:
    def many(**fields: float) -> np.ndarray:
        dataset = open_images(photos, 32, 3, Augmentation(**fields))  # type: ignore[arg-type]
        return np.stack([drawn(dataset, 0, seed)["x"] for seed in range(40)]).astype(float)

    def rises(x: np.ndarray) -> np.ndarray:
        return x[:, 16, -1, 0] - x[:, 16, 0, 0]

    whole, cropped = many(), many(crop=0.1)
    assert rises(whole).min() > 170, "all but what a stretched square leaves out"
    assert rises(cropped).min() < 120
    assert len({part.tobytes() for part in cropped}) == 40
    flipped = rises(many(flip=True)) < 0
    assert 8 < flipped.sum() < 32
    bright = many(brightness=0.5).mean(axis=(1, 2, 3)) / whole.mean(axis=(1, 2, 3))
    assert bright.min() < 0.7
    assert bright.max() > 1.2
    padded = many(pad=0.2)
    assert (padded[:, 0, 16].sum(axis=-1) == 0).any(), "the border is seen in some"


def test_mixup_names_both_classes_and_how_much_of_each(photos: str) -> None:
    mixed, plain = (open_images(photos, 8, 3, Augmentation(mixup=mixup)) for mixup in (0.4, 0.0))
    assert plain.augmented
    for seed in range(10):
        row, random = drawn(mixed, 1, seed), np.random.default_rng(seed)
        first = plain.augmented(1, random)
        second = plain.augmented(int(random.integers(len(plain.train))), random)
        assert (row["y"], row["other"]) == (first["y"], second["y"])
        share = float(row["share"])
        expected = (1 - share) * first["x"].astype(float) + share * second["x"]
        assert np.abs(row["x"] - expected).max() <= 1


def test_what_is_no_image_is_one_line_that_names_it(photos: str, tmp_path: Path) -> None:
    good = {f"a/{i}.png": encoded(picture(i), "png") for i in range(8)}
    for name, content in {
        "text": b"no image",
        "short": encoded(picture(1), "jpg")[:900],
        "floats": encoded(np.zeros((4, 4, 2)), "npy"),
    }.items():
        place = pack({**good, f"b/{name}": content}, tmp_path / name)
        with pytest.raises(ConfigError, match=r"record 8 is no image that can be read") as error:
            read_all(open_images(place, 8, 3, PLAIN))
        assert "\n" not in str(error.value)
