"""The lines of the index that belong to one shard, read as they come: an index of millions fits into no list."""

import gzip
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from tpujob.data.pack.manifest import BadManifest, IndexEntry, Shard, entry

#: bytes of a line, at most: a key of 4,096 bytes, each escaped
_LONGEST = 32_768


def lines(path: Path, shard: Shard) -> Iterator[IndexEntry]:
    """As many as the shard has records. Raises BadManifest."""
    found = 0
    try:
        with open(path, "rb") as file:
            file.seek(shard.index_start)
            with gzip.GzipFile(fileobj=BytesIO(file.read(shard.index_bytes))) as member:
                while line := member.readline(_LONGEST):
                    found += 1
                    if found > shard.records:
                        break
                    yield entry(line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadManifest(f"the index is damaged at {shard.file.name}: {error}") from None
    if found != shard.records:
        raise BadManifest(f"the index has another number of files than {shard.file.name}")
