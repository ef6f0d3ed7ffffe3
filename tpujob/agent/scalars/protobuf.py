"""Splits messages of Protocol Buffers into their fields, without their schemas."""

from __future__ import annotations

import struct
from typing import Iterator, Tuple, Union

_SIZES = {1: 8, 5: 4}  #: bytes of a value, by wire type

Field = Tuple[int, Union[int, bytes]]


def fields(message: bytes) -> Iterator[Field]:
    """Yield number and value of each field: a varint as a signed int, all else as bytes. Raises ValueError for bytes
    that are no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size, at = _varint(message, at) if kind == 2 else (_SIZES.get(kind, -1), at)
        if size < 0 or at + size > len(message):
            raise ValueError("no message of Protocol Buffers")
        yield key >> 3, message[at : at + size]
        at += size


def parts(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the values of the fields of that number that are bytes."""
    return (value for n, value in fields(message) if n == number and isinstance(value, bytes))


def varints(packed: bytes) -> Iterator[int]:
    """Yield the numbers of a packed field of varints."""
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def unpack(form: str, value: Union[int, bytes]) -> float:
    """Return the number that `struct` reads from a value. Raises ValueError if it has another size."""
    try:
        (number,) = struct.unpack(form, value if isinstance(value, bytes) else b"")
    except struct.error as error:
        raise ValueError(str(error)) from None
    return float(number)


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    """Return the number that begins there, signed, and where the next value begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            value &= (1 << 64) - 1
            return value - (1 << 64) if value >> 63 else value, at
    raise ValueError("no number of Protocol Buffers")
