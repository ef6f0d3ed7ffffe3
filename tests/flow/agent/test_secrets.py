"""Secrets on a host come by standard input; only the program has them, and no file or upload."""

import base64
import contextlib
import json
import random
import re
import sys
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode

import pytest

from tests.support.agent_host import Host, until
from tpujob.agent.upload import Redactor
from tpujob.protocol.limits import secret_variables

CANARY = 'canary-1f6b/"\\ä-yellow'
MARK = "[secret WANDB_API_KEY]"


def redact(secrets: dict[str, str], text: bytes) -> bytes:
    return Redactor(secrets).redact(text)


# The net -------------------------------------------------------------------------------------------------------------


def test_a_value_is_found_wherever_it_stands() -> None:
    text = f"key={CANARY}, and {CANARY[:9]} alone\n{CANARY}".encode()
    expected = f"key={MARK}, and {CANARY[:9]} alone\n{MARK}".encode()
    assert redact({"WANDB_API_KEY": CANARY}, text) == expected


def test_no_value_is_left_in_any_text() -> None:
    draw = random.Random(4)
    for _ in range(400):
        secrets = {n: "".join(draw.choices("ab", k=draw.randint(8, 11))) for n in "XYZ"}
        text = "".join(draw.choices("ab\n", (9, 9, 1), k=90)).encode()
        whole = redact(secrets, text)
        assert not [v for v in secrets.values() if v.encode() in whole], (secrets, text)


def test_values_that_overlap_leave_no_part_of_either() -> None:
    secrets = {"A": "abcdefgh", "B": "efghijkl", "C": "abcdefghijklmnop"}
    for text in (b"abcdefghijkl.", b"abcdefgh.", b"efghijkl.", b"abcdefghijklmnop."):
        assert redact(secrets, text) in (b"[secret A].", b"[secret B].", b"[secret C].")


def test_each_line_of_a_value_of_several_is_a_secret() -> None:
    secrets = {"SSH_KEY": "-----BEGIN KEY-----\nc2VjcmV0LWxpbmU=\nend\n"}
    assert redact(secrets, b"got c2VjcmV0LWxpbmU=\r\nend\n") == b"got [secret SSH_KEY]\r\nend\n"


def test_a_value_is_also_found_as_json_escapes_it() -> None:
    assert CANARY not in json.dumps(CANARY)
    text = redact({"K": CANARY}, json.dumps({"K": CANARY}).encode())
    assert json.loads(text) == {"K": "[secret K]"}


@pytest.mark.parametrize(
    "value", ["pa ss/wo+rd=\u00e4\N{EURO SIGN}?&%#~", "hf_plainLetters0123", "8 chars?"]
)
def test_a_value_is_found_as_urls_and_basic_auth_spell_it(value: str) -> None:
    data = value.encode()
    spelt = [quote(value), quote(value, safe=""), quote_plus(value), urlencode({"q": value})[2:]]
    spelt += [re.sub("%..", lambda code: code[0].lower(), text) for text in spelt]
    for text in spelt:
        line = f"GET https://api.example.com/?key={text}&step=1\n"
        assert redact({"K": value}, line.encode()) == line.replace(text, "[secret K]").encode()
    for before in (b"", b"a", b"ab", b"user:", b"somebody:"):
        for after in (b"", b"\n", b" and more"):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                text = encode(before + data + after)
                redacted = redact({"K": value}, b"Authorization: Basic " + text + b"\n")
                assert redacted.count(b"[secret K]") == 1, (text, redacted)
                rest = redacted.replace(b"[secret K]", b"").removeprefix(b"Authorization: Basic ")
                around = len(encode(before)) + len(encode(after))
                assert len(rest.strip()) <= around + 4, "too many letters beside it are left"


def test_short_values_are_words_and_are_left_alone() -> None:
    assert redact({"A": "true", "B": "1234567"}, b"true 1234567") == b"true 1234567"


def test_names_of_variables_tell_which_values_are_secret() -> None:
    secret = "HF_TOKEN wandb_api_key MY_PASSWORD DB_PASSWORDS AWS_SECRET_ACCESS_KEY AUTHTOKEN GOOGLE_CREDENTIALS KEY2"
    plain = "TOKENIZER MAX_TOKENS KEYBOARD PATH STEPS MONKEYPATCH"
    names = secret_variables(dict.fromkeys(f"{secret} {plain}".split(), "x"))
    assert set(names) == set(secret.split())


# The host ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, pathlib, sys, time
value, told = os.environ["WANDB_API_KEY"], os.environ["HF_TOKEN"]
pathlib.Path(os.environ["HOME"], "had").write_text(value)
out = pathlib.Path(os.environ["TPUJOB_OUT"])
(out / "events.jsonl").write_text('{"kind": "phase", "name": "%s"}\\n' % told)
for cut in range(len(value)):
    sys.stdout.write(value[:cut]); sys.stdout.flush()
    print(value[cut:], told, flush=True)
print("x" * 65500 + told)
raise SystemExit("failed with " + told)
"""


def written(host: Host, *values: str) -> list[str]:
    """The files of the host and objects of its bucket that hold one of the values."""
    folders = (host.home, host.home.parent / "storage")
    files = [f for folder in folders for f in folder.rglob("*") if f.is_file()]
    return [str(f) for f in files if any(v.encode() in f.read_bytes() for v in values)]


def test_a_program_has_its_secrets_and_nothing_else_does(host: Host) -> None:
    token = "hf_0123456789abcdef"
    secrets, setup = {"WANDB_API_KEY": CANARY}, "echo $WANDB_API_KEY"
    program = ["python3", "-c", PROGRAM]
    report = host.run(program, secrets=secrets, env={"HF_TOKEN": token}, setup=setup)
    log = host.bucket.log()
    assert f"[setup] {MARK}" in log
    assert log.count(f"{MARK} [secret HF_TOKEN]") == len(CANARY), log
    assert "failed with [secret HF_TOKEN]" in log
    assert report["program_phase"] == "[secret HF_TOKEN]"
    until(lambda: not host.processes(), "the end of the agent, which still writes")
    host.bucket.away()  # its files are at rest
    # what the program itself wrote, and the plan, which has what `run.env` says
    for own in (host.home / "had", host.out() / "events.jsonl", *host.home.glob("plan-*")):
        own.unlink()
    assert (host.home / ".tpujob").is_dir()
    assert written(host, CANARY, token) == []


def holding(host: Host) -> dict[int, str]:
    """Return the commands of the host's processes that have the canary, by pid."""
    commands: dict[int, str] = {}
    for pid in host.processes():
        process = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):
            content = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            if CANARY.encode() in content:
                commands[pid] = (process / "comm").read_text().strip()
    return commands


def test_only_the_program_has_them_while_it_runs(host: Host) -> None:
    secrets = {"WANDB_API_KEY": CANARY}
    daemon = host.start("touch ~/up; sleep 1000; true", secrets=secrets)["pid"]
    until((host.home / "up").exists, "the program")
    launcher = Path(sys.executable).name
    until(lambda: set(holding(host).values()) == {launcher, "bash", "sleep"}, f"{holding(host)}")
    assert daemon not in holding(host)
    host.agent("stop", "--grace", 1)


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"key": "", "cache_key": "", "secrets": {"A": 1}}', '{"key": ""}', "{"]
)
def test_secrets_that_did_not_arrive_start_nothing(host: Host, text: str) -> None:
    answer = host.agent("start", host.plan("true"), "--secrets-on-stdin", input=text)
    assert (answer["ok"], answer["error"]) == (False, "the keys and secrets did not arrive")
