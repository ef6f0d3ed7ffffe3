"""Who asks in tests: the owner of the stack, and others of each role."""

from __future__ import annotations

from tpujob.domain.access import Principal, Role


def caller(name: str, role: Role | None = Role.SUBMITTER) -> Principal:
    """A principal of that name, with an id that no other name has."""
    return Principal(f"test:{name}", name, role)


ADA = caller("ada", Role.ADMIN)
