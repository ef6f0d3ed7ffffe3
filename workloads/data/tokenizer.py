"""From text to tokens and back: bytes, or a byte-level BPE, trained here or read from a `tokenizer.json`.

A tokenizer is known by its content: runs that go on from a checkpoint need the very same one.
"""

# tokenizers is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.data.documents import Documents, in_groups, in_order, read_text
from workloads.data.places import own_folder, replacing, short_hash
from workloads.frame.config import ConfigError

#: What a BPE that is trained here calls the token after each document.
_END = "<|end|>"
#: What published tokenizers call it: Llama 3, GPT-2, Llama 2.
_KNOWN_ENDS = (_END, "<|end_of_text|>", "<|endoftext|>", "</s>")
#: Tokens of a BPE that is trained here, where the model does not say, and the text that it is trained on.
_TRAINED_SIZE = 4096
_SAMPLE = 64 << 20
#: So many characters of a text are encoded at a time, up to the end of a line: an encoding takes 100 bytes a token.
_PIECE = 1 << 18


class Tokenizer(Protocol):
    """Text as numbers below `size`."""

    size: int  #: tokens are 0 to size - 1
    end: int  #: the token after each document
    identity: str  #: of its content

    def encode(self, documents: Documents, numbers: Sequence[int]) -> list[NDArray[np.integer]]:
        """The tokens of these documents, without `end`. Raises ConfigError for what is no text."""
        ...

    def encode_text(self, text: str) -> list[int]:
        """The tokens of a text, without `end`."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of these tokens. What is no whole character is shown as U+FFFD, and `end` not at all."""
        ...


class Bytes:
    """The 256 bytes, and an end."""

    size = 257
    end = 256
    identity = "bytes"

    def encode(self, documents: Documents, numbers: Sequence[int]) -> list[NDArray[np.integer]]:
        return [np.frombuffer(document, np.uint8) for document in documents.read(numbers)]

    def encode_text(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


class Bpe:
    """A tokenizer of the library `tokenizers`, from the JSON that it writes."""

    def __init__(self, content: str, place: str) -> None:
        """Raises ConfigError for what is no tokenizer, or has no token for the end of a document."""
        import tokenizers

        try:
            self._inner: Any = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # the library raises nothing more special
            raise ConfigError(f"tokenizer={place}: no tokenizer.json ({error})") from error
        # such files may also say to what length texts are cut or filled up
        self._inner.no_truncation()
        self._inner.no_padding()
        ends = [self._inner.token_to_id(name) for name in _KNOWN_ENDS]
        self.end: int = next((end for end in ends if end is not None), -1)
        if self.end < 0:
            raise ConfigError(
                f"tokenizer={place}: no token for the end of a document, such as {' or '.join(_KNOWN_ENDS)}"
            )
        self.size: int = max(self._inner.get_vocab().values()) + 1
        self.identity = short_hash(content)

    def encode(self, documents: Documents, numbers: Sequence[int]) -> list[NDArray[np.integer]]:
        pieces = [_pieces(text) for text in read_text(documents, numbers)]
        encodings = self._inner.encode_batch_fast(
            [piece for document in pieces for piece in document], add_special_tokens=False
        )
        tokens = iter(np.array(encoding.ids, dtype=np.uint32) for encoding in encodings)
        return [np.concatenate([next(tokens) for _ in document]) for document in pieces]

    def encode_text(self, text: str) -> list[int]:
        return self._inner.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._inner.decode(list(tokens))


def choose(name: str, documents: Documents, size: int) -> Tokenizer:
    """`bytes`; `bpe`, which is the `tokenizer.json` beside the documents or, if there is none, one of `size` tokens (0:
    4,096) that is trained on them and kept; or the path of a `tokenizer.json`. Raises ConfigError."""
    if name == "bytes":
        return Bytes()
    if name == "bpe" and "://" in documents.place:
        raise ConfigError(
            f"tokenizer=bpe: data={documents.place} is in a bucket; name a tokenizer.json of this host"
            ", or use `stage: disk`"
        )
    beside = Path(documents.place) / "tokenizer.json"
    if name != "bpe" or beside.is_file():
        return _read(Path(name) if name != "bpe" else beside)
    size = size or _TRAINED_SIZE
    if size < Bytes.size:
        raise ConfigError(f"tokenizer=bpe: {size} tokens are fewer than the 257 of bytes alone")
    trained = own_folder() / f"bpe-{short_hash(documents.identity, str(size))}.json"
    if not trained.is_file():
        with replacing(trained) as file:
            file.write(train(_sample(documents), size).encode())
    return _read(trained)


def _read(path: Path) -> Bpe:
    try:
        return Bpe(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tokenizer={path}: cannot be read ({error})") from error


def _sample(documents: Documents) -> Iterator[str]:
    """The first documents of the stream, up to so much text as a tokenizer is trained on."""
    left = _SAMPLE
    for numbers in in_groups(documents, in_order(documents)):
        for text in read_text(documents, numbers):
            if left <= 0:
                return
            left -= len(text)
            yield text


def train(texts: Iterable[str], size: int) -> str:
    """A byte-level BPE of `size` tokens, or of fewer if the text has no more, as JSON. The same text makes the same
    one, in whatever order and on however many cores: 3 s for 12 MB on two of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner: Any = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return inner.to_str()


def _pieces(text: str) -> list[str]:
    """The text, in parts that end with a line where lines are not longer than a part."""
    return list(_cut(text)) or [""]


def _cut(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        stop = start + _PIECE
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or stop
        yield text[start:stop]
        start = stop
