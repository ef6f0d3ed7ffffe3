"""Text as rows of tokens for a language model.

The documents of a set, mixed and each with a token for its end, make one long stream. Row r is the `sequence + 1`
tokens from position r x sequence on: its last token is the first of the next row, as the one predicts it and the other
reads it. The last rows are for the test. So any row can be made from its number alone, and no token is left out but at
the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from workloads.data.documents import Records, open_documents
from workloads.data.parquet import Column, is_parquet
from workloads.data.places import data_place, short_hash
from workloads.data.rows import Dataset, Rows
from workloads.data.streams import ColumnStream, FileStream, RecordStream, Stream
from workloads.data.tokenizer import Bytes, Tokenizer, choose
from workloads.frame.config import ConfigError

#: One of so many rows is for the test.
_TESTED_PART = 20
_READERS = 2


@dataclass(frozen=True)
class Text:
    """A set of documents as tokens."""

    place: str  #: what it was opened by
    stream: Stream
    tokenizer: Tokenizer | None  #: None: the data came as tokens
    vocabulary: int  #: tokens are 0 to this - 1
    #: Of the documents and the tokenizer, by their content: a checkpoint is bound to it.
    identity: str

    def __len__(self) -> int:
        """All its tokens."""
        return len(self.stream)

    def dataset(self, sequence: int, *, segments: bool = True, most_tested: int = 256) -> Dataset:
        """Rows of `tokens`, int32 [sequence + 1]. With `segments` also which document of the row each token is of,
        int32 [sequence + 1], counted from 1. A twentieth of the rows is for the test, at most `most_tested`.

        Raises ConfigError if the text is too short for a row of each kind.
        """
        count = (len(self) - 1) // sequence
        if count < 2:
            raise ConfigError(
                f"data={self.place} is too short for sequence={sequence}: it has {len(self)} tokens, and a row to "
                f"train on and one for the test need {2 * sequence + 1}"
            )
        tested = min(max(count // _TESTED_PART, 1), most_tested)
        train = TokenRows(self.stream, 0, count - tested, sequence, segments)
        test = TokenRows(self.stream, count - tested, tested, sequence, segments)
        return Dataset(train, test, self.vocabulary, _READERS)


@lru_cache(maxsize=4)
def open_text(data: str, tokenizer: str = "bytes", vocabulary: int = 0) -> Text:
    """The documents of `data` (see `open_documents`; empty: what the job file's `data:` brought, or the sources of
    Python's library) as tokens.

    `tokenizer` is `bytes`, `bpe` or the path of a `tokenizer.json` (see `tokenizer.choose`); or `none`: each record of
    a packed set is an array of tokens, or each row of Parquet files a list of them. `vocabulary` is how many tokens the
    model knows; 0: as many as there are.

    Tokens and a tokenizer that have to be made are made once and kept on this host, in TPUJOB_CACHE or the workdir.
    Raises ConfigError for data or a tokenizer that cannot be used, and for more tokens than the model knows.
    """
    data = data_place(data, "stdlib")
    if tokenizer == "none":
        return _tokens(data, vocabulary)
    documents = open_documents(data)
    chosen = choose(tokenizer, documents, vocabulary)
    if vocabulary and chosen.size > vocabulary:
        raise ConfigError(
            f"tokenizer={tokenizer} has {chosen.size} tokens, and the model knows {vocabulary}"
        )
    vocabulary = vocabulary or chosen.size
    if isinstance(documents, Records) and isinstance(chosen, Bytes):
        stream = RecordStream(documents, chosen, vocabulary)
    else:
        stream = FileStream(documents, chosen)
    identity = short_hash(documents.identity, chosen.identity)
    return Text(data, stream, chosen, vocabulary, identity)


def _tokens(data: str, vocabulary: int) -> Text:
    """Return data that came as tokens."""
    if not vocabulary:
        raise ConfigError("tokenizer=none: nothing says how many tokens there are; set vocab")
    if is_parquet(data):
        column = Column(data, tokens=True)
        stream, identity = ColumnStream(column, vocabulary), column.identity
    else:
        documents = open_documents(data)
        if not isinstance(documents, Records):
            raise ConfigError(
                f"tokenizer=none: data={data} is no packed set of arrays of tokens, nor Parquet files"
            )
        stream, identity = RecordStream(documents, None, vocabulary), documents.identity
    return Text(data, stream, None, vocabulary, short_hash(identity))


@dataclass(frozen=True)
class TokenRows:
    """Rows of a stream: `count` of them from number `first` on."""

    stream: Stream
    first: int
    count: int
    sequence: int
    segments: bool

    def __len__(self) -> int:
        return self.count

    def take(self, which: NDArray[np.integer]) -> Rows:
        starts = (self.first + which.astype(np.int64)) * self.sequence
        tokens, segments = self.stream.read(starts, self.sequence + 1)
        return {"tokens": tokens, "segments": segments} if self.segments else {"tokens": tokens}
