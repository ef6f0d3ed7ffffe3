"""Files on the web to a bucket and to a folder: as good as their servers let them be."""

import base64
import hashlib
import random
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.contract.data.proxy import between
from tests.contract.data.rig import Rig, files_in, named, split_uploads
from tests.contract.data.web import WebServer, serving
from tests.support.local_server import LocalServer
from tests.support.waiting import LONG
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.adapters.web_files import WebFiles
from tpujob.data.locations import HEADER, Url, UrlList, web_files
from tpujob.data.sync.stream_copy import GONE
from tpujob.errors import BadRequest, NotFound, Refused, Transient

MIB = 1 << 20


@pytest.fixture
def web() -> Iterator[WebServer]:
    with serving(WebServer()) as server:
        yield server


def list_of(rig: Rig, url: str, files: dict[str, bytes]) -> str:
    """Return the path of a list of these files, with their sizes and MD5s."""
    lines = [HEADER]
    for name, data in files.items():
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        lines.append(f"{url}/{name}\t{len(data)}\t{md5}")
    path = rig.folder / "urls.tsv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def fetch(
    rig: Rig,
    source: str,
    target: object,
    objects: JsonObjects | None = None,
    patience: float = LONG,
) -> Any:
    """`source`: a URL, or the path of a list."""
    place = Url(source) if "://" in source else UrlList(source)
    reader = WebFiles(web_files(place), patience=patience)
    try:
        return rig.from_outside(place, target, reader, objects)
    finally:
        reader.close()


def test_a_file_goes_to_a_bucket_and_to_a_folder_once(rig: Rig, web: WebServer) -> None:
    web.files["a/corpus.tar"] = random.Random(1).randbytes(100_000)
    for target in (rig.place, rig.folder / "back"):
        done = fetch(rig, f"{web.url}/a/corpus.tar", target)
        assert (done.copied, done.copied_bytes, done.unverified) == (1, 100_000, 1)
        fetched = web.fetched()
        again = fetch(rig, f"{web.url}/a/corpus.tar", target)
        assert (again.copied, again.same, again.sent_bytes) == (0, 1, 0)
        assert web.fetched() == fetched, "the second run asks for no content"
    assert (
        rig.stored() == files_in(rig.folder / "back") == {"corpus.tar": web.files["a/corpus.tar"]}
    )


def test_a_file_that_changed_at_its_server_is_copied_again(rig: Rig, web: WebServer) -> None:
    for target in (rig.place, rig.folder / "back"):
        web.files["x"] = b"before"
        fetch(rig, f"{web.url}/x", target)
        web.files["x"] = b"after!"
        assert fetch(rig, f"{web.url}/x", target).copied == 1
    assert rig.stored() == files_in(rig.folder / "back") == {"x": b"after!"}


def test_a_list_with_sizes_and_md5s_needs_one_request_a_file(rig: Rig, web: WebServer) -> None:
    web.files = {f"d/{i:03d}": bytes([i]) * i for i in range(40)}
    path = list_of(rig, web.url, web.files)
    done = fetch(rig, path, rig.place)
    assert (done.copied, done.unverified, len(web.asked)) == (40, 0, 39), "an empty one needs none"
    assert rig.stored() == {f"127.0.0.1/{name}": data for name, data in web.files.items()}
    again = fetch(rig, path, rig.place)
    assert (again.copied, again.same, len(web.asked)) == (0, 40, 39), "and then none"


def test_missing_files_of_a_list_are_named_and_the_rest_arrives(rig: Rig, web: WebServer) -> None:
    web.files = {"good": b"good", "short": b"short", "secret": b"x"}
    web.statuses = {"secret": 403, "broken": 500}
    lines = [HEADER, *(f"{web.url}/{n}" for n in ("good", "missing", "secret", "broken"))]
    path = rig.folder / "urls.tsv"
    path.write_text("\n".join([*lines, f"{web.url}/short\t4"]))
    done = fetch(rig, str(path), rig.place, patience=5)  # all of it, for the broken one
    assert (done.copied, done.left_out) == (1, 4)
    assert set(named(done.problems)) == {
        f"127.0.0.1/{name}" for name in ("missing", "secret", "broken", "short")
    }
    assert "the list says 4 bytes, the server 5" in named(done.problems)["127.0.0.1/short"]
    assert rig.stored() == {"127.0.0.1/good": b"good"}


