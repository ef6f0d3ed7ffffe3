"""The contract of stores of SSH keys, in files and in Secret Manager; and the behaviour of Secret Manager alone."""

import base64
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.hosts.secret_manager import Refusal, SecretServer
from tests.support.farm_rig import slice_at
from tests.support.firestore_emulator import firestore_endpoint, firestore_place
from tests.support.stores import firestore
from tpujob.adapters.firestore.book import FirestoreBook
from tpujob.adapters.ssh import FileKeys, KeyStore, SecretKeys, SshHosts
from tpujob.adapters.ssh.keys import ROOT, HostKey, public_line
from tpujob.adapters.ssh.secret_manager import LIFETIME, derived_key
from tpujob.errors import HostKeyChanged, NotFound, Refused, Transient

__all__ = ["firestore_endpoint", "firestore_place"]  # fixtures
SLICE, OTHER = "tj-000007-1", "tj-000007-2"
A, B = HostKey("ssh-ed25519", "AAAA"), HostKey("ssh-ed25519", "BBBB", published=True)

#: another process's way into the same store
Open = Callable[[], KeyStore]
Opened = Callable[[], SecretKeys]


class MemoryBook:
    """A `Book` that all stores of a test share."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._lock = threading.Lock()

    def read(self, name: str) -> str | None:
        return self._texts.get(name)

    def change(self, name: str, plan: Callable[[str | None], str | None]) -> str | None:
        with self._lock:
            new = plan(self._texts.get(name))
            self._texts = {n: t for n, t in self._texts.items() if n != name}
            if new is not None:
                self._texts[name] = new
            return new

    def names(self) -> list[str]:
        return sorted(self._texts)


@pytest.fixture
def secret_keys(secret_server: SecretServer) -> Iterator[Opened]:
    made: list[SecretKeys] = []
    book = MemoryBook()

    def open_one() -> SecretKeys:
        made.append(SecretKeys("my-lab-4711", book, owner="ana", endpoint=secret_server.url))
        return made[-1]

    yield open_one
    for store in made:
        store.close()


@pytest.fixture(params=["files", "secret-manager", "secret-manager-and-firestore"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    if request.param == "files":
        yield lambda: FileKeys(tmp_path / "keys")
    elif request.param == "secret-manager":
        yield request.getfixturevalue("secret_keys")
    else:
        server = request.getfixturevalue("secret_server")
        database = firestore(request.getfixturevalue("firestore_place"))
        book = FirestoreBook(database, "hostkeys")
        yield lambda: SecretKeys("my-lab-4711", book, endpoint=server.url)
        database.close()


# Every store ---------------------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_the_same_for_all(opened: Open):
    stores = [opened() for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda i: stores[i % 3].private_key(SLICE), range(24)))
    assert len(set(map(public_line, keys))) == 1, "two callers made two keys"
    assert "OPENSSH PRIVATE KEY" in keys[0]
    assert public_line(keys[0]).startswith("ssh-ed25519 AAAA")
    assert public_line(opened().private_key(SLICE)) == public_line(keys[0])
    assert public_line(opened().private_key(OTHER)) != public_line(keys[0])


def test_a_pin_lasts_and_is_never_replaced(opened: Open):
    first, second = opened(), opened()
    assert first.pinned(SLICE) == {}
    first.pin(SLICE, {"h1": A, "h2": B})
    first.pin(SLICE, {"h1": A})
    second.pin(SLICE, {"h3": A})
    assert opened().pinned(SLICE) == {"h1": A, "h2": B, "h3": A}
    with pytest.raises(HostKeyChanged, match="h1"):
        second.pin(SLICE, {"h4": A, "h1": B})
    assert opened().pinned(SLICE) == {"h1": A, "h2": B, "h3": A}, "a half of it was written"
    assert opened().pinned(OTHER) == {}


def test_pins_of_many_writers_at_once_are_all_kept(opened: Open):
    stores = [opened() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda i: stores[i].pin(SLICE, {f"h{i}": A}), range(3)))
    assert opened().pinned(SLICE) == {f"h{i}": A for i in range(3)}


def test_forgotten_keys_are_gone(opened: Open):
    store = opened()
    store.private_key(SLICE)
    store.pin(SLICE, {"h1": A})
    assert store.names() == [SLICE]
    store.forget(SLICE)
    store.forget(SLICE)
    assert store.names() == []
    assert opened().pinned(SLICE) == {}
    with pytest.raises(NotFound):
        opened().private_key(SLICE, make=False)


def test_a_forgotten_key_is_not_made_again_for_a_mere_use(opened: Open):
    """Else a reader of logs would leave a key behind for a slice that is gone."""
    store = opened()
    made = store.private_key(SLICE)
    assert public_line(opened().private_key(SLICE, make=False)) == public_line(made)
    store.forget(SLICE)
    with pytest.raises(NotFound, match=f"the key of {SLICE} is gone"):
        store.private_key(SLICE, make=False)
    assert store.names() == []


def test_a_name_that_leads_elsewhere_is_refused(opened: Open):
    store = opened()
    for call in (store.private_key, store.pinned, store.forget):
        with pytest.raises(ValueError, match="not the name of a slice"):
            call("../keys")


def test_keys_of_reports_come_from_one_secret_that_no_sweep_takes(opened: Open):
    """Backends that share a store of keys make the same ones, at once, also after a restart."""
    hosts = [SshHosts(opened()) for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda i: hosts[i % 3].key(("attempt", "000007", "1")), range(24)))
    assert len(made) == 1
    assert hosts[0].key(("attempt", "000007", "2")) not in made
    assert SshHosts(opened()).key(("attempt", "000007", "1")) in made
    hosts[0].public_key(slice_at(SLICE, "10.0.0.1"))
    assert hosts[0].kept() == [SLICE], "the secret is no slice's"


# Files ---------------------------------------------------------------------------------------------------------------


def test_pins_are_for_their_owner_only(tmp_path: Path):
    store = FileKeys(tmp_path / "keys")
    store.pin(SLICE, {"h1": A})
    file = tmp_path / "keys" / SLICE / "known_hosts"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    assert store.pinned(SLICE) == {"h1": A}
    store.pin(SLICE, {"h2": B})
    assert FileKeys(tmp_path / "keys").pinned(SLICE) == {"h1": A, "h2": B}


# Secret Manager ------------------------------------------------------------------------------------------------------


def test_any_number_of_slices_costs_one_version(secret_server: SecretServer, secret_keys: Opened):
    store = secret_keys()
    lines = {public_line(store.private_key(f"tj-{n:06}-1")) for n in range(20)}
    assert len(lines) == 20
    store.pin(SLICE, {"h1": A})
    store.forget(SLICE)
    (secret,) = secret_server.secrets.values()
    assert set(secret_server.secrets) == {f"tpujob-{ROOT}"}, "in the names that its role allows"
    assert secret.body["labels"] == {"tpujob": "1", "tpujob-owner": "ana"}
    (version,) = secret.versions
    assert version is not None
    root = base64.b64decode(version).decode()
    assert secret_keys().private_key(ROOT) == root
    assert public_line(store.private_key(OTHER)) == public_line(derived_key(root, OTHER))
    assert len([path for path in secret_server.paths() if ":access" in path]) <= 3


def test_a_derived_key_follows_from_the_secret_and_the_name() -> None:
    """A key that changed with a new version of the program would lock the backend out of running slices."""
    line = public_line(derived_key("root", SLICE))
    assert (
        line
        == "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFVSyvqEKd9aCc0R8fL64Rifgf2wFheh8xLNdZojc2vt tpujob"
    )
    assert public_line(derived_key("root", OTHER)) != line
    assert public_line(derived_key("another root", SLICE)) != line


def test_the_secret_in_daily_use_does_not_expire(secret_server: SecretServer, secret_keys: Opened):
    """Signed objects lie in buckets, and are read when a job is resumed, perhaps after a long break."""
    secret_keys().private_key(ROOT)
    body = secret_server.secrets[f"tpujob-{ROOT}"].body
    assert int(body["ttl"].rstrip("s")) > 5 * 365 * 86400
    body["ttl"] = "1s"
    store = secret_keys()  # as after a restart
    store.private_key(SLICE)
    assert body["ttl"] == f"{LIFETIME}s"
    calls = len(secret_server.asked)
    for n in range(5):
        store.private_key(f"tj-{n:06}-1")
    assert len(secret_server.asked) == calls, "a slice costs a call"


def test_256_hosts_are_pinned(opened: Open):
    keys = {
        f"10.0.{i // 250}.{i % 250}": HostKey("ssh-ed25519", os.urandom(34).hex())
        for i in range(256)
    }
    opened().pin(SLICE, keys)
    assert opened().pinned(SLICE) == keys


def test_errors_of_the_service_are_passed_on(secret_server: SecretServer, secret_keys: Opened):
    store = secret_keys()

    def refuse(code: int, name: str, message: str) -> None:
        def before(_method: str, _path: str) -> None:
            raise Refusal(code, name, message)

        secret_server.before = before

    refuse(403, "PERMISSION_DENIED", "Permission 'secretmanager.secrets.create' denied")
    with pytest.raises(Refused, match=r"secretmanager\.secrets\.create") as caught:
        store.private_key(SLICE)
    assert caught.value.cause == "PERMISSION"
    refuse(503, "UNAVAILABLE", "try again")
    with pytest.raises(Transient, match="try again"):
        store.private_key(SLICE)
    secret_server.before = lambda *_: None
    assert "OPENSSH" in store.private_key(SLICE), "it did not recover"


def test_secrets_are_kept_in_the_region_that_the_context_names(secret_server: SecretServer) -> None:
    replications: list[object] = []
    for region in ("europe-west4", ""):
        secret_server.secrets.clear()
        made = SecretKeys("my-lab-4711", MemoryBook(), region=region, endpoint=secret_server.url)
        with closing(made) as store:
            store.private_key(SLICE)
        replications += [secret.body["replication"] for secret in secret_server.secrets.values()]
    assert replications == [
        {"userManaged": {"replicas": [{"location": "europe-west4"}]}},
        {"automatic": {}},
    ]
