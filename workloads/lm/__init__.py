"""A Llama 3 that is trained to predict the next token.

This file has its settings and imports no jax. `presets.py` has the shapes, `model.py` the model with `attention.py`,
`loss.py` what is minimised, `workload.py` what the frame is given; `tools.py` uses a
checkpoint, with `sampling.py` and `huggingface.py`. How text becomes tokens belongs to `workloads/data/`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from workloads.frame.config import TrainConfig, from_preset
from workloads.lm.presets import PRESETS, TRAINED, Shape

#: With one of these flags nothing is trained: see `tools.py`.
TOOLS = ("--sample", "--export", "--import")


class LmConfig(Shape, TrainConfig):
    """Trains a Llama to predict the next token. --sample, --export and --import do something else with its newest
    checkpoint: `--sample=x --help` lists their flags."""

    binding: ClassVar[tuple[str, ...]] = ("seed", "sequence", "stacked", *Shape.model_fields)

    preset: str = Field(
        "1m",
        description=f"a shape, and how such a model is trained: {', '.join(PRESETS)}; other flags are stronger",
    )
    tensor: int = Field(
        1, ge=1, description="devices of a host that share rows and compute parts of each layer"
    )
    batch: int = Field(32, ge=1, description="rows in a step, over all hosts")
    beta2: float = Field(0.95, ge=0, lt=1, description="AdamW's decay of the mean square")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's weight decay; norms have none")
    final_lr: float = Field(
        0.1, ge=0, le=1, description="the lowest learning rate, as a part of lr"
    )
    data: str = Field(
        "",
        description="text: a folder of text files or a packed set of documents or of tokens; `stdlib`: the sources of "
        "Python's library, `pydoc`: its help texts; empty: what `data:` in the job file names, or stdlib",
    )
    tokenizer: str = Field(
        "bytes",
        description="`bytes`; `bpe`: the tokenizer.json beside the data, or one trained on it with `vocab` tokens; "
        "a tokenizer.json; `none`: the data is tokens",
    )
    sequence: int = Field(256, ge=1, description="tokens of a row")
    segments: bool = Field(
        True,
        description="a token attends to tokens of its own document only, not to others of its row",
    )
    dtype: Literal["bfloat16", "float32"] = Field(
        "bfloat16",
        description="type that is computed in; the weights that are trained are float32",
    )
    stacked: bool = Field(
        False,
        description="the weights of all layers in one array, gone through in a loop: compiles in the time of one "
        "layer, and runs slower on CPU and GPU",
    )
    remat: Literal["none", "dots", "full"] = Field(
        "none",
        description="what is computed again for the gradients, to save memory: nothing, all but the results of "
        "matrix products and attention, or each layer whole",
    )
    loss_chunk: int = Field(
        1024,
        ge=0,
        description="tokens of a device whose logits exist at one time; 0: all",
    )
    z_loss: float = Field(
        0.0, ge=0, description="weight of the squared log of the softmax's denominator in the loss"
    )
    attention: Literal["auto", "plain", "blocks", "cudnn", "splash"] = Field(
        "auto",
        description="how attention is computed; auto: splash on TPU, cudnn on GPU, blocks on CPU",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Complete the settings from their preset."""
        presets = {name: {**PRESETS[name].model_dump(), **TRAINED[name]} for name in PRESETS}
        return from_preset(settings, presets, usual="1m")

    @model_validator(mode="after")
    def _fits(self) -> LmConfig:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def identity(self) -> dict[str, Any]:
        """Return the binding settings and a hash of the content of text and tokenizer."""
        from workloads.data.tokens import open_text

        text = open_text(self.data, self.tokenizer, self.vocab)
        return {**super().identity(), "data": text.identity}

    def _problems(self) -> list[str]:
        """Return the problems of the settings, one line each; the first may cause the others."""
        heads, kv_heads = f"--heads={self.heads}", f"--kv-heads={self.kv_heads}"
        checks = (
            (self.dim % self.heads, f"{heads} does not divide --dim={self.dim}"),
            (self.heads % self.kv_heads, f"{kv_heads} does not divide {heads}"),
            (self.head % 2, f"dim / heads = {self.head} is odd, and RoPE turns pairs of numbers"),
            (
                self.kv_heads % self.tensor,
                f"--tensor={self.tensor} does not divide {kv_heads}, and a head is not split",
            ),
            (
                self.sequence > self.context,
                f"--sequence={self.sequence} is longer than --context={self.context}, the longest with such positions",
            ),
        )
        return [text for wrong, text in checks if wrong]