def test_of_a_list_that_is_not_looked_at_the_same_holds(rig: Rig, web: WebServer) -> None:
    web.files = {"good": b"good", "missing": b"x", "secret": b"x"}
    path = list_of(rig, web.url, web.files)
    del web.files["missing"]
    web.statuses = {"secret": 403}
    for target in (rig.place, rig.folder / "back"):
        problems = named(fetch(rig, path, target).problems)
        assert problems["127.0.0.1/missing"] == GONE
        assert "HTTP 403" in problems["127.0.0.1/secret"]
    assert rig.stored() == {"127.0.0.1/good": b"good"}


@pytest.mark.parametrize("poor", ["ranges", "heads", "etags", "times"])
def test_a_poor_server_serves_a_large_file_through_cuts(
    rig: Rig, web: WebServer, poor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_uploads(monkeypatch, MIB)
    setattr(web, poor, False)
    web.files["large"] = random.Random(3).randbytes(3 * MIB + 17)
    for target in (rig.place, rig.folder / "back"):
        web.cut_after, web.cuts = MIB + 5, 2
        assert fetch(rig, f"{web.url}/large", target).copied == 1
        assert web.cuts == 0
    assert rig.stored() == files_in(rig.folder / "back") == {"large": web.files["large"]}


def test_a_server_without_etag_and_time_begins_anew(
    rig: Rig, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_uploads(monkeypatch, 1000)
    web.etags = web.times = False
    web.files["x"] = b"x" * 5000
    web.cut_after, web.cuts = 3000, 1
    assert fetch(rig, f"{web.url}/x", rig.place).copied == 1
    assert [range_ for method, _, range_ in web.asked if method == "GET"] == ["", ""], "no range"
    assert rig.stored() == {"x": b"x" * 5000}


def test_a_file_that_is_replaced_in_mid_copy_is_named_and_comes_with_the_next_sync(
    rig: Rig, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_uploads(monkeypatch, MIB)
    web.at_cut = lambda: web.files.update(x=b"B" * (2 * MIB + 5))
    for target in (rig.place, rig.folder / "back"):
        web.files["x"] = b"A" * (2 * MIB + 5)
        web.cut_after, web.cuts = MIB + 100, 1
        done = fetch(rig, f"{web.url}/x", target)
        assert (done.copied, named(done.problems)) == (0, {"x": GONE})
        assert fetch(rig, f"{web.url}/x", target).copied == 1
    assert rig.stored() == files_in(rig.folder / "back") == {"x": b"B" * (2 * MIB + 5)}


def test_errors_of_a_single_file_say_what_to_do(rig: Rig, web: WebServer) -> None:
    with pytest.raises(NotFound, match="404"):
        fetch(rig, f"{web.url}/missing", rig.place)
    web.statuses["secret"] = 403
    with pytest.raises(Refused, match="403") as refused:
        fetch(rig, f"{web.url}/secret?token=hidden", rig.place)
    assert "hidden" not in str(refused.value), "the query of a signed URL is a secret"
    web.files["x"], web.lengths = b"x", False
    with pytest.raises(Refused, match="how large"):
        fetch(rig, f"{web.url}/x", rig.place)
    with pytest.raises(Transient, match="does not answer"):
        fetch(rig, "http://127.0.0.1:9/x", rig.place, patience=0.3)


def test_redirects_are_few_and_lead_to_no_place_without_tls(rig: Rig, web: WebServer) -> None:
    web.files["b"] = b"b"
    web.redirects = {
        "a": "/b",
        "round": "/round",
        "out": "http://example.com/b",
        "file": "file:///b",
    }
    assert fetch(rig, f"{web.url}/a", rig.place).copied == 1
    assert rig.stored() == {"a": b"b"}, "named as it was asked for"
    with pytest.raises(Refused, match="redirects more than"):
        fetch(rig, f"{web.url}/round", rig.place)
    with pytest.raises(Refused, match="has no TLS"):
        fetch(rig, f"{web.url}/out", rig.place)
    with pytest.raises(Refused, match="redirects to"):
        fetch(rig, f"{web.url}/file", rig.place)


def test_flips_and_cuts_on_the_way_are_caught_where_there_is_an_md5(
    rig: Rig, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_uploads(monkeypatch, 20_000)
    chance = random.Random(0)
    web.files = {f"{i:03d}": chance.randbytes(chance.randrange(4_000, 30_000)) for i in range(60)}
    expected = {f"127.0.0.1/{name}": data for name, data in web.files.items()}
    for target in (rig.place, rig.folder / "back"):
        with between(web.url, share=0.1, limit=15, seed=0) as proxy:
            path = list_of(rig, proxy.url, web.files)
            done = fetch(rig, path, target)
            assert proxy.flipped + proxy.cut >= 3, "the proxy did its work"
        assert (done.copied, done.left_out, done.conflicts, done.unverified) == (60, 0, 0, 0)
    assert rig.stored() == files_in(rig.folder / "back") == expected


@pytest.mark.parametrize("target", ["http://127.0.0.1:9/x", "s3://bucket/x"])
def test_nothing_is_written_outside_cloud_storage(rig: Rig, target: str) -> None:
    with pytest.raises(BadRequest, match="nothing is written to"):
        rig.sync(target=target)


def test_an_empty_file_is_verified(rig: Rig, web: WebServer) -> None:
    web.files["empty"] = b""
    web.heads = False
    for target in (rig.place, rig.folder / "back"):
        done = fetch(rig, f"{web.url}/empty", target)
        assert (done.copied, done.unverified) == (1, 0)
    assert rig.stored() == files_in(rig.folder / "back") == {"empty": b""}


def test_a_file_without_the_first_line_of_a_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "urls.tsv").write_text("https://h/x\n")
    with pytest.raises(BadRequest, match="its first line is not"):
        web_files(UrlList(str(tmp_path / "urls.tsv")))


class Endless(BaseHTTPRequestHandler):
    """Announces ten bytes and sends 64 MiB, unless the reader hangs up."""

    most = 64 * MIB
    sent = 0
    how = ""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(206 if self.how == "part" else 200)
        for name, value in {
            "chunks": {"Content-Length": "10", "Transfer-Encoding": "chunked"},
            "part": {"Content-Length": str(1 << 40), "Content-Range": "bytes 0-9/10"},
        }[self.how].items():
            self.send_header(name, value)
        self.end_headers()
        piece = bytes(MIB)
        if self.how == "chunks":
            piece = b"%x\r\n%b\r\n" % (MIB, piece)
        while Endless.sent < self.most:
            try:
                self.wfile.write(piece)
            except OSError:
                return
            Endless.sent += MIB


@pytest.mark.parametrize("how", ["chunks", "part"])
@pytest.mark.parametrize("small", [True, False])
def test_a_server_that_sends_without_end_is_stopped_at_the_size_that_it_announced(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, how: str, small: bool
) -> None:
    split_uploads(monkeypatch, 1000 if small else 1)
    monkeypatch.setattr(Endless, "how", how)
    monkeypatch.setattr(Endless, "sent", 0)
    with LocalServer(Endless) as server:
        for target in (rig.place, rig.folder / "back"):
            done = fetch(rig, f"{server.url}/x", target, patience=2)
            problem = named(done.problems)["x"]
            assert "more than the 10 bytes" in problem or "in chunks" in problem
    assert Endless.sent < Endless.most, "they were read to the end"
    assert rig.stored() == {}
    assert set(files_in(rig.folder / "back")) <= {".tpujob-parts/lock"}
