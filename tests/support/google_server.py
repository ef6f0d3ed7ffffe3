"""A small HTTP server that answers as Google's REST APIs do, for one project that is set up well until a test says
otherwise. Each API is below the name of its host, as `TPUJOB_GOOGLE_ENDPOINT` has it.

The shapes are those of Google's reference pages and of answers that were seen in public; JSON leaves out what is 0,
false or empty, and so do these.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.local_server import LocalServer
from tests.support.waiting import LONG
from tpujob.config.context import Context
from tpujob.config.queue import ChipsSetting
from tpujob.doctor.policies import CHECKED

PROJECT = "my-lab-4711"
NUMBER = "471147114711"
ACCOUNT = f"tpujob-vm@{PROJECT}.iam.gserviceaccount.com"
REGION, ZONE = "us-central2", "us-central2-b"
BUCKET = "my-lab-us-central2"

MANAGER = "cloudresourcemanager.googleapis.com"
USAGE = "serviceusage.googleapis.com"
COMPUTE = "compute.googleapis.com"
STORAGE = "storage.googleapis.com"
MONITORING = "monitoring.googleapis.com"
QUOTAS = f"{USAGE}/v1beta1/projects/{PROJECT}/services/tpu.googleapis.com/consumerQuotaMetrics"
SERIES = f"{MONITORING}/v3/projects/{PROJECT}/timeSeries"
NETWORK = f"{COMPUTE}/compute/v1/projects/{PROJECT}/global/networks/default"
FIREWALLS = f"{COMPUTE}/compute/v1/projects/{PROJECT}/global/firewalls"
IN_REGION = f"{COMPUTE}/compute/v1/projects/{PROJECT}/regions/{REGION}"
BUCKET_PATH = f"{STORAGE}/storage/v1/b/{BUCKET}"
DATABASE = f"firestore.googleapis.com/v1/projects/{PROJECT}/databases/(default)"
SERVICES = f"{USAGE}/v1/projects/{PROJECT}/services:batchGet"
PROJECT_PATH = f"{MANAGER}/v3/projects/{PROJECT}"
POLICIES = f"orgpolicy.googleapis.com/v2/projects/{PROJECT}/policies"


@dataclass
class Asked:
    verb: str
    path: str  #: with the host's name in front
    params: dict[str, list[str]]
    body: Any
    headers: dict[str, str]


@dataclass
class Error:
    status: int
    body: Any


Answer = Callable[[Asked], Any]


@dataclass
class GoogleServer(LocalServer):
    """A server whose `answers` are by path; other paths give 404."""

    #: a body, an Error, or an Answer
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: list[Asked] = field(default_factory=list[Asked])
    ahead_s: float = 0.0  #: how far the time in its answers is ahead
    silent: set[str] = field(default_factory=set[str])  #: paths that are never answered
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(_handler(self))

    def close(self) -> None:
        self.released.set()
        super().close()

    def paths(self) -> list[str]:
        return [request.path for request in self.asked]

    def answer(self, request: Asked) -> Any:
        missing = status(404, "NOT_FOUND", f"Resource {request.path} was not found.")
        answer = self.answers.get(request.path, missing)
        return answer(request) if callable(answer) else answer


def healthy() -> GoogleServer:
    """Return the server of a correctly set-up project, with 32 chips of v4 and 64 of v6e."""
    link = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/networks/default"
    server = GoogleServer()
    server.answers = {
        PROJECT_PATH: {
            "name": f"projects/{NUMBER}",
            "projectId": PROJECT,
            "state": "ACTIVE",
            "displayName": "My lab",
        },
        f"{PROJECT_PATH}:testIamPermissions": grant_known,
        f"iam.googleapis.com/v1/projects/-/serviceAccounts/{ACCOUNT}:testIamPermissions": grant_all,
        SERVICES: enabled(),
        QUOTAS: quotas(),
        **{f"{POLICIES}/{name}:getEffectivePolicy": policy(name) for name in CHECKED},
        NETWORK: {"name": "default", "autoCreateSubnetworks": True, "selfLink": link},
        FIREWALLS: {
            "items": [
                rule("default-allow-internal", sources=["10.128.0.0/9"], ports=["0-65535"]),
                rule("default-allow-ssh", sources=["0.0.0.0/0"]),
            ]
        },
        IN_REGION: {
            "name": REGION,
            "quotas": [
                {"metric": "CPUS", "limit": 72.0, "usage": 4.0},
                {"metric": "IN_USE_ADDRESSES", "limit": 16.0, "usage": 3.0},
            ],
        },
        f"{IN_REGION}/subnetworks": {
            "items": [
                {
                    "name": "default",
                    "network": link,
                    "ipCidrRange": "10.128.0.0/20",
                    "privateIpGoogleAccess": True,
                }
            ]
        },
        f"{IN_REGION}/routers": {
            "items": [{"name": "out", "network": link, "nats": [{"name": "out"}]}]
        },
        BUCKET_PATH: {
            "name": BUCKET,
            "location": "US-CENTRAL2",
            "locationType": "region",
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            "softDeletePolicy": {"retentionDurationSeconds": "0"},
        },
        f"{BUCKET_PATH}/iam/testPermissions": grant_all,
        DATABASE: {
            "name": f"projects/{PROJECT}/databases/(default)",
            "type": "FIRESTORE_NATIVE",
            "locationId": "nam5",
        },
    }
    return server


# Answers -------------------------------------------------------------------------------------------------------------


def grant_all(request: Asked) -> dict[str, Any]:
    """Grant all permissions in question."""
    body = request.body or {}
    return {"permissions": body.get("permissions") or request.params.get("permissions", [])}


def grant_known(request: Asked) -> Any:
    """Grant all permissions in question, unless one is of queued resources, which have none."""
    for name in (request.body or {}).get("permissions", []):
        if name.startswith("tpu.queuedResources."):
            return status(
                400, "INVALID_ARGUMENT", f"Permission {name} is not valid for this resource."
            )
    return grant_all(request)


def enabled(*but: str) -> Answer:
    """Return an answer by which all APIs but these are enabled."""

    def answer(request: Asked) -> dict[str, Any]:
        names = [name.rpartition("/")[2] for name in request.params["names"]]
        return {
            "services": [
                {
                    "name": f"projects/{NUMBER}/services/{name}",
                    "config": {"name": name},
                    "state": "DISABLED" if name.partition(".")[0] in but else "ENABLED",
                }
                for name in names
            ]
        }

    return answer


def paged(field: str, items: list[Any], size: int = 1) -> Answer:
    """Return an answer with the items in pages of that size."""

    def answer(request: Asked) -> dict[str, Any]:
        start = int(request.params.get("pageToken", ["0"])[0])
        page: dict[str, Any] = {field: items[start : start + size]}
        if start + size < len(items):
            page["nextPageToken"] = str(start + size)
        return page

    return answer


def quotas() -> Answer:
    return paged(
        "metrics",
        [
            metric("tpu-v4s-preemptible", "TPU v4 preemptible TensorCores", {ZONE: 64}),
            metric("tpu-v6e-preemptible", "TPU v6e preemptible chips", {ZONE: 64}, region=16),
            metric("tpu-v6e", "TPU v6e chips", {}),
            {
                "metric": "tpu.googleapis.com/qps/create",
                "displayName": "Create requests",
                "consumerQuotaLimits": [
                    {"unit": "1/min/{project}", "quotaBuckets": [{"effectiveLimit": "91"}]}
                ],
            },
            {
                "metric": "tpu.googleapis.com/requests",
                "displayName": "Requests",
                "consumerQuotaLimits": [
                    {"unit": "1/min/{project}", "quotaBuckets": [{"effectiveLimit": "600"}]}
                ],
            },
        ],
        size=3,
    )


def metric(name: str, display: str, zones: dict[str, int], *, region: int = -1) -> dict[str, Any]:
    """Return a quota with these limits of zones, 0 in all others; `region`: the limit of each region, -1: none."""
    return {
        "name": f"projects/{NUMBER}/services/tpu.googleapis.com/consumerQuotaMetrics/x",
        "metric": f"tpu.googleapis.com/{name}",
        "displayName": display,
        "unit": "1",
        "consumerQuotaLimits": [
            {
                "metric": f"tpu.googleapis.com/{name}",
                "unit": "1/{project}/{zone}",
                "isPrecise": True,
                "quotaBuckets": [
                    bucket(0),
                    *(bucket(limit, zone=zone) for zone, limit in zones.items()),
                ],
            },
            {
                "metric": f"tpu.googleapis.com/{name}",
                "unit": "1/{project}/{region}",
                "quotaBuckets": [bucket(region)],
            },
        ],
    }


def policy(name: str, **rule: Any) -> dict[str, Any]:
    """Return a policy of the organization as it is in force; without a rule, with the default of its constraint."""
    is_list = name in ("compute.vmExternalIpAccess", "gcp.resourceLocations") or "iam." in name
    rules = [rule or ({"allowAll": True} if is_list else {"enforce": False})]
    return {"name": f"projects/{NUMBER}/policies/{name}", "spec": {"rules": rules}}


def bucket(limit: int, **dimensions: str) -> dict[str, Any]:
    limits: dict[str, Any] = {"effectiveLimit": str(limit)} if limit else {}
    return limits | ({"dimensions": dimensions} if dimensions else {})


def series(metric: str, location: str, amount: int) -> dict[str, Any]:
    """Return a time series of Cloud Monitoring, the newest point first."""
    points = [{"value": {"int64Value": str(n)}} for n in (amount, amount + 4)]
    return {
        "metric": {
            "type": "serviceruntime.googleapis.com/quota/allocation/usage",
            "labels": {"quota_metric": metric},
        },
        "resource": {
            "type": "consumer_quota",
            "labels": {"service": "tpu.googleapis.com", "location": location},
        },
        "metricKind": "GAUGE",
        "valueType": "INT64",
        "points": points,
    }


def rule(
    name: str, *, sources: list[str], ports: list[str] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a firewall rule that lets TCP in."""
    return {
        "name": name,
        "network": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/networks/default",
        "direction": "INGRESS",
        "priority": 65534,
        "sourceRanges": sources,
        "allowed": [{"IPProtocol": "icmp"}, {"IPProtocol": "tcp", "ports": ports or ["22"]}],
        **fields,
    }


