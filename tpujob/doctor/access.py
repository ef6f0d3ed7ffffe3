"""Credentials, the project, its APIs, permissions on it, and the database.

`tests/contract/deploy/test_deploy.py` compares the permissions with the roles in `deploy/`. That `tpu.nodes.*` covers
queued resources is inferred (live: permissions): Google's table of permissions has none of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpujob.doctor.findings import Finding, fail, listed, ok, warn
from tpujob.errors import LOGIN

if TYPE_CHECKING:
    from tpujob.config.context import Context

#: what the backend does with slices
TPU_PERMISSIONS = (
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.acceleratortypes.list",
)
FIRESTORE_PERMISSIONS = (
    "datastore.entities.create",
    "datastore.entities.delete",
    "datastore.entities.get",
    "datastore.entities.list",
    "datastore.entities.update",
)
IAP_PERMISSION = "iap.tunnelInstances.accessViaIAP"
BUCKET_PERMISSIONS = (
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
    "storage.objects.update",
)
ACT_AS = "iam.serviceAccounts.actAs"

#: which role has a permission, by how its name begins; the first that matches counts
_ROLES = (
    ("tpu.", "roles/tpu.admin"),
    ("datastore.", "roles/datastore.user"),
    ("iap.", "roles/iap.tunnelResourceAccessor"),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose credentials were found, and that they work."""

    principal: str = ""  #: an e-mail address; empty: they do not say
    #: in words: `user`, `service account`; empty: no credentials are needed
    kind: str = ""
    key_file: bool = False  #: a service account's key lies on this machine


@dataclass(frozen=True, slots=True)
class NoIdentity:
    """There are no credentials, or they are refused."""

    why: str


@dataclass(frozen=True, slots=True)
class Project:
    id: str
    number: str
    active: bool


@dataclass(frozen=True, slots=True)
class Database:
    native: bool
    kind: str  #: the API's word
    location: str


def check_identity(seen: Identity | NoIdentity) -> Finding:
    if isinstance(seen, NoIdentity):
        return fail(seen.why, LOGIN)
    if not seen.kind:
        return ok("not needed by this stand-in for Google Cloud")
    whose = f"{seen.kind} {seen.principal}".strip()
    if seen.key_file:
        return warn(
            f"{whose}, by a key file, which never expires",
            f"{LOGIN} --impersonate-service-account={seen.principal}",
        )
    return ok(f"{whose}, accepted just now")


def check_project(context: Context, seen: Project | None) -> Finding:
    """Check the project; None: it does not exist. Google says so only to users who may see it, else denies
    permission."""
    if seen is None:
        return fail(f"there is no project {context.project}", "gcloud projects list")
    if not seen.active:
        what = f"{context.project} is about to be deleted"
        return fail(what, f"gcloud projects undelete {context.project}")
    return ok(f"{seen.id}, number {seen.number}")


def needed_services(context: Context) -> tuple[str, ...]:
    """The APIs that a context's jobs use, without those that only `doctor` and `quota` read."""
    more = (
        ("firestore", context.store == "firestore"),
        ("iap", context.ssh == "iap"),
        ("run", bool(context.backend)),
        ("iamcredentials", bool(context.backend)),
    )
    names = ("tpu", "compute", "storage", *(name for name, wanted in more if wanted))
    return tuple(f"{name}.googleapis.com" for name in names)


def check_services(context: Context, enabled: frozenset[str]) -> Finding:
    needed = needed_services(context)
    missing = [service for service in needed if service not in enabled]
    if missing:
        cure = f"gcloud services enable {' '.join(missing)} --project {context.project}"
        return fail(f"not enabled: {listed(missing)}", cure)
    return ok(f"enabled: {listed((s.partition('.')[0] for s in needed), 9)}")


def needed_permissions(context: Context) -> tuple[str, ...]:
    """Return the permissions that the backend needs on the project."""
    firestore = FIRESTORE_PERMISSIONS if context.store == "firestore" else ()
    iap = (IAP_PERMISSION,) if context.ssh == "iap" else ()
    return (*TPU_PERMISSIONS, *firestore, *iap)


def check_permissions(context: Context, granted: frozenset[str], principal: str = "") -> Finding:
    """Check the permissions. `principal`: whose they are; empty: unknown."""
    needed = needed_permissions(context)
    missing = [permission for permission in needed if permission not in granted]
    if not missing:
        return ok(f"all {len(needed)} that the backend needs on {context.project}")
    role = next(role for prefix, role in _ROLES if missing[0].startswith(prefix))
    return fail(
        f"{len(missing)} of {len(needed)} are missing: {listed(missing)}",
        _bind("projects", context.project, principal, role),
    )


def check_bucket_permissions(bucket: str, granted: frozenset[str], principal: str = "") -> Finding:
    missing = [permission for permission in BUCKET_PERMISSIONS if permission not in granted]
    if missing:
        cure = _bind("storage buckets", bucket, principal, "roles/storage.objectUser")
        return fail(f"{bucket}: missing {listed(missing)}", cure)
    return ok(f"{bucket} can be read and written")


def check_service_account(
    context: Context, granted: frozenset[str] | None, principal: str = ""
) -> Finding:
    """Check the account that programs run as; None: it does not exist."""
    account = context.service_account
    if not account:
        return warn(
            "programs run as the project's default account, which usually has far too many permissions",
            f"gcloud iam service-accounts create tpujob-vm --project {context.project}",
        )
    if granted is None:
        what = f"there is no account {account}"
        made = account.partition("@")[0]
        cure = f"gcloud iam service-accounts create {made} --project {context.project}"
        return fail(what, cure)
    if ACT_AS not in granted:
        return fail(
            f"slices cannot be given the account {account}",
            _bind("iam service-accounts", account, principal, "roles/iam.serviceAccountUser"),
        )
    return ok(f"slices may run as {account}")


def check_database(context: Context, seen: Database | None) -> Finding:
    """Check the database; None: it does not exist."""
    region = next(iter(context.every_region), "nam5")
    create = (
        f"gcloud firestore databases create --database='{context.database}' --type=firestore-native "
        f"--location={_NEAR.get(region, region)} --project {context.project}"
    )
    if seen is None:
        return fail(f"there is no database {context.database}", create)
    if not seen.native:
        named = create.replace(f"'{context.database}'", "tpujob")
        what = f"{context.database} is in {seen.kind}, and tpujob needs native mode"
        return fail(what, f"{named}, then `database: tpujob` in the context")
    return ok(f"{context.database} in {seen.location}, native mode")


#: regions of TPUs that Google's list of Firestore's locations lacks, each with the nearest that it has
_NEAR = {"us-central2": "us-central1"}


def _bind(kind: str, of: str, principal: str, role: str) -> str:
    """Return the command that grants a role, with a placeholder for an unknown principal."""
    sort = "serviceAccount" if principal.endswith(".gserviceaccount.com") else "user"
    member = f"{sort}:{principal}" if principal else "user:YOUR_ADDRESS"
    return f"gcloud {kind} add-iam-policy-binding {of} --member={member} --role={role}"
