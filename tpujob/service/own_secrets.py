"""The secrets of each person, for their own jobs."""

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

    def secrets(self, caller: Principal) -> list[SecretView]:
        return [
            SecretView(name=secret.name, set_at=rfc3339(secret.set_at) if secret.set_at else None)
            for secret in self._secrets.list(caller.id)
        ]

    def set_secret(self, caller: Principal, name: str, value: str) -> None:
        rules.checked_value(rules.checked_name(name), value)
        self._secrets.put(caller.id, name, value)

    def remove_secret(self, caller: Principal, name: str) -> None:
        """Raises NotFound; IllegalInState while a job that goes on names it."""
        self._secrets.get(caller.id, rules.checked_name(name))
        for job in self._store.list(live=True):
            if job.owner == caller.id and name in job.spec.run.secrets:
                raise IllegalInState(
                    f"job {job.id} is active and uses the secret {name}",
                    hint=f"`tpujob secret set {name}` sets another value; `tpujob delete {job.id}` ends the job.",
                )
        self._secrets.remove(caller.id, name)

    def copy(self, owner: str, to: str) -> None:
        """Copy an owner's secrets to another one, who keeps their own of the same names."""
        own = {secret.name for secret in self._secrets.list(to)}
        for secret in self._secrets.list(owner):
            if secret.name not in own:
                self._secrets.put(to, secret.name, self._secrets.get(owner, secret.name))

    def remove_all(self, owner: Principal) -> None:
        """Remove all secrets of an owner. Raises as `remove_secret` does."""
        for secret in self._secrets.list(owner.id):
            self.remove_secret(owner, secret.name)

    def check(self, caller: Principal, spec: JobSpec) -> None:
        """Raises BadSpec when a secret that their job names is not set, or cannot be passed to its program."""
        values: dict[str, str] = {}
        for name in spec.run.secrets:
            with contextlib.suppress(NotFound):
                values[name] = self._secrets.get(caller.id, name)
        rules.check_set(spec.run.secrets, values)
        rules.check_lines(spec.env.docker or "" if spec.env else "", values)
