"""Bundles of the user's code."""

import gzip
import io
import tarfile


def archive(*members: tarfile.TarInfo | tuple[str, str | bytes]) -> bytes:
    """Return a tar.gz of files (name and content) and of other members: the same bytes for the same members."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                name, data = member
                content = data.encode() if isinstance(data, str) else data
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def bundle_of(text: str) -> bytes:
    """Return a bundle of one file."""
    return archive(("train.py", text))
