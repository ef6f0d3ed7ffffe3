"""Settings from any environment: folders, user, context, and what processes of the stack get."""

import errno
import os
import stat
from pathlib import Path

import pytest

from tpujob.config.settings import Settings, for_processes, load, no_color, prepare
from tpujob.errors import BadRequest, StoreError


def at(state: Path, **env: str) -> Settings:
    return load(env={"TPUJOB_STATE": str(state), "USER": "ana", **env})


@pytest.mark.parametrize(
    ("env", "state"),
    [
        ({"TPUJOB_STATE": "/a/b", "XDG_STATE_HOME": "/x"}, "/a/b"),
        ({"XDG_STATE_HOME": "/x"}, "/x/tpujob"),
        ({"XDG_STATE_HOME": "relative"}, "/home/ana/.local/state/tpujob"),
        ({"TPUJOB_STATE": "", "XDG_STATE_HOME": ""}, "/home/ana/.local/state/tpujob"),
    ],
)
def test_the_state_folder_is_the_first_in_the_environment(env: dict[str, str], state: str) -> None:
    assert load(env={**env, "USER": "ana", "HOME": "/home/ana"}).state == Path(state)


def test_a_relative_state_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(env={"TPUJOB_STATE": "here"}).state == tmp_path / "here"
    assert load(Path("here"), env={"TPUJOB_STATE": "/elsewhere"}).state == tmp_path / "here"


def test_without_a_home_the_folder_follows_from_the_account(tmp_path: Path) -> None:
    assert load(env={}).state.is_absolute()
    assert load(env={}).user


@pytest.mark.parametrize(
    ("login", "user"),
    [
        ("ana", "ana"),
        ("Ana.Lopez@example.com", "ana.lopez@example.com"),
        ("DOMAIN\\ana", "domain-ana"),
        ("$(reboot)", "reboot"),
        ("jörg", "j-rg"),
        ("\udcff", "user"),
        ("x" * 99, "x" * 64),
    ],
)
def test_any_name_becomes_one_that_a_member_can_have(login: str, user: str) -> None:
    assert load(env={"HOME": "/home/ana", "TPUJOB_USER": login}).user == user
    assert load(env={"HOME": "/home/ana", "LOGNAME": login}).user == user


def test_the_context_is_local_until_a_file_says_otherwise(tmp_path: Path) -> None:
    assert at(tmp_path).context == "local"
    (tmp_path / "context.json").write_text('{"context": "lab"}')
    assert at(tmp_path).context == "lab"
    assert at(tmp_path, TPUJOB_CONTEXT="other").context == "other"
    with pytest.raises(BadRequest, match=r"'\.\./x' is not a valid name of a context"):
        at(tmp_path, TPUJOB_CONTEXT="../x")


def test_two_contexts_share_no_file_and_reading_settings_makes_none(tmp_path: Path) -> None:
    contexts = [at(tmp_path, TPUJOB_CONTEXT=name) for name in ("lab", "home", "local")]
    files = [{s.home, s.run, s.db, s.keys, s.ready_file("backend")} for s in contexts]
    assert len(set.union(*files)) == 15
    assert all(path.is_relative_to(tmp_path) for path in set.union(*files))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", '{"context": 7}', '{"context": "../x"}'])
def test_a_damaged_context_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "context.json").write_text(text)
    with pytest.raises(BadRequest, match=r"context\.json does not name a context"):
        at(tmp_path)


def test_the_environment_disables_colours() -> None:
    assert no_color({"NO_COLOR": "1"})
    assert no_color({"TERM": "dumb"})
    assert not no_color({"NO_COLOR": "", "TERM": "xterm"})


# Folders and secrets -------------------------------------------------------------------------------------------------


def test_the_folders_are_closed_to_other_users(tmp_path: Path) -> None:
    settings = at(tmp_path / "a" / "b")
    before = os.umask(0)
    try:
        prepare(settings)
        settings.state.chmod(0o755)
        prepare(settings)
    finally:
        os.umask(before)
    for folder in (settings.state, settings.run, settings.keys, settings.emulator_state):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["", "run", "keys"])
def test_a_link_in_the_place_of_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "state" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StoreError, match="is a link") as raised:
        prepare(at(tmp_path / "state"))
    assert "TPUJOB_STATE" in raised.value.hint
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 65534, 65534)
    with pytest.raises(StoreError, match="belongs to another user"):
        prepare(at(state))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the folder") as raised:
        prepare(at(tmp_path / "file" / "state"))
    assert "TPUJOB_STATE" in raised.value.hint


def test_a_folder_open_to_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)

    def chmod(self: Path, mode: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(StoreError, match=r"cannot close the folder .*: Read-only file system"):
        prepare(at(state))


def test_processes_of_the_stack_do_not_get_the_secrets_of_the_shell_that_starts_them() -> None:
    plain = {"PATH": "/bin", "TPUJOB_KEYS": "files", "GOOGLE_APPLICATION_CREDENTIALS": "/adc.json"}
    shell = plain | {"HF_TOKEN": "x", "WANDB_API_KEY": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    assert for_processes(shell) == plain


def test_jobs_are_kept_in_a_file_unless_firestore_is_asked_for(tmp_path: Path) -> None:
    usual = at(tmp_path)
    assert (usual.store, usual.database) == ("sqlite", "(default)")
    cloud = at(tmp_path, TPUJOB_STORE="firestore", TPUJOB_DATABASE="tpujob")
    assert (cloud.store, cloud.database, cloud.firestore_emulator) == ("firestore", "tpujob", "")
    with pytest.raises(BadRequest, match="TPUJOB_STORE is 'postgres'"):
        at(tmp_path, TPUJOB_STORE="postgres")
