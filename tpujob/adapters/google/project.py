"""Everything that `tpujob doctor` asks about a project on Google Cloud, all at once. Changes nothing.

What the answers mean is in `doctor/`. An answer that is refused or fails is a `NotSeen` in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tpujob.adapters.calling import Missing
from tpujob.adapters.cloud_tpu import Api, Catalog
from tpujob.adapters.gcs import facts_of, split_path
from tpujob.adapters.google import identity as google_identity
from tpujob.adapters.google import quota as google_quota
from tpujob.adapters.google.rest import GoogleRest, parts, text
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
from tpujob.doctor.zones import Addresses
from tpujob.errors import TpujobError
from tpujob.ports import BucketFacts

if TYPE_CHECKING:
    from tpujob.config.context import Context

T = TypeVar("T")

#: questions at a time
AT_ONCE = 12
#: seconds for the catalog of a zone
CATALOG_PATIENCE = 15.0
ALL_PORTS = (0, 65535)

_MANAGER = "cloudresourcemanager.googleapis.com"
_USAGE = "serviceusage.googleapis.com"
_COMPUTE = "compute.googleapis.com"
_STORAGE = "storage.googleapis.com"


def look(context: Context, *, endpoint: str = "", tpu_endpoint: str = "") -> ProjectSeen:
    """Read everything that a context's checks need, in about the time of the slowest answer. Never raises for an answer
    of Google. `endpoint`: see GoogleRest; `tpu_endpoint`: the address of an emulated Cloud TPU API."""
    credentials: Any = None
    identity: Identity | NoIdentity | NotSeen = Identity()
    if not endpoint:
        credentials, identity = google_identity.find()
    google = GoogleRest(context.project, credentials, endpoint=endpoint)
    tpu = Api(context.project, endpoint=tpu_endpoint)
    try:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as pool:
            blind = isinstance(identity, NoIdentity)
            return _Looks(context, google, Catalog(tpu), pool, blind).seen(identity)
    finally:
        google.close()
        tpu.close()


@dataclass(frozen=True, slots=True)
class _Looks:
    _context: Context
    _google: GoogleRest
    _catalog: Catalog
    _pool: ThreadPoolExecutor
    _blind: bool  #: there are no credentials, so nothing is asked

    def seen(self, identity: Identity | NoIdentity | NotSeen) -> ProjectSeen:
        context = self._context
        asked = {
            "project": self._ask(_or_absent, self._project),
            "services": self._ask(_or_unseen, self._services),
            "permissions": self._ask(_or_unseen, self._permissions),
            "service_account": self._ask(_or_absent, self._service_account),
            "limits": self._ask(_or_unseen, google_quota.limits, self._google, context.project),
            "network": self._ask(_or_absent, self._network),
            "rules": self._ask(_or_unseen, self._rules),
            "database": self._ask(_or_absent, self._database),
        }
        regions, buckets = context.every_region, context.buckets.values()
        asked_of = {
            "types": {z: self._ask(_or_unseen, self._types, z) for z in context.every_zone},
            "addresses": {r: self._ask(_or_unseen, self._addresses, r) for r in regions},
            "subnetworks": {r: self._ask(_or_absent, self._subnetwork, r) for r in regions},
            "buckets": {url: self._ask(_or_absent, self._bucket, url) for url in buckets},
            "objects": {url: self._ask(_or_unseen, self._objects, url) for url in buckets},
        }
        answers: dict[str, Any] = {name: each.result() for name, each in asked.items()}
        for name, places in asked_of.items():
            answers[name] = {place: each.result() for place, each in places.items()}
        # the clock last: by now something has answered
        return ProjectSeen(identity=identity, **answers, ahead_s=self._ahead())

    def _ask(self, how: Callable[..., Any], ask: Callable[..., Any], *of: Any) -> Future[Any]:
        """Ask in another thread; `how` makes a record of the answer."""
        if self._blind:
            return self._pool.submit(NotSeen, "there are no credentials")
        return self._pool.submit(how, partial(ask, *of))

    def _ahead(self) -> float | NotSeen:
        ahead = self._google.ahead_s
        return NotSeen("no Google API has answered") if ahead is None else ahead

    # The project

    def _project(self) -> Project:
        found = self._google.get(_MANAGER, f"v3/projects/{self._context.project}")
        number = last_part(text(found, "name"))
        return Project(text(found, "projectId"), number, found.get("state", "ACTIVE") == "ACTIVE")

    def _services(self) -> frozenset[str]:
        """Inferred (live: reads): Google's page has the project's number here, and its id works too."""
        project, names = self._context.project, needed_services(self._context)
        found = self._google.get(
            _USAGE,
            f"v1/projects/{project}/services:batchGet",
            names=[f"projects/{project}/services/{name}" for name in names],
        )
        on = [one for one in found["services"] if one.get("state") == "ENABLED"]
        return frozenset(last_part(text(one, "name")) for one in on)

    def _permissions(self) -> frozenset[str]:
        """One permission that projects do not have makes Google refuse the whole call. Inferred (live:
        permissions): projects have all of these."""
        asked = {"permissions": needed_permissions(self._context)}
        of = f"v3/projects/{self._context.project}:testIamPermissions"
        return _granted(self._google.post(_MANAGER, of, asked))

    def _service_account(self) -> frozenset[str]:
        account = self._context.service_account
        if not account:
            return frozenset()
        of = f"v1/projects/-/serviceAccounts/{account}:testIamPermissions"
        return _granted(self._google.post("iam.googleapis.com", of, {"permissions": [ACT_AS]}))

    def _database(self) -> Database | None:
        if self._context.store != "firestore":
            return None
        of = f"v1/projects/{self._context.project}/databases/{self._context.database}"
        found = self._google.get("firestore.googleapis.com", of)
        kind = text(found, "type")
        return Database(kind == "FIRESTORE_NATIVE", kind, str(found.get("locationId", "")))

    # Its places

    def _types(self, zone: str) -> frozenset[str]:
        offered = self._catalog.types(zone, timeout=CATALOG_PATIENCE)
        if offered is None:
            raise TpujobError("Cloud TPU cannot list the types of the zone now")
        return offered

    def _addresses(self, region: str) -> Addresses:
        of = f"compute/v1/projects/{self._context.project}/regions/{region}"
        found = self._google.get(_COMPUTE, of)
        quota = next(q for q in found["quotas"] if q["metric"] == "IN_USE_ADDRESSES")
        return Addresses(int(quota["limit"]), int(quota.get("usage", 0)))

    def _bucket(self, url: str) -> BucketFacts:
        of = f"storage/v1/b/{split_path(url, empty=True)[0]}"
        return facts_of(self._google.get(_STORAGE, of))

    def _objects(self, url: str) -> frozenset[str]:
        of = f"storage/v1/b/{split_path(url, empty=True)[0]}/iam/testPermissions"
        return _granted(self._google.get(_STORAGE, of, permissions=BUCKET_PERMISSIONS))

    # Its network

    def _network(self) -> Network:
        of = f"{self._network_project()}/global/networks/{last_part(network_name(self._context))}"
        return Network(auto=bool(self._google.get(_COMPUTE, of).get("autoCreateSubnetworks")))

    def _subnetwork(self, region: str) -> Subnetwork:
        """The subnetwork that the context names; else that of an auto mode network, else any of the network."""
        network = last_part(network_name(self._context))
        wanted = last_part(self._context.subnetwork)
        of = f"{self._network_project()}/regions/{region}"
        there = [
            one
            for one in self._google.pages(_COMPUTE, f"{of}/subnetworks", "items")
            if last_part(text(one, "network")) == network and wanted in ("", one["name"])
        ]
        if not there:
            raise Missing(f"{region} has no such subnetwork", cause="BAD_SPEC")
        one = min(there, key=lambda one: one["name"] != network)
        private = bool(one.get("privateIpGoogleAccess"))
        return Subnetwork(text(one, "ipCidrRange"), private, self._nat(of, network))

    def _nat(self, of: str, network: str) -> bool | NotSeen:
        def ask() -> bool:
            routers = self._google.pages(_COMPUTE, f"{of}/routers", "items")
            here = (one for one in routers if last_part(text(one, "network")) == network)
            return any(one.get("nats") for one in here)

        return False if self._context.with_external_ips else _or_unseen(ask)

    def _rules(self) -> list[FirewallRule]:
        network = last_part(network_name(self._context))
        found = self._google.pages(_COMPUTE, f"{self._network_project()}/global/firewalls", "items")
        return [
            _rule(one)
            for one in found
            if last_part(text(one, "network")) == network
            and one.get("direction", "INGRESS") == "INGRESS"
            and not one.get("disabled")
        ]

    def _network_project(self) -> str:
        """A shared network lies in another project: `projects/HOST/global/networks/NAME`."""
        parts = network_name(self._context).split("/")
        host = parts[parts.index("projects") + 1] if "projects" in parts else self._context.project
        return f"compute/v1/projects/{host}"


# Answers to records --------------------------------------------------------------------------------------------------


def _or_absent(ask: Callable[[], T]) -> T | NotSeen | None:
    def unless_missing() -> T | None:
        try:
            return ask()
        except Missing:
            return None

    return _or_unseen(unless_missing)


def _or_unseen(ask: Callable[[], T]) -> T | NotSeen:
    try:
        return ask()
    except TpujobError as error:
        return NotSeen(error.message, error.hint)
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        return NotSeen(f"Google's answer is not understood: {error!r}"[:200])


def _granted(found: Mapping[str, Any]) -> frozenset[str]:
    """An answer without the field grants nothing."""
    return frozenset(map(str, found.get("permissions") or ()))


def _rule(found: Mapping[str, Any]) -> FirewallRule:
    allowed = parts(found, "allowed")
    return FirewallRule(
        name=text(found, "name"),
        allows=bool(allowed),
        ports=tuple(_ports(allowed or parts(found, "denied"))),
        sources=tuple(map(str, found.get("sourceRanges") or ())),
        priority=int(found.get("priority", 1000)),
        tags=tuple(map(str, found.get("targetTags") or ())),
        accounts=tuple(map(str, found.get("targetServiceAccounts") or ())),
        source_tags=tuple(map(str, found.get("sourceTags") or ())),
        source_accounts=tuple(map(str, found.get("sourceServiceAccounts") or ())),
    )


def _ports(entries: Sequence[Mapping[str, Any]]) -> Iterable[tuple[int, int]]:
    """The ranges for TCP (protocol 6): `22`, `20-30`; no ports at all means all of them."""
    for entry in entries:
        if str(entry.get("IPProtocol")) in ("tcp", "6", "all"):
            named = entry.get("ports") or ()
            for port in named:
                low, _, high = str(port).partition("-")
                yield int(low), int(high or low)
            if not named:
                yield ALL_PORTS
