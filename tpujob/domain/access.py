"""Access rules: role and ownership decide. The rule of each method is in its row of `api/jobs_api.py`. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tpujob.errors import Forbidden


class Role(StrEnum):
    """The rights of a person or a service account. Each role includes the one before it."""

    VIEWER = "viewer"  #: sees every job, without its owner's private data
    SUBMITTER = "submitter"  #: owns jobs, and may do everything with them
    ADMIN = "admin"  #: may do everything with every job, and with the backend


_MAX_SLUG = 63  #: characters of a slug, as of a label
_HASHED = re.compile(r"-[0-9a-f]{16}$")  #: the end of a slug that has a hash

_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a method, as the service has identified them."""

    #: identifies one person for ever; the `owner` of jobs. Google's is `google:SUB`. The uid of a removed account is
    #: given to the next one, so that of a member at a shared socket is `uid:1000:ada`
    id: str
    name: str  #: for people: a login or an e-mail address
    role: Role | None = None  #: None: identified, without any right

    @property
    def folder(self) -> str:
        """The prefix of this user's objects in each bucket, as a condition of IAM can name it."""
        return folder_of(self.name)

    def at_least(self, role: Role) -> bool:
        return self.role is not None and _RANK[self.role] >= _RANK[role]


#: the backend itself, for work without a caller
BACKEND = Principal("backend", "tpujob", Role.ADMIN)
#: the scheduled call once a minute: it may call `tick`, and nothing else
SCHEDULER = Principal("scheduler", "Cloud Scheduler")


class AccessRule(NamedTuple):
    """The least role that a method needs."""

    own: Role  #: for the caller's own jobs, and for what is about no job
    others: Role | None = None  #: for the jobs of others; None: the method is about no single job


#: about no single job
VIEWERS, SUBMITTERS, ADMINS = (
    AccessRule(Role.VIEWER),
    AccessRule(Role.SUBMITTER),
    AccessRule(Role.ADMIN),
)
#: about one job: every viewer may see it; or its owner and admins may read it; or they may act on it
SEEN_JOBS = AccessRule(Role.VIEWER, others=Role.VIEWER)
READ_OWN_JOBS = AccessRule(Role.VIEWER, others=Role.ADMIN)
OWN_JOBS = AccessRule(Role.SUBMITTER, others=Role.ADMIN)


def check(caller: Principal, method: str, rule: AccessRule | None, action: str) -> None:
    """Raise Forbidden unless the rule allows the method to the caller for their own jobs. A method without a rule is
    refused. `action`: what the caller knows the method as."""
    if rule is None:
        raise Forbidden(
            f"no access rule allows {method}: it is missing from the table of who may do what"
        )
    if (caller.id, method) != (SCHEDULER.id, "tick"):
        _need(caller, rule.own, action)


def check_owner(
    caller: Principal, method: str, rule: AccessRule | None, action: str, job_id: str, owner: str
) -> None:
    """Raise Forbidden unless the caller may call the method for the job of that owner. Jobs without an owner belong to
    admins."""
    check(caller, method, rule, action)
    if rule and not is_own(caller, owner):
        about = f"{action} of job {job_id}, which is not {caller.name}'s,"
        _need(caller, rule.others or Role.ADMIN, about)


def is_own(caller: Principal, owner: str) -> bool:
    """Return whether the caller owns jobs of that owner. Admins own jobs without an owner."""
    return owner == caller.id or (not owner and caller.at_least(Role.ADMIN))


def sees_all(caller: Principal, owner: str) -> bool:
    """Return whether the caller sees what is private to a job's owner: program, code, files."""
    return is_own(caller, owner) or caller.at_least(Role.ADMIN)


def folder_of(name: str) -> str:
    """Return `Principal.folder` of that name."""
    return f"u/{slug(name)}"


def slug(name: str) -> str:
    """Return the name as part of a path or a label: `ada@example.org` becomes `ada-at-example.org`. Two names have the
    same slug only if they differ in capitals alone, which the list of members has none of: a name that its slug does
    not determine gets a hash at the end. `folder_of` in `deploy/common.sh` agrees."""
    raw = name.encode(errors="surrogatepass").lower()  # ASCII alone, as a shell does it
    allowed = re.sub(rb"[^a-z0-9._-]+", b"-", raw.replace(b"@", b"-at-"))
    words = allowed.decode().strip("-._") or "user"
    readable = words.replace("-at-", "@").encode() == raw and len(words) <= _MAX_SLUG
    if readable and not _HASHED.search(words):
        return words
    from hashlib import sha256  # slow to import; commands need no hash

    return f"{words[: _MAX_SLUG - 17]}-{sha256(raw).hexdigest()[:16]}"


def _need(caller: Principal, role: Role, action: str) -> None:
    if not caller.at_least(role):
        has = f"has the role {caller.role}" if caller.role else "has no role"
        raise Forbidden(
            f"{action} needs the role {role}: {caller.name} {has}",
            hint="An admin gives roles: `tpujob members`.",
        )
