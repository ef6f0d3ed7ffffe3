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
from tpujob.adapters.ssh import FileKeys, KeyStore, SecretKeys, SshHosts
from tpujob.adapters.ssh.keys import ROOT, HostKey, public_line
from tpujob.adapters.ssh.secret_manager import LIFETIME
from tpujob.errors import HostKeyChanged, NotFound, Refused, Transient

SLICE, OTHER = "tj-000007-1", "tj-000007-2"
A, B = HostKey("ssh-ed25519", "AAAA"), HostKey("ssh-ed25519", "BBBB", published=True)

#: another process's way into the same store
Open = Callable[[], KeyStore]
Opened = Callable[[], SecretKeys]


@pytest.fixture
def secret_keys(secret_server: SecretServer) -> Iterator[Opened]:
    made: list[SecretKeys] = []

    def open_one() -> SecretKeys:
        made.append(SecretKeys("my-lab-4711", owner="ana", endpoint=secret_server.url))
        return made[-1]

    yield open_one
    for store in made:
        store.close()


@pytest.fixture(params=["files", "secret-manager"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "files":
        return lambda: FileKeys(tmp_path / "keys")
    return request.getfixturevalue("secret_keys")


# Every store ---------------------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_is_the_same_for_all(opened: Open):
    stores = [opened() for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda i: stores[i % 3].private_key(SLICE), range(24)))
    assert len(keys) == 1, "two callers made two keys"
    (key,) = keys
    assert "OPENSSH PRIVATE KEY" in key
    assert public_line(key).startswith("ssh-ed25519 AAAA")
    assert opened().private_key(SLICE) == key
    assert opened().private_key(OTHER) != key


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
    before = store.private_key(SLICE)
    store.pin(SLICE, {"h1": A})
    assert store.names() == [SLICE]
    store.forget(SLICE)
    store.forget(SLICE)
    assert store.names() == []
    assert opened().pinned(SLICE) == {}
    assert opened().private_key(SLICE) != before, "the old key came back"


def test_a_forgotten_key_is_not_made_again_for_a_mere_use(opened: Open):
    """Else a reader of logs would leave a key behind for a slice that is gone."""
    store = opened()
    made = store.private_key(SLICE)
    assert opened().private_key(SLICE, make=False) == made
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


def test_pins_are_for_their_owner_only_and_half_a_line_of_an_old_version_is_none(tmp_path: Path):
    store = FileKeys(tmp_path / "keys")
    store.pin(SLICE, {"h1": A})
    file = tmp_path / "keys" / SLICE / "known_hosts"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    with file.open("a") as appended:
        appended.write(f"h2 {B.type} {B.key[:2]}")
    assert store.pinned(SLICE) == {"h1": A}
    store.pin(SLICE, {"h2": B})
    assert FileKeys(tmp_path / "keys").pinned(SLICE) == {"h1": A, "h2": B}


# Secret Manager ------------------------------------------------------------------------------------------------------


def test_secrets_expire_and_keep_one_version(secret_server: SecretServer, secret_keys: Opened):
    store = secret_keys()
    key = store.private_key(SLICE)
    for host in range(5):
        store.pin(SLICE, {f"h{host}": A})
    assert set(secret_server.secrets) == {f"tpujob-{SLICE}", f"tpujob-{SLICE}-hosts"}
    for secret in secret_server.secrets.values():
        assert secret.body["ttl"] == f"{LIFETIME}s"
        assert secret.body["labels"] == {"tpujob": "1", "tpujob-owner": "ana"}
    versions = [v for v in secret_server.secrets[f"tpujob-{SLICE}-hosts"].versions if v is not None]
    assert len(versions) == 1, "old versions cost money"
    (made,) = secret_server.secrets[f"tpujob-{SLICE}"].versions
    assert made is not None
    assert base64.b64decode(made).decode() == key


def test_the_root_of_signatures_does_not_expire(secret_server: SecretServer, secret_keys: Opened):
    """Signed objects lie in buckets, and are read when a job is resumed, perhaps after a long break."""
    secret_keys().private_key(ROOT)
    body = secret_server.secrets[f"tpujob-{ROOT}"].body
    assert int(body["ttl"].rstrip("s")) > 5 * 365 * 86400
    body["ttl"] = f"{LIFETIME}s"  # as earlier versions had it
    secret_keys().private_key(ROOT)
    assert int(body["ttl"].rstrip("s")) > 5 * 365 * 86400


def test_a_key_in_daily_use_does_not_expire(secret_server: SecretServer, secret_keys: Opened):
    secret_keys().private_key(SLICE)
    secret_server.secrets[f"tpujob-{SLICE}"].body["ttl"] = "1s"
    store = secret_keys()  # as after a restart
    store.private_key(SLICE)
    assert secret_server.secrets[f"tpujob-{SLICE}"].body["ttl"] == f"{LIFETIME}s"
    calls = len(secret_server.asked)
    store.private_key(SLICE)
    assert len(secret_server.asked) == calls, "every use costs a call"


@pytest.mark.parametrize("host", ["h2", "h1"])
def test_a_late_writer_keeps_the_pins_of_the_other(
    secret_server: SecretServer, secret_keys: Opened, host: str
):
    first, second = secret_keys(), secret_keys()
    first.pin(SLICE, {"h0": A})
    overtaken = threading.Event()

    def overtake(method: str, path: str) -> None:
        if path.endswith(":addVersion") and not overtaken.is_set():
            overtaken.set()
            second.pin(SLICE, {host: B})

    secret_server.before = overtake
    if host == "h1":  # two first contacts that met two servers
        with pytest.raises(HostKeyChanged, match="h1"):
            first.pin(SLICE, {"h1": A})
        return
    first.pin(SLICE, {"h1": A})
    assert overtaken.is_set()
    assert secret_keys().pinned(SLICE) == {"h0": A, "h1": A, "h2": B}


def test_256_hosts_are_pinned_with_one_write(secret_server: SecretServer, secret_keys: Opened):
    store = secret_keys()
    keys = {
        f"10.0.{i // 250}.{i % 250}": HostKey("ssh-ed25519", os.urandom(34).hex())
        for i in range(256)
    }
    store.pin(SLICE, keys)
    assert secret_keys().pinned(SLICE) == keys
    assert len([path for path in secret_server.paths() if "addVersion" in path]) == 1
    (payload,) = secret_server.secrets[f"tpujob-{SLICE}-hosts"].versions
    assert payload is not None
    assert len(payload) < 65536, "more than the service takes"


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
    for call in (store.private_key, store.forget):
        with pytest.raises(Transient, match="try again"):
            call(SLICE)
    secret_server.before = lambda *_: None
    assert "OPENSSH" in store.private_key(SLICE), "it did not recover"


def test_secrets_are_kept_in_the_region_that_the_context_names(secret_server: SecretServer) -> None:
    for name, region in ((SLICE, "europe-west4"), (OTHER, "")):
        with closing(SecretKeys("my-lab-4711", region=region, endpoint=secret_server.url)) as store:
            store.private_key(name)
    replications = [secret.body["replication"] for secret in secret_server.secrets.values()]
    assert replications == [
        {"userManaged": {"replicas": [{"location": "europe-west4"}]}},
        {"automatic": {}},
    ]
