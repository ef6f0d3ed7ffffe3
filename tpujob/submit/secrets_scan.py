"""Finds files that look like keys, by their names and by their contents. Code is not shipped with such a file unless
the user allows it. The content of a file larger than 1 MiB is not searched.
"""

import codecs
import os
import re
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

#: names of files that hold only secrets, some with the name of their folder: `.aws/credentials`
_NAMES = re.compile(
    r"""(?:^|/)(?:
      \.env(?:\..+)? | .+\.env | \.envrc                             # variables of a program
    | \.git-credentials | \.netrc | _netrc | \.curlrc                # passwords of hosts
    | \.npmrc | \.yarnrc | \.pypirc | pip\.conf | \.gemrc/credentials | \.cargo/credentials(?:\.toml)?
    | \.docker/config\.json | \.dockercfg | containers/auth\.json
    | \.aws/(?:credentials|config) | rclone\.conf | \.boto | \.s3cfg | \.azure/[^/]+\.json | \.oci/config
    | application_default_credentials\.json | gcloud/(?:credentials|access_tokens)\.db
    | (?:gcloud/)?legacy_credentials/.+ | client_secrets?(?:_.+)?\.json | credentials\.json
    | \.kube/config | kubeconfig | .+\.kubeconfig
    | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:\.(?!pub$)[^/]+)?       # of SSH
    | .+\.(?:key|pem|p12|pfx|jks|keystore|ppk|kdbx|gpg-key)          # of anything
    | \.pgpass | \.my\.cnf | \.htpasswd | \.vault-token | \.terraformrc | .+\.tfstate
    | kaggle\.json | huggingface/(?:token|stored_tokens) | \.huggingface/token | gh/hosts\.yml
    | \.streamlit/secrets\.toml | \.databrickscfg | \.snowflake/.+\.toml | \.?token
    )$""",
    re.VERBOSE | re.IGNORECASE,
)
#: folders in which each file may be a key
_FOLDERS = re.compile(
    r"(?:^|/)\.(?:ssh|aws|azure|docker|gnupg|kube|config/gcloud)(?:/|$)", re.IGNORECASE
)
#: similar names of files without secrets, which projects commit on purpose
_HARMLESS = re.compile(
    r"(?:^|/)\.?(?:.+\.)?env\.(?:example|sample|template|dist|defaults?)$", re.IGNORECASE
)
#: suffixes of texts that may mention keys: in them the mark of a key alone does not count
_PROSE = (".py", ".pyi", ".ipynb", ".md", ".rst", ".txt", ".sh", ".js", ".ts", ".go", ".rs", ".c")

#: bytes of the largest file that is searched, such as a notebook with figures; larger files are data
_LARGEST = 1024 * 1024
_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TOKEN = re.compile(  # of GitHub, GitLab, Hugging Face, AWS, Google (API key, client of OAuth) and Slack, in that order
    rb"(?<![A-Za-z0-9_])(?:gh[po]_[A-Za-z0-9]{36}|github_pat_\w{60}|glpat-[\w-]{20}|hf_[A-Za-z]{34}"
    rb"|A[KS]IA(?!\w*EXAMPLE)[A-Z0-9]{16}(?!\w)|AIza[\w-]{35}|GOCSPX-[\w-]{28}"
    rb"|https://hooks\.slack\.com/services/T\w+/B\w+/\w{20}|xoxb-\d{10,}-[\w-]{20})"
)
_MARK = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|^PuTTY-User-Key-File-\d")
_BLOCK = re.compile(  # the mark, perhaps headers, and a key's first letters, also as source code writes them
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:\\++[rn]?+|[\s\"'+,]|[A-Za-z0-9-]+: [^\n]*\n)*[A-Za-z0-9+/]{32}"
)
_AGE = re.compile(rb"AGE-SECRET-KEY-1[A-Z0-9]{50}")
_ACCOUNT = re.compile(rb'"type"\s*:\s*"(?:service_account|authorized_user|\w+_authorized_user)"')
_ACCOUNT_KEY = re.compile(rb'"(?:private_key|refresh_token|client_secret)"\s*:\s*"[^"]')
_KUBE = re.compile(rb"client-key-data:\s*\S")
_KUBE_CONFIG = re.compile(rb"kind:\s*Config\b")
_KUBE_KEY = re.compile(rb"(?:token|password|client-key):\s*\S")
_CERTIFICATE = re.compile(rb"-----BEGIN (?:CERTIFICATE|(?:RSA )?PUBLIC KEY|X509 CRL)-----")


def files_with_keys(folder: Path, names: Iterable[str]) -> list[str]:
    """Return the names of files that look like keys, in the same order."""
    root = str(folder)
    return [name for name in names if _looks_like_a_key(f"{root}/{name}", name)]


def named_like_a_key(name: str) -> bool:
    """Return whether the path is that of a file that holds only secrets."""
    return bool(_NAMES.search(name)) and not _HARMLESS.search(name)


def key_below(path: Path, most: int | None = None) -> str:
    """Return the path, or that of a file below it, if its name is that of a key; empty: there is none. `most`: number
    of files below it that are looked at."""
    inside = (f"{root}/{name}" for root, _, names in os.walk(path) for name in names)
    names = chain((str(path),), islice(inside, most))
    return next(filter(_is_named_key, names), "")


def _is_named_key(path: str) -> bool:
    """Return whether the path is in a folder of keys, or that of a file that its name and content show to be a key."""
    return bool(_FOLDERS.search(path)) or (named_like_a_key(path) and _looks_like_a_key(path, path))


def holds_a_key(text: bytes, *, prose: bool) -> bool:
    """Return whether the text has a key. `prose`: the text may mention keys without having one."""
    if (_BLOCK if prose else _MARK).search(text) or _AGE.search(text) or _TOKEN.search(text):
        return True
    if _ACCOUNT.search(text) and _ACCOUNT_KEY.search(text):
        return True
    if prose:
        return False
    return bool(_KUBE.search(text) or (_KUBE_CONFIG.search(text) and _KUBE_KEY.search(text)))


def _looks_like_a_key(path: str, name: str) -> bool:
    named = named_like_a_key(name)
    if named and not name.lower().endswith(".pem"):
        return True
    text = _read(path)
    if named:  # a .pem with certificates alone is public
        return not _CERTIFICATE.search(text) or bool(_MARK.search(text))
    return holds_a_key(text, prose=name.endswith(_PROSE))


def _read(path: str) -> bytes:
    """Return the content of a small file; empty: a large or unreadable file. Packing raises the error."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        text = os.read(fd, _LARGEST + 1)
    except OSError:
        return b""
    finally:
        os.close(fd)
    if len(text) > _LARGEST:
        return b""
    begin = text[:64]
    utf16 = begin.startswith(_BOMS) or not any(begin[::2]) or not any(begin[1::2])
    return text.replace(b"\0", b"").lstrip(b"".join(_BOMS)) if utf16 else text
