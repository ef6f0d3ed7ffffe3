"""Reads all that `tpujob doctor` checks of a project on Google Cloud, in parallel. Changes nothing.

`doctor/` interprets the answers. A call that is refused or fails yields a `NotSeen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tpujob.adapters.calling import Missing
from tpujob.adapters.gcs import facts_of, split_path
from tpujob.adapters.google import identity as google_identity
from tpujob.adapters.google.rest import GoogleRest, object_in, objects, text
from tpujob.doctor.access import (
    ACT_AS,
    BUCKET_PERMISSIONS,
    Database,
    Identity,
    NoIdentity,
    Project,
    needed_permissions,
    needed_services,
)
from tpujob.doctor.cloud import ProjectSeen
from tpujob.doctor.findings import NotSeen
from tpujob.doctor.network import FirewallRule, Network, Subnetwork, last_part, network_name
from tpujob.doctor.policies import CHECKED, Policy
from tpujob.doctor.zones import Addresses
from tpujob.errors import TpujobError
from tpujob.ports import BucketFacts, Catalog, ProjectQuota

if TYPE_CHECKING:
    from tpujob.config.context import Context

T = TypeVar("T")

#: calls at a time
AT_ONCE = 12
ALL_PORTS = (0, 65535)

_MANAGER = "cloudresourcemanager.googleapis.com"
_USAGE = "serviceusage.googleapis.com"
_COMPUTE = "compute.googleapis.com"
_STORAGE = "storage.googleapis.com"


def look(
    context: Context, catalog: Catalog, quota: ProjectQuota, *, endpoint: str = ""
) -> ProjectSeen:
    """Read everything that the checks of a context need, in about the time of the slowest call. Never raises for errors
    of Google. `endpoint`: see GoogleRest."""
    credentials: Any = None
    identity: Identity | NoIdentity | NotSeen = Identity()
    if not endpoint:
        credentials, identity = google_identity.find()
    google = GoogleRest(context.project, credentials, endpoint=endpoint)
    try:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as pool:
            blind = isinstance(identity, NoIdentity)
            return _ProjectReader(context, google, catalog, quota, pool, blind).read(identity)
    finally:
        google.close()


@dataclass(frozen=True, slots=True)
class _ProjectReader:
    """Reads the parts of a `ProjectSeen`, each in a thread."""

    _context: Context
    _google: GoogleRest
    _catalog: Catalog
    _quota: ProjectQuota
    _pool: ThreadPoolExecutor
    _blind: bool  #: no call is made, for lack of credentials

    def read(self, identity: Identity | NoIdentity | NotSeen) -> ProjectSeen:
        context = self._context
        parts = {
            "project": self._start(_or_absent, self._project),
            "services": self._start(_or_unseen, self._services),
            "permissions": self._start(_or_unseen, self._permissions),
            "service_account": self._start(_or_absent, self._service_account),
            "limits": self._start(_or_unseen, self._quota.limits),
            "network": self._start(_or_absent, self._network),
            "rules": self._start(_or_unseen, self._rules),
            "database": self._start(_or_absent, self._database),
        }
        regions, buckets = context.every_region, context.buckets.values()
        parts_by_place = {
            "types": {z: self._start(_or_unseen, self._types, z) for z in context.every_zone},
            "addresses": {r: self._start(_or_unseen, self._addresses, r) for r in regions},
            "subnetworks": {r: self._start(_or_absent, self._subnetwork, r) for r in regions},
            "buckets": {url: self._start(_or_absent, self._bucket, url) for url in buckets},
            "policies": {name: self._start(_or_unseen, self._policy, name) for name in CHECKED},
            "objects": {url: self._start(_or_unseen, self._objects, url) for url in buckets},
        }
        results: dict[str, Any] = {name: part.result() for name, part in parts.items()}
        for name, places in parts_by_place.items():
            results[name] = {place: part.result() for place, part in places.items()}
        # the clock last: it is read from the answers
        return ProjectSeen(identity=identity, **results, ahead_s=self._clock_ahead())

    def _start(self, wrap: Callable[..., Any], read: Callable[..., Any], *args: Any) -> Future[Any]:
        """Start `read(*args)` in a thread; `wrap` turns its errors into results."""
        if self._blind:
            return self._pool.submit(NotSeen, "there are no credentials")
        return self._pool.submit(wrap, partial(read, *args))

    def _clock_ahead(self) -> float | NotSeen:
        ahead = self._google.ahead_s
        return NotSeen("no Google API has answered") if ahead is None else ahead

    # The project

    def _project(self) -> Project:
        answer = self._google.get(_MANAGER, f"v3/projects/{self._context.project}")
        number = last_part(text(answer, "name"))
        return Project(text(answer, "projectId"), number, answer.get("state", "ACTIVE") == "ACTIVE")

    def _services(self) -> frozenset[str]:
        """Return the needed APIs that are enabled. Inferred (live: reads): in place of the project's number, which
        Google documents, its id works, too."""
        project = self._context.project
        names = needed_services(self._context)
        answer = self._google.get(
            _USAGE,
            f"v1/projects/{project}/services:batchGet",
            names=[f"projects/{project}/services/{name}" for name in names],
        )
        enabled = [s for s in answer["services"] if s.get("state") == "ENABLED"]
        return frozenset(last_part(text(service, "name")) for service in enabled)

    def _permissions(self) -> frozenset[str]:
        """Return the needed permissions that are granted. A permission that does not exist for projects would make
        Google refuse the whole call. Inferred (live: permissions): all of these exist."""
        body = {"permissions": needed_permissions(self._context)}
        path = f"v3/projects/{self._context.project}:testIamPermissions"
        return _granted_permissions(self._google.post(_MANAGER, path, body))

    def _service_account(self) -> frozenset[str]:
        account = self._context.service_account
        if not account:
            return frozenset()
        path = f"v1/projects/-/serviceAccounts/{account}:testIamPermissions"
        return _granted_permissions(
            self._google.post("iam.googleapis.com", path, {"permissions": [ACT_AS]})
        )

    def _database(self) -> Database | None:
        if self._context.store != "firestore":
            return None
        path = f"v1/projects/{self._context.project}/databases/{self._context.database}"
        answer = self._google.get("firestore.googleapis.com", path)
        kind = text(answer, "type")
        return Database(kind == "FIRESTORE_NATIVE", kind, str(answer.get("locationId", "")))

    def _policy(self, name: str) -> Policy:
        """Return a policy with what the project inherits. Inferred (live: policies): without an organization, and
        without the policy, Google answers with the default of the constraint."""
        path = f"v2/projects/{self._context.project}/policies/{name}:getEffectivePolicy"
        answer = self._google.get("orgpolicy.googleapis.com", path)
        rules = objects(object_in(answer, "spec"), "rules")
        values = [object_in(rule, "values") for rule in rules]
        allowed = [str(value) for part in values for value in part.get("allowedValues") or ()]
        limited = bool(allowed) or any(rule.get("denyAll") for rule in rules)
        return Policy(
            enforced=any(rule.get("enforce") for rule in rules),
            allowed=tuple(allowed) if limited else None,
            denied=tuple(str(value) for part in values for value in part.get("deniedValues") or ()),
            conditional=any("condition" in rule for rule in rules),
        )

    # Zones, regions and buckets

    def _types(self, zone: str) -> frozenset[str]:
        offered = self._catalog.types(zone)
        if offered is None:
            raise TpujobError("Cloud TPU cannot list the types of the zone now")
        return offered

    def _addresses(self, region: str) -> Addresses:
        path = f"compute/v1/projects/{self._context.project}/regions/{region}"
        answer = self._google.get(_COMPUTE, path)
        quota = next(q for q in answer["quotas"] if q["metric"] == "IN_USE_ADDRESSES")
        return Addresses(int(quota["limit"]), int(quota.get("usage", 0)))

    def _bucket(self, url: str) -> BucketFacts:
        path = f"storage/v1/b/{split_path(url, empty=True)[0]}"
        return facts_of(self._google.get(_STORAGE, path))

    def _objects(self, url: str) -> frozenset[str]:
        path = f"storage/v1/b/{split_path(url, empty=True)[0]}/iam/testPermissions"
        return _granted_permissions(
            self._google.get(_STORAGE, path, permissions=BUCKET_PERMISSIONS)
        )

    # The network

    def _network(self) -> Network:
        path = f"{self._network_project()}/global/networks/{last_part(network_name(self._context))}"
        return Network(auto=bool(self._google.get(_COMPUTE, path).get("autoCreateSubnetworks")))

    def _subnetwork(self, region: str) -> Subnetwork:
        """Return the subnetwork that the context names; else that of an auto mode network, else any of the network."""
        network = last_part(network_name(self._context))
        name = last_part(self._context.subnetwork)
        path = f"{self._network_project()}/regions/{region}"
        matches = [
            item
            for item in self._google.pages(_COMPUTE, f"{path}/subnetworks", "items")
            if last_part(text(item, "network")) == network and name in ("", item["name"])
        ]
        if not matches:
            raise Missing(f"{region} has no such subnetwork", cause="BAD_SPEC")
        subnetwork = min(matches, key=lambda match: match["name"] != network)
        private = bool(subnetwork.get("privateIpGoogleAccess"))
        return Subnetwork(text(subnetwork, "ipCidrRange"), private, self._has_nat(path, network))

    def _has_nat(self, path: str, network: str) -> bool | NotSeen:
        def any_router_has_nat() -> bool:
            routers = self._google.pages(_COMPUTE, f"{path}/routers", "items")
            ours = (router for router in routers if last_part(text(router, "network")) == network)
            return any(router.get("nats") for router in ours)

        return False if self._context.with_external_ips else _or_unseen(any_router_has_nat)

    def _rules(self) -> list[FirewallRule]:
        network = last_part(network_name(self._context))
        path = f"{self._network_project()}/global/firewalls"
        return [
            _parse_rule(rule)
            for rule in self._google.pages(_COMPUTE, path, "items")
            if last_part(text(rule, "network")) == network
            and rule.get("direction", "INGRESS") == "INGRESS"
            and not rule.get("disabled")
        ]

    def _network_project(self) -> str:
        """Return the path of the network's project; of a shared one, that in `projects/HOST/global/networks/NAME`."""
        parts = network_name(self._context).split("/")
        host = parts[parts.index("projects") + 1] if "projects" in parts else self._context.project
        return f"compute/v1/projects/{host}"


