"""A Vision Transformer that tells classes of images apart.

This file has its settings and imports no jax; `model.py` has the layers, `workload.py` the loss and what is tested,
`__main__.py` starts it. How files become images belongs to `workloads/data/`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from workloads.frame.config import TrainConfig, from_preset

#: How these shapes are trained on ImageNet (arXiv:2106.10270, arXiv:2205.01580).
_PHOTOS = {
    "size": 224,
    "patch": 16,
    "channels": 3,
    "dtype": "bfloat16",
    "batch": 1024,
    "lr": 1e-3,
    "weight_decay": 1e-1,
}
_SEEN = {"crop": 0.05, "pad": 0.0, "flip": True, "mixup": 0.2}

#: Settings by name; flags are stronger. `tiny` are the defaults, made for the digits. The shapes of S/16 and B/16 are
#: those of arXiv:2106.10270, table 1.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {},
    "s16": {**_PHOTOS, **_SEEN, "dim": 384, "depth": 12, "heads": 6, "mlp": 1536},
    "b16": {**_PHOTOS, **_SEEN, "dim": 768, "depth": 12, "heads": 12, "mlp": 3072},
}


class VitConfig(TrainConfig):
    """Trains a Vision Transformer to tell classes of images apart, and tests it."""

    #: What the weights and the rows are bound to.
    binding: ClassVar[tuple[str, ...]] = (
        *("seed", "size", "patch", "channels", "dim", "depth", "heads", "mlp"),
        *("positions", "pooling", "crop", "pad", "flip", "brightness", "mixup"),
    )

    preset: str = Field(
        "tiny",
        description="a shape with what fits it: tiny for the digits, s16 or b16 for photographs; other flags are "
        "stronger",
    )
    data: str = Field(
        "",
        description="`digits`: 1,797 scanned digits of 8 x 8, from scikit-learn; or a folder that `tpujob data pack` "
        "made of JPEG, PNG or .npy files, in a folder for each class; empty: what `data:` in the job file names, or "
        "the digits",
    )
    steps: int = Field(1200, ge=1, description="train until this step")
    batch: int = Field(128, ge=1, description="rows in a step, over all hosts")
    lr: float = Field(3e-3, gt=0, description="highest learning rate; warmed up, then a cosine")
    size: int = Field(8, ge=1, description="points of a side of an image")
    patch: int = Field(2, ge=1, description="points of a side of a patch")
    channels: Literal[1, 3] = Field(1, description="1: images become grey; 3: coloured")
    dim: int = Field(64, ge=4, description="width of the activations between layers")
    depth: int = Field(4, ge=1, description="transformer layers")
    heads: int = Field(4, ge=1, description="attention heads; each has dim / heads numbers")
    mlp: int = Field(256, ge=1, description="hidden width of the MLPs")
    positions: Literal["learned", "sincos"] = Field(
        "learned",
        description="how a patch is told its place; sincos: by waves that are not trained",
    )
    pooling: Literal["mean", "token"] = Field(
        "mean", description="what the class is read from: all patches, or a token among them"
    )
    dtype: Literal["bfloat16", "float32"] = Field(
        "float32", description="type that is computed in; the weights that are trained are float32"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="part of the activations that is dropped")
    drop_path: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="part of the rows that skip the last layer; fewer skip earlier ones",
    )
    smoothing: float = Field(0.1, ge=0, lt=1, description="part of each label given to all classes")
    crop: float = Field(0.7, gt=0, le=1, description="least part of an image's area that is seen")
    pad: float = Field(0.125, ge=0, le=1, description="border around an image before the crop")
    flip: bool = Field(False, description="left and right change places in half of the rows")
    brightness: float = Field(0.2, ge=0, le=1, description="images are so much darker or lighter")
    mixup: float = Field(
        0.2, ge=0, description="parameters of the beta distribution that mixes two images; 0: none"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Complete the settings from their preset."""
        return from_preset(settings, PRESETS, usual="tiny")

    @model_validator(mode="after")
    def _fits(self) -> VitConfig:
        if self.size % self.patch:
            raise ValueError(f"--patch={self.patch} does not divide --size={self.size}")
        if self.dim % self.heads:
            raise ValueError(f"--heads={self.heads} does not divide --dim={self.dim}")
        if self.positions == "sincos" and self.dim % 4:
            raise ValueError(f"--positions=sincos needs a --dim that 4 divides, not {self.dim}")
        return self

    def identity(self) -> dict[str, Any]:
        """Return the binding settings with a hash of the packed set's content; its folder may change."""
        from workloads.data import packed, places  # imports numpy, which takes its time

        place = places.data_place(self.data, "digits")
        content = place if place == "digits" else packed.identity(place)
        return {**super().identity(), "data": content}
