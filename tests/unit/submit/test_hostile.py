"""Bundles that tpujob did not pack: each is refused in little memory, and by one kind of error."""

import contextlib
import gzip
import io
import random
import tarfile
import tracemalloc

import pytest

from tests.support.bundles import archive
from tpujob.protocol import bundle
from tpujob.protocol.bundle import BadBundle


def header(name: str = "a", size: int = 0, kind: bytes = b"0", raw: bytes = b"") -> bytes:
    """`raw`: the twelve bytes of its size, as no library would write them."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    block = bytearray(info.tobuf(format=tarfile.GNU_FORMAT)[:512])
    block[124:136] = raw or block[124:136]
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def packed(*parts: bytes) -> bytes:
    return gzip.compress(b"".join(parts), 1)


def read(data: bytes) -> int:
    """Read all members and return their number."""
    count = 0
    for member in bundle.members(io.BytesIO(data)):
        count += 1
        for _ in member.content:
            pass
    return count


END = bytes(1024)
LARGE = bytes(64 << 20)
HOSTILE = {
    "too large": packed(header(size=1 << 40), END),
    "long pax header": packed(header(size=len(LARGE), kind=b"x"), LARGE),
    "long name": packed(header(size=len(LARGE), kind=b"L"), LARGE),
    "leads back": packed(header(), header(raw=b"\xff" * 10 + b"\xfe\x00"), END),
    "headers of headers": packed(
        *[header(size=512, kind=b"x") + b"12 path=abc\n".ljust(512, b"\0")] * 3000, header(), END
    ),
    "sparse": packed(header(kind=b"S"), END),
    "cut": packed(header(size=9999), bytes(9999))[:-30],
    "short": packed(header(size=9999), bytes(99)),
    "empty": b"",
    "text": b"no archive",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused_in_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadBundle, match="bundle"):
            read(HOSTILE[name])
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def nested(*names: str) -> bytes:
    """A bundle of one empty file each."""
    return archive(*map(tarfile.TarInfo, names))


def test_paths_are_as_long_as_a_host_can_make_them() -> None:
    assert read(nested("d/" * 99 + "f", "x" * 255, "a/" + "\N{EURO SIGN}" * 85)) == 3
    for name in ("d/" * 100 + "f", "d/" * 2000 + "f", "x" * 256, "a/" + "\N{EURO SIGN}" * 86):
        with pytest.raises(BadBundle, match="a path of more than 100 parts, or 255 bytes in one"):
            read(nested(name))


def test_files_are_counted() -> None:
    three = packed(*[header()] * 3, END)
    assert len(list(bundle.members(io.BytesIO(three), files=3))) == 3
    with pytest.raises(BadBundle, match="too many files"):
        list(bundle.members(io.BytesIO(three), files=2))


def test_what_is_unpacked_is_counted_and_not_what_headers_say() -> None:
    file = header(size=1000).ljust(1536, b"1")
    assert list(bundle.members(io.BytesIO(packed(file * 10, END)), unpacked=17_000))
    with pytest.raises(BadBundle, match="too large"):
        list(bundle.members(io.BytesIO(packed(file * 10, END)), unpacked=14_000))


def test_an_error_of_where_it_comes_from_is_passed_on() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionError("the bucket hung up")

    with pytest.raises(ConnectionError, match="hung up"):
        list(bundle.members(Broken()))


def test_random_damage_raises_nothing_else() -> None:
    luck = random.Random(7)
    files = [header(f"f{n}", 100) + bytes(512) for n in range(20)]
    good = b"".join([header(size=512, kind=b"x"), b"12 path=abc\n".ljust(512, b"\0"), *files, END])
    assert read(packed(good)) == 20
    for _ in range(500):
        damaged = bytearray(good)
        for _ in range(luck.randint(1, 8)):
            damaged[luck.randrange(len(damaged))] = luck.randrange(256)
        with contextlib.suppress(BadBundle):
            read(packed(bytes(damaged)))
