"""Object names of every kind, and lists of them compared with the plainest possible model."""

from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import storage
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.emulator.storage_rig import BUCKET
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.listing import Listing, successor
from tpujob.emulator.storage.model import Preconditions

HOSTILE = [
    "a", "a/b", "a/b/c", "a/", "a//", "/", "//", "/etc/passwd", "../../escape", "a/../../b", "./x", "x/.",
    "x/..", "...", "a@1", "a%2Fb", "a%", "%long/x", "a b", "a?b#c&d=e", "a\\b", "C:\\x", "~", "~root/x", "*",
    "größe/∞/日本語/🚀", "e\u0301", "é", "$(reboot)", "<script>", "'; DROP TABLE objects; --", "a\tb", "\x01", "\x7f",
    "-rf", ".", "x" * 1024, "y/" * 512, "z" * 300 + "/w", "ü" * 512, "/" * 1024, "con", "nul", ".lock", "index.db",
]  # fmt: skip


def test_hostile_names_are_names_like_any_other(client: storage.Client, tmp_path: Path) -> None:
    bucket = client.bucket(BUCKET)
    names = [name for name in HOSTILE if name != "."]
    for name in names:
        bucket.blob(name).upload_from_string(name.encode() + b"!")
    for name in names:
        assert bucket.blob(name).download_as_bytes() == name.encode() + b"!", ascii(name)
    listed = [blob.name for blob in client.list_blobs(BUCKET, page_size=7)]
    assert listed == sorted(names, key=str.encode)
    outside = [p for p in tmp_path.rglob("*") if tmp_path / "storage" not in (p, *p.parents)]
    assert outside == [], "nothing is written beside the storage's own folder"
    for name in names:
        bucket.blob(name).delete()
    assert list((tmp_path / "storage" / "objects").iterdir()) == []


@pytest.mark.parametrize("name", [".", "..", "x" * 1025, "ü" * 513, "a\nb", "a\rb"])
def test_object_names_that_the_cloud_refuses_are_refused(client: storage.Client, name: str) -> None:
    with pytest.raises(exceptions.BadRequest):
        client.bucket(BUCKET).blob(name).upload_from_string(b"x")


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1)
SHORT = st.text("ab/@.%", min_size=1, max_size=6)


@given(NAMES, st.text(max_size=3))
def test_the_successor_of_a_prefix_sorts_after_its_keys(prefix: str, suffix: str) -> None:
    end = successor(prefix)
    if end:
        assert (prefix + suffix).encode("utf-8", "surrogatepass") < end.encode()


@settings(max_examples=60)
@given(
    names=st.sets(SHORT, max_size=14),
    prefix=st.text("ab/", max_size=2),
    delimiter=st.sampled_from(["", "/", "b/", "ab"]),
    limit=st.integers(1, 4),
    start=st.text("ab/", max_size=3),
    end=st.text("ab/", max_size=3),
)
def test_pages_of_a_list_add_up_to_what_a_plain_model_says(
    tmp_path_factory: pytest.TempPathFactory,
    names: set[str],
    prefix: str,
    delimiter: str,
    limit: int,
    start: str,
    end: str,
) -> None:
    disk = ObjectStore(tmp_path_factory.mktemp("disk"))
    try:
        for name in names:
            incoming = disk.incoming()
            disk.commit("b", name, incoming, {}, Preconditions())
        items: list[str] = []
        prefixes: list[str] = []
        token = ""
        while True:
            page = disk.page("b", Listing(prefix, delimiter, start, end, token, limit))
            assert len(page.items) + len(page.prefixes) <= limit
            items += [stored.name for stored in page.items]
            prefixes += page.prefixes
            token = page.next
            if not token:
                break
        assert (items, prefixes) == model(names, prefix, delimiter, start, end)
    finally:
        disk.close()


def model(
    names: set[str], prefix: str, delimiter: str, start: str, end: str
) -> tuple[list[str], list[str]]:
    chosen = [
        n for n in sorted(names) if n.startswith(prefix) and n >= start and (not end or n < end)
    ]
    items: list[str] = []
    prefixes: list[str] = []
    for name in chosen:
        cut = name.find(delimiter, len(prefix)) if delimiter else -1
        if cut < 0:
            items.append(name)
        elif (common := name[: cut + len(delimiter)]) not in prefixes:
            prefixes.append(common)
    return items, prefixes