# Answers to records --------------------------------------------------------------------------------------------------


def _or_absent(read: Callable[[], T]) -> T | NotSeen | None:
    """Return the result, None if the resource is missing, or NotSeen in place of another error."""

    def unless_missing() -> T | None:
        try:
            return read()
        except Missing:
            return None

    return _or_unseen(unless_missing)


def _or_unseen(read: Callable[[], T]) -> T | NotSeen:
    """Return the result, or NotSeen in place of an error."""
    try:
        return read()
    except TpujobError as error:
        return NotSeen(error.message, error.hint)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        return NotSeen(f"Google's answer is not understood: {error!r}"[:200])


def _granted_permissions(answer: Mapping[str, Any]) -> frozenset[str]:
    """Return the permissions in an answer; an answer without the field grants none."""
    return frozenset(map(str, answer.get("permissions") or ()))


def _parse_rule(rule: Mapping[str, Any]) -> FirewallRule:
    allowed = objects(rule, "allowed")
    return FirewallRule(
        name=text(rule, "name"),
        allows=bool(allowed),
        ports=tuple(_ports(allowed or objects(rule, "denied"))),
        sources=tuple(map(str, rule.get("sourceRanges") or ())),
        priority=int(rule.get("priority", 1000)),
        tags=tuple(map(str, rule.get("targetTags") or ())),
        accounts=tuple(map(str, rule.get("targetServiceAccounts") or ())),
        source_tags=tuple(map(str, rule.get("sourceTags") or ())),
        source_accounts=tuple(map(str, rule.get("sourceServiceAccounts") or ())),
    )


def _ports(entries: Sequence[Mapping[str, Any]]) -> Iterable[tuple[int, int]]:
    """Yield the ranges of ports for TCP (protocol 6), such as `22` and `20-30`; an entry without ports means all."""
    for entry in entries:
        if str(entry.get("IPProtocol")) in ("tcp", "6", "all"):
            ports = entry.get("ports") or ()
            for port in ports:
                low, _, high = str(port).partition("-")
                yield int(low), int(high or low)
            if not ports:
                yield ALL_PORTS
