"""Reads objects of S3 with boto3. Implements `data.objects.SourceReader`.

boto3's own retries and checksums are off, because ours continue after the last byte that arrived. boto3 comes with the
extra `s3` and is imported at the first call.
"""

# boto3 has no types.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tpujob.adapters.calling import first_line, repeated
from tpujob.data.checksums import etag_of, hash_of_s3, identity_of, whole_seconds
from tpujob.data.objects import MustRestart, NotCopied, ObjectContent, ObjectFacts
from tpujob.domain.model import Cause
from tpujob.errors import BadRequest, NotFound, Refused, TpujobError, Transient
from tpujob.lib.tries import Backoff, Deadline
from tpujob.protocol.left_out import LeftOut

T = TypeVar("T")

_RETRY_TIMEOUT = 120.0  #: seconds for which a list request is retried
_TIMEOUT = 60.0  #: seconds without a byte
_BACKOFF = Backoff(first=0.2, longest=16.0)
_CONNECTIONS = 32
_CHUNK = 1 << 20
#: storage classes whose objects must be restored before they can be read (documented)
_ARCHIVED = ("GLACIER", "DEEP_ARCHIVE")


class S3Objects:
    """Implements `data.objects.SourceReader`. Thread-safe."""

    def __init__(self, patience: float = _RETRY_TIMEOUT) -> None:
        """Connect with the endpoint, region and credentials that boto3 finds on this machine. Without credentials
        requests are not signed: public buckets need none. Raises BadRequest when boto3 is not installed."""
        try:
            import boto3.session
        except ImportError as error:
            raise BadRequest(
                "s3:// needs boto3, which is not installed",
                hint="python3 -m pip install 'boto3>=1.36'",
            ) from error
        self._patience = patience
        with translated("read the settings of AWS"):
            self._session = boto3.session.Session()
            self._signs = self._session.get_credentials() is not None
        self._client = self._make_client(signs=self._signs)

    def close(self) -> None:
        """Close the connections. Safe to repeat."""
        self._client.close()

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[ObjectFacts | LeftOut]]:
        query = {"Bucket": bucket, "Prefix": prefix}
        operation = f"list s3://{bucket}/{prefix}"
        try:
            page = self._retry(operation, lambda: self._client.list_objects_v2(**query))
        except Refused as error:
            if not self._signs or error.cause != Cause.PERMISSION:
                raise
            page = self._list_unsigned(operation, query, error)
        while True:
            yield [_parse_item(item, prefix) for item in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return
            query["ContinuationToken"] = page["NextContinuationToken"]
            page = self._retry(operation, lambda: self._client.list_objects_v2(**query))

    @contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:
        query: dict[str, Any] = {"Bucket": bucket, "Key": facts.name, "ChecksumMode": "ENABLED"}
        if etag := etag_of(facts.identity):
            query["IfMatch"] = etag
        if start:
            query["Range"] = f"bytes={start}-"
        operation = f"read s3://{bucket}/{facts.name}"
        try:
            with translated(operation):
                answer = self._client.get_object(**query)
        except Refused as error:  # each object may have its own rights and its own key
            raise NotCopied(error.message) from error
        try:
            _check_same(facts, start, answer)
            chunks = _chunks(answer["Body"], operation)
            yield ObjectContent(chunks, None if start else hash_of_s3(answer))
        finally:
            answer["Body"].close()

    def _make_client(self, *, signs: bool) -> Any:
        from botocore import UNSIGNED
        from botocore.config import Config

        config = Config(
            connect_timeout=20,
            read_timeout=_TIMEOUT,
            max_pool_connections=_CONNECTIONS,
            retries={"total_max_attempts": 1},
            # servers other than Amazon's refuse the checksums that newer clients add by default
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **({} if signs else {"signature_version": UNSIGNED}),
        )
        region = self._session.region_name or "us-east-1"  # AWS names the bucket's region
        with translated("read the settings of AWS"):
            return self._session.client("s3", region_name=region, config=config)

    def _list_unsigned(self, operation: str, query: Mapping[str, str], refusal: Refused) -> Any:
        """List without credentials, as the bucket may be public. Raises `refusal`, the first error, if that fails."""
        client = self._make_client(signs=False)
        try:
            with translated(operation):
                page = client.list_objects_v2(**query)
        except TpujobError:
            client.close()
            raise refusal from None
        self._client.close()
        self._client, self._signs = client, False
        return page

    def _retry(self, operation: str, call: Callable[[], T]) -> T:
        def once(_left: float, _failures: int) -> T:
            with translated(operation, signed=self._signs):
                return call()

        return repeated(once, Deadline(self._patience), _BACKOFF)


def _chunks(body: Any, operation: str) -> Iterator[bytes]:
    with translated(operation):
        yield from body.iter_chunks(_CHUNK)


def _parse_item(item: Mapping[str, Any], prefix: str) -> ObjectFacts | LeftOut:
    if item.get("StorageClass") in _ARCHIVED:
        text = f"it is archived ({item['StorageClass']}): restore it first"
        return LeftOut(str(item["Key"])[len(prefix) :], text)
    size = int(item["Size"])
    return ObjectFacts(str(item["Key"]), size, None, 0, _identity(item, size))


def _identity(item: Mapping[str, Any], size: int) -> str:
    """Return the identity of an object, from an item of a list or from an answer with its content."""
    return identity_of(str(item.get("ETag") or ""), whole_seconds(item.get("LastModified")), size)


def _check_same(facts: ObjectFacts, start: int, answer: Mapping[str, Any]) -> None:
    """Raise NotFound or MustRestart unless the answer has the rest of exactly that object. Not every server heeds
    If-Match, or sends parts."""
    if start and answer["ResponseMetadata"]["HTTPStatusCode"] != 206:
        raise MustRestart
    if _identity(answer, int(answer["ContentLength"]) + start) != facts.identity:
        raise NotFound(f"{facts.name} was replaced")


# Errors --------------------------------------------------------------------------------------------------------------


_UNSIGNED = (
    "this machine has no credentials of AWS, and the bucket is not public: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)
_SIGNED = "the credentials of AWS need s3:ListBucket on the bucket and s3:GetObject on its objects"
#: error codes that mean wrong credentials, whatever the HTTP status
_CREDENTIALS = (
    "AccessDenied", "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "SignatureDoesNotMatch",
)  # fmt: skip
_BUSY = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling")


@contextmanager
def translated(operation: str, *, signed: bool = True) -> Generator[None]:
    """Translate the errors of boto3 and of the network to tpujob's. `signed`: the requests carry credentials."""
    import urllib3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _error_of_answer(error.response, operation, signed=signed) from error
    except (BotoCoreError, urllib3.exceptions.HTTPError) as error:
        raise _error_of_client(error, operation) from error


def _error_of_answer(response: Any, operation: str, *, signed: bool) -> TpujobError:
    """Return our error for a refusal of the server."""
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    code = str(response.get("Error", {}).get("Code", ""))
    message = first_line(response.get("Error", {}).get("Message") or code or f"HTTP {status}")
    text = f"cannot {operation}: {message}"
    if code in _BUSY or status in (408, 429) or status >= 500:
        return Transient(text)
    if code in _CREDENTIALS or status in (401, 403):
        return Refused(text, cause=Cause.PERMISSION, hint=_SIGNED if signed else _UNSIGNED)
    if status in (404, 412, 416):  # absent, or replaced
        return NotFound(text)
    if status // 100 == 3:
        text = f"cannot {operation}: it is in another region"
        hint = "set AWS_REGION to the region of the bucket, or AWS_ENDPOINT_URL to its server"
        return Refused(text, cause=Cause.BAD_SPEC, hint=hint)
    return Refused(text, cause=Cause.BAD_SPEC)


def _error_of_client(error: Exception, operation: str) -> TpujobError:
    """Return our error for one of boto3 itself or of the network."""
    from botocore import exceptions as boto

    text = f"cannot {operation}: {first_line(error)}"
    no_credentials = boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound
    not_refreshed = boto.CredentialRetrievalError, boto.TokenRetrievalError
    if isinstance(error, (*no_credentials, *not_refreshed)):
        return Refused(text, cause=Cause.PERMISSION, hint=_UNSIGNED)
    invalid = boto.ParamValidationError, boto.InvalidRegionError, boto.ConfigParseError
    if isinstance(error, invalid):
        return BadRequest(text)
    if isinstance(error, boto.EndpointConnectionError):
        return Transient(f"cannot {operation}: S3 does not answer")
    return Transient(text)