# Errors --------------------------------------------------------------------------------------------------------------


def status(code: int, name: str, message: str, **info: Any) -> Error:
    """Return a `google.rpc.Status` in JSON; `info`: an ErrorInfo."""
    error: dict[str, Any] = {"code": code, "message": message, "status": name}
    if info:
        details = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "googleapis.com"}
        error["details"] = [details | info]
    return Error(code, {"error": error})


def disabled(service: str) -> Error:
    url = f"https://console.developers.google.com/apis/api/{service}/overview?project={NUMBER}"
    return status(
        403,
        "PERMISSION_DENIED",
        f"{service} has not been used in project {NUMBER} before or it is disabled. "
        f"Enable it by visiting {url} then retry.",
        reason="SERVICE_DISABLED",
        metadata={"service": service, "consumer": f"projects/{NUMBER}", "activationUrl": url},
    )


DENIED = status(
    403, "PERMISSION_DENIED", "The caller does not have permission", reason="IAM_PERMISSION_DENIED"
)
EXPIRED = status(
    401,
    "UNAUTHENTICATED",
    "Request had invalid authentication credentials. Expected OAuth 2 access token.",
    reason="ACCESS_TOKEN_EXPIRED",
)
UNAVAILABLE = status(503, "UNAVAILABLE", "The service is currently unavailable.")
TOO_MANY = status(429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Read requests'.")
NOT_JSON = Error(502, "<html>Bad Gateway</html>")
OLD_DENIED = Error(
    403,
    {
        "error": {
            "code": 403,
            "message": "ada@example.org does not have storage.buckets.get access.",
            "errors": [{"domain": "global", "reason": "forbidden"}],
        }
    },
)


def _handler(google: GoogleServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        do_DELETE = do_GET  # noqa: N815, the name that http.server calls

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
            is_json = "json" in self.headers.get("Content-Type", "")
            self._answer(json.loads(raw) if is_json else raw)

        do_PUT = do_PATCH = do_POST  # noqa: N815

        def _answer(self, body: Any) -> None:
            parts = urlsplit(self.path)
            path = unquote(parts.path).lstrip("/")
            request_ = Asked(self.command, path, parse_qs(parts.query), body, dict(self.headers))
            google.asked.append(request_)
            if path in google.silent:
                google.released.wait(LONG)
                return
            answer = google.answer(request_)
            code, body_ = (
                (answer.status, answer.body) if isinstance(answer, Error) else (200, answer)
            )
            raw = (body_ if isinstance(body_, str) else json.dumps(body_)).encode()
            self.send_response_only(code)
            self.send_header("Date", formatdate(time.time() + google.ahead_s, usegmt=True))
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    return Handler


WANTS = Context.model_construct(
    name="lab",
    project=PROJECT,
    zones=(ZONE,),
    buckets={REGION: f"gs://{BUCKET}"},
    service_account=ACCOUNT,
    ssh="external",
    store="firestore",
    grants=(ChipsSetting(type="v4", zone=ZONE, pricing="spot", chips=32),),
)


def changed(context: Context, **fields: Any) -> Context:
    return context.model_copy(update=fields)
