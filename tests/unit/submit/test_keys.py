"""Files that count as keys: by name, by content, in the diff of a checkout; and files that only look so."""

from pathlib import Path

import pytest

from tests.unit.submit.test_bundle import commit, git
from tpujob.errors import BadSpec
from tpujob.submit.archive import pack
from tpujob.submit.secrets_scan import files_with_keys

BASE64 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"

BY_NAME = """
.env .env.local prod.env .envrc .git-credentials .netrc _netrc .npmrc .pypirc .docker/config.json .dockercfg
.aws/credentials .config/gcloud/application_default_credentials.json .config/gcloud/credentials.db
.config/gcloud/legacy_credentials/ada@example.org/adc.json client_secret_47.json .kube/config kubeconfig lab.kubeconfig
.ssh/id_rsa id_dsa id_ecdsa_sk id_ed25519 id_ed25519.bak server.key SERVER.PEM store.p12 a.jks a.ppk .pgpass .htpasswd
.boto .s3cfg kaggle.json .huggingface/token .cache/huggingface/token .config/gh/hosts.yml .vault-token x.tfstate
.streamlit/secrets.toml .cargo/credentials.toml .aws/config rclone.conf credentials.json token lab/.token
"""
NOT_BY_NAME = """
.env.example .env.sample prod.env.template environment.yaml train.py tokenizer.json config.json keyboard.py
docker/config.json.md aws/credentials.py id_rsa.pub monkey.pyc kube/config.py settings.toml tests/test_env.py env.py
token.py tokens.txt special_token lib/token/vocabulary
"""

BY_CONTENT = {
    "deploy": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BASE64}\n",
    "notes.txt": f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{BASE64}\n",
    "inline.py": f'KEY = "-----BEGIN PRIVATE KEY-----\\n{BASE64}\\n"',
    "pgp.asc": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n",
    "chain.crt": f"-----BEGIN CERTIFICATE-----\n{BASE64 * 200}\n-----BEGIN PRIVATE KEY-----\n{BASE64}",
    "account.json": '{"type": "service_account", "project_id": "lab", "private_key": "x"}',
    "adc": '{\n"client_secret": "x", "refresh_token": "1//x",\n "type": "authorized_user"}',
    "lab.yml": "apiVersion: v1\nkind: Config\nusers:\n- name: ada\n  user:\n    token: abc\n",
    "lab2.yml": "users:\n- user: {client-key-data: LS0tLS1}\nkind: Config\n",
    "putty": "PuTTY-User-Key-File-3: ssh-ed25519\n",
    "one.ipynb": f'["-----BEGIN PRIVATE KEY-----\\n",\n    "{BASE64}\\n"]',
    "two.ipynb": f'["KEY = \\"-----BEGIN PRIVATE KEY-----\\\\n{BASE64}\\\\n\\""]',
    "large.ipynb": " " * 500_000 + "hf_" + "a" * 34,
    "github.py": "TOKEN = 'ghp_" + "a1" * 18 + "'",
    "github2.py": "TOKEN = 'github_pat_" + "a1" * 40 + "'",
    "github3.py": "TOKEN = 'gho_" + "a1" * 18 + "'",
    "gitlab.yml": "token: glpat-" + "a1-_" * 5,
    "aws2.py": "key_id = 'ASIA" + "Q7" * 8 + "'",
    "slack.yml": "bot: xoxb-" + "1234567890-" * 2 + "aB1" * 8,
    "aws.py": "key_id = 'AKIA" + "Q7" * 8 + "'",
    "google.js": "key: 'AIza" + "a-1_b" * 7 + "'",
    "oauth.json": '{"installed": {"client_secret": "GOCSPX-' + "a1-_" * 7 + '"}}',
    "slack.md": "https://hooks.slack.com/services/" + "T01ABCD/B01ABCD/" + "a1" * 12,
    "age.txt": "AGE-SECRET-KEY-1" + "Q" * 58,
}
NOT_BY_CONTENT = {
    "scan.py": 'MARKS = (b"-----BEGIN PRIVATE KEY-----", "service_account")\n',
    "README.md": "The file begins with `-----BEGIN OPENSSH PRIVATE KEY-----`; keep it at home.\n",
    "ca.pem": f"-----BEGIN CERTIFICATE-----\n{BASE64}\n-----END CERTIFICATE-----\n",
    "card.json": '{"type": "service_account", "project_id": "lab"}',
    "map.yaml": "apiVersion: v1\nkind: ConfigMap\ndata: {token: abc}\n",
    "names.py": "from lab import hf_model, hf_tokenizer_for_pretrained_causal_models  # AKIA, ghp_, AIza\n",
    "aws.md": "such as AKIAIOSFODNN7EXAMPLE, or hf_xxx; https://hooks.slack.com/services/...\n",
    "protein.fasta": ">sp\nASIA" + "MKTAYIAKQR" * 5 + "\nAKIA" + "MKTAYIAKQR" * 5 + "\n",
    "places.py": "ASIA_PACIFIC_SOUTHEAST_1, gho_st, glpat-..., xoxb-your-token-of-slack-goes-here\n",
    "public": f"-----BEGIN PUBLIC KEY-----\n{BASE64}\n",
}


