"""What boto3 raises becomes ours."""

# boto3 has no types.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tpujob.adapters.calling import first_line
from tpujob.domain.model import Cause
from tpujob.errors import BadRequest, NotFound, Refused, TpujobError, Transient

_UNSIGNED = (
    "this machine has no credentials of AWS, and the bucket is not public: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)
_SIGNED = "the credentials of AWS need s3:ListBucket on the bucket and s3:GetObject on its objects"
#: codes that say so whatever the HTTP status
_CREDENTIALS = (
    "AccessDenied", "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "SignatureDoesNotMatch",
)  # fmt: skip
_BUSY = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling")


@contextmanager
def translated(doing: str, *, signed: bool = True) -> Generator[None]:
    """Raises this project's errors in place of boto3's and the network's."""
    import urllib3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _of_answer(error.response, doing, signed=signed) from error
    except (BotoCoreError, urllib3.exceptions.HTTPError) as error:
        raise _of_client(error, doing) from error


def _of_answer(response: Any, doing: str, *, signed: bool) -> TpujobError:
    """The server has refused."""
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    code = str(response.get("Error", {}).get("Code", ""))
    said = first_line(response.get("Error", {}).get("Message") or code or f"HTTP {status}")
    text = f"cannot {doing}: {said}"
    if code in _BUSY or status in (408, 429) or status >= 500:
        return Transient(text)
    if code in _CREDENTIALS or status in (401, 403):
        return Refused(text, cause=Cause.PERMISSION, hint=_SIGNED if signed else _UNSIGNED)
    if status in (404, 412, 416):  # absent, or not what it was
        return NotFound(text)
    if status // 100 == 3:
        hint = "set AWS_REGION to the region of the bucket, or AWS_ENDPOINT_URL to its server"
        return Refused(f"cannot {doing}: it lies elsewhere", cause=Cause.BAD_SPEC, hint=hint)
    return Refused(text, cause=Cause.BAD_SPEC)


def _of_client(error: Exception, doing: str) -> TpujobError:
    from botocore import exceptions as boto

    text = f"cannot {doing}: {first_line(error)}"
    credentials = (
        boto.NoCredentialsError,
        boto.PartialCredentialsError,
        boto.CredentialRetrievalError,
    )
    if isinstance(error, (*credentials, boto.ProfileNotFound, boto.TokenRetrievalError)):
        return Refused(text, cause=Cause.PERMISSION, hint=_UNSIGNED)
    if isinstance(
        error, boto.ParamValidationError | boto.InvalidRegionError | boto.ConfigParseError
    ):
        return BadRequest(text)
    if isinstance(error, boto.EndpointConnectionError):
        return Transient(f"cannot {doing}: S3 does not answer")
    return Transient(text)
