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

#: permissions with which the backend manages slices
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

#: beginning of a permission's name -> a role that has the permission
_ROLES = (
    ("tpu.", "roles/tpu.admin"),
    ("datastore.", "roles/datastore.user"),
    ("iap.", "roles/iap.tunnelResourceAccessor"),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The credentials that were found, and that work."""

    principal: str = ""  #: an e-mail address; empty: unknown
    kind: str = ""  #: `user` or `service account`; empty: no credentials are needed
    key_file: bool = False  #: whether the credentials are a service account's key file


@dataclass(frozen=True, slots=True)
class NoIdentity:
    """Credentials that are missing or refused."""

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


def check_identity(identity: Identity | NoIdentity) -> Finding:
    if isinstance(identity, NoIdentity):
        return fail(identity.why, LOGIN)
    if not identity.kind:
        return ok("not needed by this stand-in for Google Cloud")
    account = f"{identity.kind} {identity.principal}".strip()
    if identity.key_file:
        return warn(
            f"{account}, by a key file, which never expires",
            f"{LOGIN} --impersonate-service-account={identity.principal}",
        )
    return ok(f"{account}, accepted just now")


def check_project(context: Context, project: Project | None) -> Finding:
    """Check the project; None: it does not exist. For a project that the user may not see, Google denies permission."""
    if project is None:
        return fail(f"there is no project {context.project}", "gcloud projects list")
    if not project.active:
        text = f"{context.project} is about to be deleted"
        return fail(text, f"gcloud projects undelete {context.project}")
    return ok(f"{project.id}, number {project.number}")


def needed_services(context: Context) -> tuple[str, ...]:
    """Return the APIs that a context's jobs use, without those that only `doctor` and `quota` read."""
    names = ["tpu", "compute", "storage"]
    names += ["firestore"] if context.store == "firestore" else []
    names += ["iap"] if context.ssh == "iap" else []
    names += ["run", "iamcredentials"] if context.backend else []
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
    """Check the permissions of `principal`; an empty one is unknown."""
    needed = needed_permissions(context)
    missing = [permission for permission in needed if permission not in granted]
    if not missing:
        return ok(f"all {len(needed)} that the backend needs on {context.project}")
    role = next(role for prefix, role in _ROLES if missing[0].startswith(prefix))
    return fail(
        f"{len(missing)} of {len(needed)} are missing: {listed(missing)}",
        _grant_command("projects", context.project, principal, role),
    )


def check_bucket_permissions(bucket: str, granted: frozenset[str], principal: str = "") -> Finding:
    missing = [permission for permission in BUCKET_PERMISSIONS if permission not in granted]
    if missing:
        cure = _grant_command("storage buckets", bucket, principal, "roles/storage.objectUser")
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
        name = account.partition("@")[0]
        cure = f"gcloud iam service-accounts create {name} --project {context.project}"
        return fail(f"there is no account {account}", cure)
    if ACT_AS not in granted:
        return fail(
            f"slices cannot be given the account {account}",
            _grant_command(
                "iam service-accounts", account, principal, "roles/iam.serviceAccountUser"
            ),
        )
    return ok(f"slices may run as {account}")


def check_database(context: Context, database: Database | None) -> Finding:
    """Check the database; None: it does not exist."""
    region = next(iter(context.every_region), "nam5")
    create = (
        f"gcloud firestore databases create --database='{context.database}' --type=firestore-native "
        f"--location={_NEAR.get(region, region)} --project {context.project}"
    )
    if database is None:
        return fail(f"there is no database {context.database}", create)
    if not database.native:
        create_named = create.replace(f"'{context.database}'", "tpujob")
        text = f"{context.database} is in {database.kind}, and tpujob needs native mode"
        return fail(text, f"{create_named}, then `database: tpujob` in the context")
    return ok(f"{context.database} in {database.location}, native mode")


#: TPU region that has no Firestore -> the nearest location that has
_NEAR = {"us-central2": "us-central1"}


def _grant_command(kind: str, resource: str, principal: str, role: str) -> str:
    """Return the command that grants a role, with a placeholder for an unknown principal."""
    kind_of_member = "serviceAccount" if principal.endswith(".gserviceaccount.com") else "user"
    member = f"{kind_of_member}:{principal}" if principal else "user:YOUR_ADDRESS"
    return f"gcloud {kind} add-iam-policy-binding {resource} --member={member} --role={role}"
