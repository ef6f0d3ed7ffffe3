"""Trains a small Llama from scratch with Hugging Face's Trainer, on the bytes of Python's own library."""

import argparse
import os
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from tpujob_events.transformers import TransformersEvents

FOLDER = "checkpoints"
LENGTH = 64  # bytes of a row


def rows() -> list[dict[str, torch.Tensor]]:
    text = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("*.py")))
    ids = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    return [{"input_ids": row, "labels": row} for row in ids.split(LENGTH)[:-1]]


def on_tpu() -> bool:
    try:
        from torch_xla import runtime
    except ImportError:
        return False
    return runtime.device_type() == "TPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save-every", type=int, default=100)
    args = parser.parse_args()
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
    )
    arguments = TrainingArguments(
        FOLDER,
        max_steps=args.steps,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        logging_steps=5,
        save_steps=args.save_every,
        save_total_limit=2,
        seed=1,
        ddp_find_unused_parameters=False,
        use_cpu=not on_tpu(),
        report_to=[],
    )
    torch.manual_seed(arguments.seed)  # the same weights on every process
    trainer = Trainer(
        LlamaForCausalLM(config), arguments, train_dataset=rows(), callbacks=[TransformersEvents()]
    )
    saved = get_last_checkpoint(FOLDER) if os.path.isdir(FOLDER) else None
    trainer.train(resume_from_checkpoint=saved)


if __name__ == "__main__":
    main()
