"""Lists of URLs, and what headers tell of a file: the pure parts of sources outside Cloud Storage."""

import base64
import hashlib
from pathlib import Path

import pytest

from tpujob.data.checksums import (
    etag_of,
    extend,
    hash_of_s3,
    hash_of_web,
    hasher,
    identity_of,
    validator_of,
)
from tpujob.data.locations import (
    HEADER,
    Folder,
    Url,
    UrlList,
    detect_url_list,
    parse_list,
    web_files,
)
from tpujob.errors import BadRequest

MD5 = base64.b64encode(hashlib.md5(b"x").digest()).decode()
TIME = "Sun, 06 Nov 1994 08:49:37 GMT"


def test_a_list_is_sorted_and_names_files_after_host_and_path() -> None:
    text = f"{HEADER}\r\nhttps://h.org:8443/b%20c?key=1\nhttps://h.org/a/x\t3\t{MD5}\n\n"
    first, second = parse_list(text, "urls.tsv")
    assert (first.key, first.size) == ("h.org/a/x", 3)
    assert first.md5 is not None
    assert first.md5.value == hashlib.md5(b"x").digest()
    assert (second.key, second.url) == ("h.org/b%20c", "https://h.org:8443/b%20c?key=1")
    assert (second.size, second.md5) == (None, None)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("https://h/a\nhttps://h/a?x=2", "lines 2 and 3: both would be named h/a"),
        ("https://h/a\tmany", "line 2: 'many' is not a number"),
        ("https://h/a\t-3", "line 2: '-3' is not a number"),
        ("https://h/a\t3\tnot-base64", "is not the base64 of an MD5"),
        (f"https://h/a\t3\t{MD5}\tmore", "more than three fields"),
        ("\nhttp://h/a", "line 3: 'http://h/a' has no TLS"),
        ("https://h/", "names no file"),
        ("", "lists no URL"),
    ],
)
def test_a_mistake_in_a_list_is_named_with_its_line(lines: str, says: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_list(f"{HEADER}\n{lines}", "urls.tsv")
    assert says in str(raised.value)
    assert "urls.tsv" in str(raised.value)


def test_a_file_that_begins_as_a_list_is_one(tmp_path: Path) -> None:
    path = tmp_path / "urls.tsv"
    path.write_text(f"{HEADER}\r\nhttps://h/a\n")
    assert detect_url_list(Folder(str(path))) == UrlList(str(path))
    assert [file.key for file in web_files(UrlList(str(path)))] == ["h/a"]
    path.write_text("something else")
    assert detect_url_list(Folder(str(path))) == Folder(str(path))
    assert detect_url_list(Folder(str(tmp_path))) == Folder(str(tmp_path))
    assert [file.key for file in web_files(Url("https://h/a/b.tar?x=/y"))] == ["b.tar"]


def test_an_identity_has_what_a_server_gives_and_its_validator() -> None:
    assert identity_of("", "", 3) == "", "nothing there tells whether the file has changed"
    both = identity_of('"a b"', TIME, 3)
    assert (etag_of(both), validator_of(both)) == ('"a b"', '"a b"')
    weak = identity_of('W/"a"', TIME, 3)
    assert (etag_of(weak), validator_of(weak)) == ('W/"a"', TIME)
    assert validator_of(identity_of('W/"a"', "", 3)) == ""
    assert identity_of('"a"', "", 3) != identity_of('"a"', "", 4)


def test_an_etag_of_parts_and_one_of_an_encrypted_object_are_no_hashes() -> None:
    etag = hashlib.md5(b"x").hexdigest()
    s3_hash = hash_of_s3({"ETag": f'"{etag}"'})
    assert s3_hash is not None
    assert (s3_hash.kind, s3_hash.value.hex(), s3_hash.certain) == ("md5", etag, False)
    assert hash_of_s3({"ETag": f'"{etag}"', "ServerSideEncryption": "AES256"}) == s3_hash
    assert hash_of_s3({"ETag": f'"{etag}-3"'}) is None
    assert hash_of_s3({"ETag": f'"{etag}"', "ServerSideEncryption": "aws:kms"}) is None
    assert hash_of_s3({"ETag": f'"{etag}"', "SSECustomerAlgorithm": "AES256"}) is None


def test_a_checksum_of_the_whole_is_taken_and_one_of_parts_is_not() -> None:
    value = base64.b64encode(b"\0\1\2\3").decode()
    s3_hash = hash_of_s3({"ChecksumCRC32C": value, "ChecksumType": "FULL_OBJECT", "ETag": '"x-2"'})
    assert s3_hash is not None
    assert (s3_hash.kind, s3_hash.value, s3_hash.certain) == ("crc32c", b"\0\1\2\3", True)
    assert hash_of_s3({"ChecksumCRC32C": value, "ChecksumType": "COMPOSITE"}) is None
    assert hash_of_s3({"ChecksumSHA256": base64.b64encode(b"x" * 32).decode() + "-2"}) is None


def test_a_hash_is_read_from_the_headers_of_the_web() -> None:
    crc32c = base64.b64encode(b"\0\1\2\3").decode()
    sha256 = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    for headers, kind in (
        ({"x-goog-hash": f"crc32c={crc32c}, md5={MD5}"}, "crc32c"),
        ({"x-goog-hash": f"md5={MD5}"}, "md5"),
        ({"repr-digest": f"sha-256=:{sha256}:"}, "sha256"),
        ({"digest": f"SHA-256={sha256}"}, "sha256"),
        ({"content-md5": MD5}, "md5"),
    ):
        source_hash = hash_of_web(headers)
        assert source_hash is not None, headers
        assert source_hash.kind == kind
        if kind != "crc32c":
            made = hasher(source_hash.kind)
            made.update(b"x")
            assert made.digest() == source_hash.value
    assert hash_of_web({}) is None
    packed = {"x-goog-hash": f"md5={MD5}", "x-goog-stored-content-encoding": "gzip"}
    assert hash_of_web(packed) is None, "it is of the packed bytes"


def test_the_hashes_have_their_published_check_values() -> None:
    crc32c, crc32, md5 = 0, hasher("crc32"), hasher("md5")
    for part in (b"1234", b"", b"56789"):
        crc32c = extend(crc32c, part)
        crc32.update(part)
        md5.update(part)
    assert f"{crc32c:08x}" == "e3069283"
    assert crc32.digest().hex() == "cbf43926"
    assert md5.digest().hex() == "25f9e794323b453885f5181f1b624d0b"
