"""A user's secrets: set, listed, removed, and asked for by the jobs that name them. No value leaves by this way in."""

from __future__ import annotations

import contextlib

from tpujob.api import SecretView
from tpujob.domain import secrets as rules
from tpujob.domain.access import Principal
from tpujob.domain.spec import JobSpec
from tpujob.domain.text import rfc3339
from tpujob.errors import IllegalInState, NotFound
from tpujob.ports import Secrets, Store


class OwnSecrets:
    """The caller's own secrets."""

    def __init__(self, store: Store, secrets: Secrets) -> None:
        self._store, self._secrets = store, secrets

    def list(self, who: Principal) -> list[SecretView]:
        return [
            SecretView(name=one.name, set_at=rfc3339(one.set_at) if one.set_at else None)
            for one in self._secrets.list(who.id)
        ]

    def set(self, who: Principal, name: str, value: str) -> None:
        rules.checked_value(rules.checked_name(name), value)
        self._secrets.put(who.id, name, value)

    def remove(self, who: Principal, name: str) -> None:
        """Raises NotFound; IllegalInState while a job that goes on names it."""
        self._secrets.get(who.id, rules.checked_name(name))
        for job in self._store.list(live=True):
            if job.owner == who.id and name in job.spec.run.secrets:
                raise IllegalInState(
                    f"job {job.id} goes on and names the secret {name}",
                    hint=f"`tpujob secret set {name}` sets another value; `tpujob delete {job.id}` ends the job.",
                )
        self._secrets.remove(who.id, name)

    def check(self, who: Principal, spec: JobSpec) -> None:
        """Raises BadSpec when a secret that their job names is not set, or cannot be passed to its program."""
        values: dict[str, str] = {}
        for name in spec.run.secrets:
            with contextlib.suppress(NotFound):
                values[name] = self._secrets.get(who.id, name)
        rules.check_set(spec.run.secrets, values)
        rules.check_lines(spec.env.docker or "" if spec.env else "", values)