def test_names_of_keys_are_known_in_any_folder(tmp_path: Path) -> None:
    keys, others = BY_NAME.split(), NOT_BY_NAME.split()
    for name in (*keys, *others):
        for path in (tmp_path / name, tmp_path / "deep" / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("anything")
    for prefix in ("", "deep/"):
        names = [prefix + name for name in (*keys, *others)]
        assert files_with_keys(tmp_path, names) == [prefix + name for name in keys]


def test_keys_are_known_by_what_is_in_a_file_of_any_name(tmp_path: Path) -> None:
    for name, text in (BY_CONTENT | NOT_BY_CONTENT).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "large").write_text(" " * 2**20 + BY_CONTENT["deploy"])
    (tmp_path / "link").symlink_to("deploy")
    names = [*BY_CONTENT, *NOT_BY_CONTENT, "large", "link", "gone"]
    assert files_with_keys(tmp_path, names) == list(BY_CONTENT)


@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_key_in_utf_16_is_known(tmp_path: Path, encoding: str, mark: str) -> None:
    for name in ("deploy", "putty", "github.py"):
        (tmp_path / name).write_text(mark + BY_CONTENT[name], encoding=encoding)
    (tmp_path / "notes").write_text(mark + "keep ghp_ to yourself", encoding=encoding)
    names = files_with_keys(tmp_path, ["deploy", "putty", "github.py", "notes"])
    assert names == ["deploy", "putty", "github.py"]


def test_a_long_row_of_line_ends_after_a_mark_is_read_once(tmp_path: Path) -> None:
    mark = "-----BEGIN PRIVATE KEY-----"
    (tmp_path / "a.ipynb").write_text(mark + "\\\\nProc-Type: x\n" * 1000)
    assert files_with_keys(tmp_path, ["a.ipynb"]) == []


def test_many_keys_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"{number:02}.key").touch()
    with pytest.raises(BadSpec, match=r"25 files .* 00\.key, .*, 19\.key and 5 more$"):
        pack(tmp_path)


def test_the_diff_of_a_checkout_shows_no_key_either(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=canary-by-name\n")
    (tmp_path / "deploy.txt").write_text(f"-----BEGIN PRIVATE KEY-----\n{BASE64}\n")
    (tmp_path / "train.py").write_text("one\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    for name in (".env", "deploy.txt"):
        (tmp_path / name).unlink()  # what was deleted may still be in use
    (tmp_path / "train.py").write_text("two\n")
    diff = pack(tmp_path).standing["diff"]
    assert "+two" in diff
    assert "canary" not in diff
    assert BASE64 not in diff
    assert BASE64 in pack(tmp_path, allow_keys=True).standing["diff"]
