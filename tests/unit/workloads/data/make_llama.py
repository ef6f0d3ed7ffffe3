"""Makes `llama/`: a tiny random Llama as `transformers` writes it, with the logits that it computes. With the name of a
folder: compares the logits there with what `transformers` computes. tests/bench/README.md has both commands.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent


def make(folder: Path) -> None:
    """Make a Llama with scaled positions, groups of heads and an output layer of its own."""
    rope = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        intermediate_size=48,
        max_position_embeddings=128,
        rope_parameters={**rope, "original_max_position_embeddings": 32},
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    model.save_pretrained(folder, max_shard_size="30KB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    np.save(folder / "logits.npy", logits(model, 96))


def logits(model: LlamaForCausalLM, vocabulary: int) -> np.ndarray:
    """[1, 48, vocabulary] of the tokens 0, 7, 14, ..."""
    tokens = torch.arange(48)[None] * 7 % vocabulary
    with torch.no_grad():
        return model(tokens).logits.numpy()


def compare(folder: Path) -> None:
    """Fails unless the model in a folder has the logits that are beside it."""
    read = LlamaForCausalLM.from_pretrained(folder).eval()
    apart = np.abs(logits(read, read.config.vocab_size) - np.load(folder / "logits.npy")).max()
    print(f"logits of an exported model in transformers: at most {apart:.1e} apart")
    assert apart < 1e-4


if __name__ == "__main__":
    if len(sys.argv) > 1:
        compare(Path(sys.argv[1]))
    else:
        make(HERE / "llama")
