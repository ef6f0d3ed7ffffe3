"""The contract of every store of secrets, files and Secret Manager; and the promises of one of them alone."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.hosts.secret_manager import SecretServer
from tests.support.world import SecretsInMemory
from tpujob.adapters.google.secrets import GoogleSecrets, SecretManager, encoded
from tpujob.adapters.secret_files import SecretFiles
from tpujob.errors import NotFound, StoreError, Transient
from tpujob.ports import Secrets

ADA, BOB = "uid:1000", "uid:1000-b"
KEY = "WANDB_API_KEY"
#: another process's way to the same secrets
Open = Callable[[], Secrets]


@pytest.fixture
def in_google(secret_server: SecretServer) -> Iterator[Open]:
    made: list[SecretManager] = []

    def manager() -> SecretManager:
        made.append(SecretManager("my-lab-4711", endpoint=secret_server.url))
        return made[-1]

    yield lambda: GoogleSecrets(manager, now=lambda: 1764000000.4)
    for client in made:
        client.close()


@pytest.fixture(params=["files", "google", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "files":
        return lambda: SecretFiles(tmp_path / "secrets")
    if request.param == "memory":  # what other tests use
        secrets = SecretsInMemory()
        return lambda: secrets
    return request.getfixturevalue("in_google")


# Everywhere ----------------------------------------------------------------------------------------------------------


def test_a_secret_is_given_back_as_it_was_set(opened: Open) -> None:
    for value in ("hf_0123", "two\nlines\n", "ä \\\"' 日本", " " * 3, "x" * 65536):
        opened().put(ADA, KEY, value)
        assert opened().get(ADA, KEY) == value


def test_the_newest_value_counts_at_once_where_it_was_set(opened: Open) -> None:
    secrets = opened()
    for value in ("one", "two", "three"):
        secrets.put(ADA, KEY, value)
        assert secrets.get(ADA, KEY) == value
    (listed,) = secrets.list(ADA)
    assert (listed.name, listed.set_at > 1.7e9) == (KEY, True)


def test_nobody_finds_what_another_has_set(opened: Open) -> None:
    secrets = opened()
    secrets.put(ADA, KEY, "ada's")
    secrets.put(ADA, "b_" + KEY, "ada's other")
    secrets.put(BOB, KEY, "bob's")
    assert secrets.get(ADA, KEY) == "ada's"
    assert secrets.get(BOB, KEY) == "bob's"
    assert [secret.name for secret in secrets.list(ADA)] == [KEY, "b_" + KEY]
    assert [secret.name for secret in secrets.list(BOB)] == [KEY]
    assert secrets.list("uid:1") == []
    secrets.remove(BOB, KEY)
    assert secrets.get(ADA, KEY) == "ada's"


def test_what_another_process_has_removed_and_set_again_counts(opened: Open) -> None:
    first, second = opened(), opened()
    first.put(ADA, KEY, "one")
    first.put(ADA, KEY, "two")
    second.remove(ADA, KEY)
    second.put(ADA, KEY, "three")
    assert first.get(ADA, KEY) == "three"


def test_what_was_removed_is_gone_and_can_be_set_again(opened: Open) -> None:
    secrets = opened()
    with pytest.raises(NotFound, match=f"no secret {KEY} is set"):
        secrets.get(ADA, KEY)
    secrets.put(ADA, KEY, "one")
    secrets.remove(ADA, KEY)
    secrets.remove(ADA, KEY)
    assert secrets.list(ADA) == []
    with pytest.raises(NotFound):
        opened().get(ADA, KEY)
    secrets.put(ADA, KEY, "two")
    assert opened().get(ADA, KEY) == "two"


# Files ---------------------------------------------------------------------------------------------------------------


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    SecretFiles(tmp_path / "secrets").put("../ada", KEY, "canary")
    modes = {
        str(p.relative_to(tmp_path)): stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")
    }
    folder = "secrets/..%2Fada"
    assert modes == {"secrets": 0o700, folder: 0o700, f"{folder}/{KEY}": 0o600}


def test_a_damaged_file_is_told_without_its_content(tmp_path: Path) -> None:
    secrets = SecretFiles(tmp_path)
    secrets.put("ada", KEY, "canary")
    path = tmp_path / "ada" / KEY
    path.write_text(path.read_text()[:-3])
    with pytest.raises(StoreError, match=f"{KEY} cannot be read") as error:
        secrets.get("ada", KEY)
    assert "canary" not in str(error.value)
    assert error.value.__cause__ is None


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "secrets")
    with pytest.raises(StoreError, match="is a link"):
        SecretFiles(tmp_path / "secrets").put("ada", KEY, "canary")
    assert list((tmp_path / "elsewhere").iterdir()) == []


# Secret Manager ------------------------------------------------------------------------------------------------------


def test_a_prefix_names_one_owner_and_one_version_is_kept(
    secret_server: SecretServer, in_google: Open
) -> None:
    secrets = in_google()
    for value in ("one", "two"):
        secrets.put(ADA, KEY, value)
    secrets.put(BOB, KEY, "bob's")
    assert list(secret_server.secrets) == [
        f"tpujob-s-uid_3a1000-{KEY}",
        f"tpujob-s-uid_3a1000_2db-{KEY}",
    ]
    stored = secret_server.secrets[f"tpujob-s-uid_3a1000-{KEY}"]
    assert [version is None for version in stored.versions] == [True, False], "old ones cost money"
    labels = {"tpujob": "1", "tpujob-user": "uid_3a1000", "tpujob-set": "1764000000"}
    assert stored.body["labels"] == labels
    assert "ttl" not in stored.body, "a secret stays until it is removed"


def test_owners_are_told_apart_in_a_secrets_name() -> None:
    odd = ["ada", "Ada", "a-da", "a_da", "ada@example.org", "ada_40example", "ä", ""]
    owners = [*odd, "x" * 80, "x" * 81]
    codes = [encoded(owner) for owner in owners]
    assert len(set(codes)) == len(owners)
    assert not [code for code in codes if len(code) > 63 or "-" in code]


def test_a_reader_with_an_old_list_waits(secret_server: SecretServer, in_google: Open) -> None:
    secrets = in_google()
    secrets.put(ADA, KEY, "one")
    secret_server.secrets[f"tpujob-s-uid_3a1000-{KEY}"].versions[0] = (
        None  # `latest` is this one still
    )
    with pytest.raises(Transient, match=f"{KEY} is just being set"):
        secrets.get(ADA, KEY)
