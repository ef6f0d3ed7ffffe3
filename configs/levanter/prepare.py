"""Writes what train.yml reads: the text of Python's own library as documents, and a tokenizer of bytes and merges."""

import json
import pathlib
import sysconfig

from tokenizers import ByteLevelBPETokenizer

texts = []
for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
    texts.append(path.read_text(encoding="utf-8"))

folder = pathlib.Path("data")
(folder / "tokenizer").mkdir(parents=True, exist_ok=True)
with open(folder / "train.jsonl", "w", encoding="utf-8") as file:
    file.writelines(json.dumps({"text": text}) + "\n" for text in texts)

tokenizer = ByteLevelBPETokenizer()
tokenizer.train_from_iterator(texts, vocab_size=1024, special_tokens=["<|endoftext|>"])
tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
(folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(settings))
