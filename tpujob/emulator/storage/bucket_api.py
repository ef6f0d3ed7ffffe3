"""Buckets in the JSON API of Cloud Storage, with their IAM policies."""

import base64
from collections.abc import Mapping

from starlette.responses import Response

from tpujob.emulator.http_server import Request
from tpujob.emulator.storage.answers import answer, json_body
from tpujob.emulator.storage.disk import ObjectStore, timestamp
from tpujob.emulator.storage.model import (
    IAM,
    Json,
    Preconditions,
    StorageApiError,
    bucket_json,
    invalid,
    new_bucket,
    no_bucket,
    patched_bucket,
    precondition_failed,
)


class BucketApi:
    def __init__(self, disk: ObjectStore) -> None:
        self.disk = disk

    async def list_buckets(self, request: Request) -> Response:
        prefix = request.query_params.get("prefix", "")
        buckets = [b for b in self.disk.buckets() if b["name"].startswith(prefix)]
        items = [bucket_json(bucket, request.base) for bucket in buckets]
        return answer(request, {"kind": "storage#buckets", "items": items})

    async def insert_bucket(self, request: Request) -> Response:
        if not request.query_params.get("project"):
            raise StorageApiError(400, "required", "Required parameter: project")
        resource = new_bucket(await json_body(request), timestamp())
        if self.disk.bucket(resource["name"]):
            text = (
                "Your previous request to create the named bucket succeeded and you already own it."
            )
            raise StorageApiError(409, "conflict", text)
        self.disk.put_bucket(resource)
        return answer(request, bucket_json(resource, request.base))

    async def get_bucket(self, request: Request, bucket: str) -> Response:
        resource = known_bucket(self.disk, bucket, request.query_params)
        return answer(request, bucket_json(resource, request.base))

    async def patch_bucket(self, request: Request, bucket: str) -> Response:
        patch = await json_body(request)
        known = known_bucket(self.disk, bucket, request.query_params)
        resource = patched_bucket(known, patch, timestamp())
        self.disk.put_bucket(resource)
        return answer(request, bucket_json(resource, request.base))

    async def delete_bucket(self, request: Request, bucket: str) -> Response:
        known_bucket(self.disk, bucket, request.query_params)
        if not self.disk.delete_bucket(bucket):
            raise StorageApiError(409, "conflict", "The bucket you tried to delete is not empty.")
        return Response(status_code=204)

    async def layout(self, request: Request, bucket: str) -> Response:
        resource = known_bucket(self.disk, bucket)
        place = {k: resource[k] for k in ("location", "locationType")}
        namespace = {"hierarchicalNamespace": {"enabled": False}}
        layout = {"kind": "storage#storageLayout", "bucket": bucket, **place, **namespace}
        return answer(request, layout)

    async def list_folders(self, request: Request, bucket: str) -> Response:
        """Return an empty list: managed folders are not emulated. `gcloud storage rm -r` asks for them."""
        known_bucket(self.disk, bucket)
        return answer(request, {"kind": "storage#managedFolders"})

    async def get_policy(self, request: Request, bucket: str) -> Response:
        return answer(request, policy_json(known_bucket(self.disk, bucket)))

    async def set_policy(self, request: Request, bucket: str) -> Response:
        policy = await json_body(request)
        changed = with_policy(known_bucket(self.disk, bucket), policy)
        self.disk.put_bucket(changed)
        return answer(request, policy_json(changed))

    async def test_permissions(self, request: Request, bucket: str) -> Response:
        """Grant every permission that the client asks for."""
        known_bucket(self.disk, bucket)
        granted = request.query_params.getlist("permissions")
        return answer(
            request, {"kind": "storage#testIamPermissionsResponse", "permissions": granted}
        )


def known_bucket(disk: ObjectStore, name: str, query: Mapping[str, str] | None = None) -> Json:
    """Return the bucket's record. Raise 404; 412, where conditions of the query do not hold."""
    bucket = disk.bucket(name)
    if bucket is None:
        raise no_bucket()
    conditions = Preconditions.from_query(query or {})
    current = int(bucket["metageneration"])
    if conditions.metageneration not in (None, current):
        raise precondition_failed()
    return bucket


# IAM policies: stored in the bucket's record, and without effect, as the caller is the only user ------------------


def policy_json(bucket: Mapping[str, Json]) -> Json:
    """Return the resource `storage#policy`."""
    policy: dict[str, Json] = bucket.get(IAM) or {"changes": 0, "bindings": [], "version": 1}
    return {
        "kind": "storage#policy",
        "resourceId": f"projects/_/buckets/{bucket['name']}",
        "version": policy["version"],
        "etag": base64.b64encode(str(policy["changes"]).encode()).decode(),
        "bindings": policy["bindings"],
    }


def with_policy(bucket: Mapping[str, Json], policy: Mapping[str, Json]) -> dict[str, Json]:
    """Return the bucket's record with a new policy. Raise 412 when the client has read an older policy."""
    current = policy_json(bucket)
    if policy.get("etag") not in (None, "", current["etag"]):
        raise precondition_failed()
    bindings: list[dict[str, Json]] = policy.get("bindings") or []
    if not all(binding.get("role") and binding.get("members") for binding in bindings):
        raise invalid("Each binding has a role and members.")
    changes = int(base64.b64decode(current["etag"])) + 1
    version = policy.get("version") or 1
    return {**bucket, IAM: {"changes": changes, "bindings": bindings, "version": version}}
