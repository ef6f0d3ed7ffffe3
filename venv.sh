#!/bin/sh
# Installs what a lock names, and tpujob itself in place, into .venv: venv.sh PYTHON demo|all.
# make calls it. .venv/.demo and .venv/.installed are written last, so an installation that was cut short is repeated.
#
# uv installs in seconds what takes pip more than a minute; it comes by its hash from requirements.lock, trusts the
# system's certificates, and asks the index that pip would ask. Where it cannot be had or cannot install, pip does it all.
set -eu
python=$1 part=$2

# Of several at once, one installs and the others wait. macOS has no flock.
if command -v flock >/dev/null; then
  exec 9<"$0"
  flock 9
fi
stamp=.venv/.installed locks="requirements.lock requirements-libtpu.lock"
if [ "$part" = demo ]; then
  stamp=.venv/.demo locks=requirements-demo.lock
fi
current() {
  [ -e "$1" ] && [ -z "$(find pyproject.toml requirements*.lock -newer "$1")" ]
}
if current $stamp; then
  exit
elif [ "$part" = demo ] && current .venv/.installed; then
  exec touch .venv/.demo
fi

[ -n "$python" ] || { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
echo "Installing into .venv (once; ten seconds to three minutes) ..."
pip=".venv/bin/python -m pip --disable-pip-version-check"
$pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$($pip config get global.index-url 2>/dev/null || :)}}
[ -z "$index" ] || export UV_DEFAULT_INDEX="$index"

# libtpu has no wheels for a glibc before 2.31: tests that compile for a TPU are then skipped, and say so.
if .venv/bin/python -c 'import platform, sys
name, version = platform.libc_ver()
sys.exit(not (name == "glibc" and tuple(map(int, version.split("."))) < (2, 31)))'; then
  locks=${locks% requirements-libtpu.lock}
fi
files=$(printf ' -r %s' $locks)

no_index() {
  echo "The index of packages $1: is the network up? PIP_INDEX_URL names another index, HTTPS_PROXY a proxy." >&2
  exit 1
}

awk '/^[^ ]/ { uv = /^uv==/ } uv' requirements.lock >.venv/uv.txt
uv=".venv/bin/uv --quiet --system-certs pip install --python .venv/bin/python"
own="--no-deps --no-build-isolation -e ."
if $pip install --quiet --require-hashes --only-binary :all: -r .venv/uv.txt 2>.venv/pip.log &&
  $uv --require-hashes $files && $uv $own; then
  :
else
  cat .venv/pip.log >&2
  ! grep -q Retrying .venv/pip.log || no_index "does not answer"
  echo "uv could not install it; pip takes one to three minutes" >&2
  $pip install --quiet --require-hashes $files || no_index "does not answer, or lacks a package that is named above"
  $pip install --quiet $own
fi
touch .venv/.demo $stamp
