"""Reads the scalars of an event file of TensorBoard, while it grows: TFRecords of `Event` messages.

Sources in tensorflow/core: lib/io/record_writer.h, util/event.proto, framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, Optional, Union

from tpujob.agent.scalars.protobuf import fields, parts, unpack, varints
from tpujob.agent.scalars.tail import MAX_RECORD, Scalars, Tail, Unusable

HEAD, FOOT = 12, 4  #: bytes before and after the data of a record

# fields of the messages
WALL_TIME, STEP, SUMMARY = 1, 2, 5  # Event
VALUE = 1  # Summary
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8  # Summary.Value
DTYPE, SHAPE, CONTENT = 1, 2, 4  # TensorProto
SIZES, SIZE = 2, 1  # TensorShapeProto, its Dim
FLOATS, DOUBLES, INTS, LONGS = 5, 6, 7, 10  # TensorProto
#: the form of `tensor_content`, by dtype: float, double, int32, int64, half
FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}


class EventFile(Tail):
    """An event file."""

    def _parse(self, data: bytes) -> Iterator[Scalars]:
        at = 0
        while len(data) - at >= HEAD:
            size, check = struct.unpack_from("<QI", data, at)
            if _masked_crc(data[at : at + 8]) != check:
                raise Unusable("a record's length does not have its checksum")
            end = at + HEAD + size + FOOT
            if size > MAX_RECORD:  # an image, an audio clip or a graph
                self.parsed(end)
                return
            if end > len(data):
                return
            scalars = _scalars(data[at + HEAD : end - FOOT])
            if scalars:
                yield scalars
            at = end
            self.parsed(at)


def _scalars(event: bytes) -> Optional[Scalars]:
    """Return the scalars of an event; None: it has none. Raises ValueError for what is no event."""
    at, step = 0.0, 0
    values: Dict[str, float] = {}
    for number, value in fields(event):
        if number == WALL_TIME:
            at = unpack("<d", value)
        elif number == STEP and isinstance(value, int):
            step = value
        elif number == SUMMARY and isinstance(value, bytes):
            for part in parts(value, VALUE):
                _read_value(part, values)
    return Scalars(step, at, values) if values else None


def _read_value(summary_value: bytes, into: Dict[str, float]) -> None:
    tag, scalar = "", None
    for number, value in fields(summary_value):
        if number == TAG and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == SIMPLE_VALUE:
            scalar = unpack("<f", value)
        elif number == TENSOR and isinstance(value, bytes):
            scalar = _scalar(value)
    if tag and scalar is not None:
        into[tag] = scalar


def _scalar(tensor: bytes) -> Optional[float]:
    """Return the number of a tensor without dimensions; None: another tensor."""
    dtype: Union[int, bytes] = 0
    content = b""
    numbers: List[float] = []
    for number, value in fields(tensor):
        if number == DTYPE:
            dtype = value
        elif (
            number == SHAPE and isinstance(value, bytes) and any(True for _ in parts(value, SIZES))
        ):
            return None
        elif number == CONTENT and isinstance(value, bytes):
            content = value
        elif number in (FLOATS, DOUBLES) and isinstance(value, bytes):
            form = "<f" if number == FLOATS else "<d"
            numbers = [unpack(form, value)]
        elif number in (INTS, LONGS):
            numbers = [float(n) for n in (varints(value) if isinstance(value, bytes) else [value])]
    form = FORMS.get(dtype) if isinstance(dtype, int) else None
    if form is None:
        return None
    return unpack(form, content) if content else numbers[0] if numbers else 0.0


def _crc_table() -> List[int]:
    """CRC-32C (Castagnoli), which zlib does not have."""
    table: List[int] = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
