"""Who may do what: role x ownership. Which rule a method has is in its row of `api/jobs_api.py`. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tpujob.errors import Forbidden


class Role(StrEnum):
    """What a person or a service account is allowed to do in general. Each includes the one before it."""

    VIEWER = "viewer"  #: sees every job, without what its owner keeps to himself
    SUBMITTER = "submitter"  #: has jobs, and may do everything with them
    ADMIN = "admin"  #: may do everything with every job, and with the backend


_LONGEST = 63  #: characters of a slug, as of a label
_HASHED = re.compile(r"-[0-9a-f]{16}$")  #: the end of a slug that has a hash

_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a method, as the service has identified them."""

    #: such as `uid:1000`; it never changes, and never becomes another person's; owner of jobs
    id: str
    name: str  #: for people: a login or an e-mail address
    role: Role | None = None  #: None: known, and allowed nothing

    @property
    def folder(self) -> str:
        """Where this user's objects are in each bucket: one prefix, as a condition of IAM can name."""
        return folder_of(self.name)

    def at_least(self, role: Role) -> bool:
        return self.role is not None and _RANK[self.role] >= _RANK[role]


#: the backend itself, for work that no caller has asked for
BACKEND = Principal("backend", "tpujob", Role.ADMIN)
#: whatever calls the backend once a minute: it may make the backend's passes, and nothing else
SCHEDULER = Principal("scheduler", "Cloud Scheduler")


class AccessRule(NamedTuple):
    """The least role that a method needs."""

    own: Role  #: for what is the caller's own, and for what has no owner
    others: Role | None = None  #: for the jobs of others; None: the method is about no single job


#: about no single job
VIEWERS, SUBMITTERS, ADMINS = (
    AccessRule(Role.VIEWER),
    AccessRule(Role.SUBMITTER),
    AccessRule(Role.ADMIN),
)
#: about a job: everybody may see that of others, or only an admin may read it, or act on it
SEEN_JOBS = AccessRule(Role.VIEWER, others=Role.VIEWER)
READ_OWN_JOBS = AccessRule(Role.VIEWER, others=Role.ADMIN)
OWN_JOBS = AccessRule(Role.SUBMITTER, others=Role.ADMIN)


def check(who: Principal, method: str, rule: AccessRule | None) -> None:
    """Raises Forbidden unless the method's rule allows it to the caller for their own jobs. A method without a rule is
    refused."""
    if rule is None:
        raise Forbidden(
            f"no access rule allows {method}: it is missing from the table of who may do what"
        )
    if (who.id, method) != (SCHEDULER.id, "tick"):
        _need(who, rule.own, method)


def check_owner(
    who: Principal, method: str, rule: AccessRule | None, job_id: str, owner: str
) -> None:
    """Raises Forbidden unless the caller may call the method for the job of that owner. Jobs without an owner, from old
    records, belong to admins."""
    check(who, method, rule)
    if rule and not is_own(who, owner):
        of = f"job {job_id}, which is not {who.name}'s,"
        _need(who, rule.others or Role.ADMIN, f"{method} of {of}")


def is_own(who: Principal, owner: str) -> bool:
    """Return whether a job of that owner is the caller's. One without an owner, from an old record, is every
    admin's."""
    return owner == who.id or (not owner and who.at_least(Role.ADMIN))


def sees_all(who: Principal, owner: str) -> bool:
    """Return whether a job is shown with what is private to its owner: program, code, files."""
    return is_own(who, owner) or who.at_least(Role.ADMIN)


def folder_of(name: str) -> str:
    """`Principal.folder` of that name."""
    return f"u/{slug(name)}"


def slug(name: str) -> str:
    """A name as part of a path or a label: `ada@example.org` becomes `ada-at-example.org`. No two names that
    differ in more than capitals, which the list of members has none of, have the same: one that cannot be read back
    from its slug gets a hash at the end. `folder_of` in `deploy/common.sh` agrees."""
    raw = name.encode(errors="surrogatepass").lower()  # ASCII alone, as a shell does it
    kept = re.sub(rb"[^a-z0-9._-]+", b"-", raw.replace(b"@", b"-at-"))
    words = kept.decode().strip("-._") or "user"
    readable = words.replace("-at-", "@").encode() == raw and len(words) <= _LONGEST
    if readable and not _HASHED.search(words):
        return words
    from hashlib import sha256  # commands do without

    return f"{words[: _LONGEST - 17]}-{sha256(raw).hexdigest()[:16]}"


def _need(who: Principal, least: Role, what: str) -> None:
    if not who.at_least(least):
        has = f"has the role {who.role}" if who.role else "has no role"
        raise Forbidden(
            f"{what} needs the role {least}: {who.name} {has}",
            hint="An admin gives roles: `tpujob members`.",
        )
