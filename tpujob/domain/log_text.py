"""Blocks of a log as text: each line has its host and its time in front (`api.LogBlock`). Pure."""

import re

#: in front of each line of a block, the host in group 1
FRONT = re.compile(r"^(\d+) (?:\d{1,11}\.\d{3} )?", re.MULTILINE)
_RAW = re.compile(FRONT.pattern.encode(), re.MULTILINE)


def raw(block: bytes) -> bytes:
    """As the program wrote it."""
    return _RAW.sub(b"", block)


def with_hosts(block: bytes) -> bytes:
    """As the program wrote it, each line behind its host: `0| step 1`."""
    return _RAW.sub(rb"\1| ", block)
