"""What is kept of machines and people beside the jobs: suspicions, members, secrets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpujob.domain.members import Member
from tpujob.domain.model import Suspect

# Reputation ----------------------------------------------------------------------------------------------------------


class Reputation(Protocol):
    """Keeps which machines are suspected of being bad, or pinned by a person."""

    def accuse(
        self,
        physicals: Sequence[str],
        *,
        zone: str,
        weight: float,
        reason: str,
        op_id: str,
        at: float,
        owner: str,
    ) -> None:
        """For a job of `owner`: add `weight` to the score of each of these machines, faded to `at` first
        (`domain/failures/host_reputation.py`), and keep the reason. Once for each `op_id`: a repeat changes nothing."""
        ...

    def suspects(self) -> list[Suspect]:
        """Every machine that has a score or is pinned, the highest score first."""
        ...

    def put(self, suspect: Suspect) -> None:
        """Replace the record of that machine."""
        ...

    def remove(self, physical: str) -> None:
        """Forget score, pin and reasons. A repeat of an old accusation does not bring them back. Absent is success."""
        ...


# Members -------------------------------------------------------------------------------------------------------------


class Members(Protocol):
    """Keeps who may use the backend."""

    def find(self, name: str) -> Member | None: ...

    def with_id(self, id: str) -> Member | None:
        """The member who came as that principal."""
        ...

    def all(self) -> list[Member]:
        """By name."""
        ...

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        """Read the member of that name, write what `plan` makes of it (None: no member), whole or not at all, and
        return it. `plan` is pure: it is called again when another write came first."""
        ...


# Secrets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """That there is one. Its value is asked for alone, when a program starts."""

    name: str
    set_at: float


class Secrets(Protocol):
    """Keeps values by owner (`Principal.id`) and name; nothing else of the backend does. Names are checked
    (`domain/secrets.py`). Raises Transient, Refused, StoreError."""

    def put(self, owner: str, name: str, value: str) -> None:
        """Set the value. A read at the same time gets the old value or the new one, whole."""
        ...

    def get(self, owner: str, name: str) -> str:
        """Raises NotFound."""
        ...

    def list(self, owner: str) -> list[KeptSecret]:
        """By name. In the cloud, what was set a moment ago by another process may be missing."""
        ...

    def remove(self, owner: str, name: str) -> None:
        """Absent is success."""
        ...
