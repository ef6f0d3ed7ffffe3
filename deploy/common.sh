# Shared parts of the scripts in this folder: settings from the environment, names, and calls of gcloud.
set -euo pipefail

need() {
  if [ -z "${!1:-}" ]; then
    echo "$0: $1 is not set: $2" >&2
    exit 2
  fi
}

need PROJECT "the project's id, such as my-lab-4711"
need REGION "where the backend runs, such as europe-west4"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
backend="tpujob-backend@$PROJECT.iam.gserviceaccount.com"
vm="tpujob-vm@$PROJECT.iam.gserviceaccount.com"
tick="tpujob-tick@$PROJECT.iam.gserviceaccount.com"
build="tpujob-build@$PROJECT.iam.gserviceaccount.com"
sources="${PROJECT//[:.]/_}_cloudbuild" # the bucket into which gcloud puts what is to be built, spelled as gcloud does
sources=${sources//google/elgoog}
router=tpujob-egress # with its Cloud NAT of the same name: what EGRESS=nat of setup.sh makes, and remove.sh removes
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
alert="tpujob backend" # the display name of what alert.sh makes

# Prints a gcloud command, then runs it.
once() {
  echo "+ gcloud $*" >&2
  gcloud --project="$PROJECT" --quiet "$@"
}

# A new account, a new grant and a newly enabled API work only after minutes. Until then Google returns these errors.
not_yet='does not exist|unknown service account|SERVICE_DISABLED|has not been used in project|permission[ _]denied'
not_yet+='|does not have permission|forbidden|error 403'
# Firestore refuses changes of indexes in quick succession.
not_yet+='|ABORTED|contention|underlying data changed'

# Runs a command, and repeats it for two minutes while it fails with one of these errors.
retry() {
  local pause code errors="$scratch/errors"
  for pause in 5 10 15 30 60 0; do
    code=0
    { "$@" 2>&1 >&3 3>&- | tee "$errors" >&2; } 3>&1 || code=$?
    if [ "$code" = 0 ] || [ "$pause" = 0 ] || ! grep -qiE "$not_yet" "$errors"; then break; fi
    echo "$0: Google may need minutes until a new account, grant, API or index works; trying again in $pause s" >&2
    sleep "$pause"
  done
  return "$code"
}

gc() {
  echo "+ gcloud $*" >&2
  retry gcloud --project="$PROJECT" --quiet "$@"
}

# Succeeds if Google's answer reports a missing resource, or an API that was never enabled. A refusal, which often ends
# in "or it may not exist", does not count.
is_missing() { # ANSWER
  grep -qiE 'SERVICE_DISABLED|has not been used in project' <<<"$1" && return
  ! grep -qiE 'denied|forbidden|does not have permission' <<<"$1" &&
    grep -qiE "not found|not_found|does not exist|cannot find" <<<"$1"
}

# Succeeds if a resource exists: `exists iam service-accounts describe ...`. Ends the script on any other error.
exists() {
  local answer
  answer=$(gcloud --project="$PROJECT" --quiet "$@" 2>&1 >/dev/null) && return 0
  is_missing "$answer" && return 1
  echo "$answer" >&2
  exit 1
}

# Prints the state of a custom role: "True": deleted, with its id taken for weeks; "False": present; empty: missing.
# (Google returns deleted roles, too, with a field that marks them.)
role_deleted() {
  local answer
  if exists iam roles describe "$1"; then
    answer=$(gcloud --project="$PROJECT" --quiet iam roles describe "$1" --format='value(name,deleted)')
    if [[ $answer == *True* ]]; then echo True; else echo False; fi
  fi
}

# Prints the first letters of the SHA-256 of standard input: `sha256 8`. macOS has no sha256sum.
sha256() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-"$1"
}

# Prints the value of a key in the context's file, as `tpujob init` writes it: `context_value door`. Empty: not set.
context_value() {
  sed -n "s/^ *$1: *[\"']\{0,1\}\([^\"' #]*\).*/\1/p" "$CONTEXT_FILE" | head -n 1
}

# Prints the regions of the buckets in the context's file, a line for each.
regions() {
  sed -n 's/^ *\([a-z0-9-]*\): *["'"'"']\{0,1\}gs:\/\/.*/\1/p' "$CONTEXT_FILE" | sort -u
}

# Prints the door of the backend; fails for an unknown one.
door() {
  local found
  found=$(context_value door)
  case ${found:-iam} in
    iam | iap | public) echo "${found:-iam}" ;;
    *)
      echo "$0: $CONTEXT_FILE: door is $found: it can be iam, iap or public" >&2
      return 2
      ;;
  esac
}

# Prints a person or a service account in IAM's spelling: `member_of ada@example.org`.
member_of() {
  if [[ ! $1 =~ ^[a-z0-9._+-]+@[a-z0-9-]+(\.[a-z0-9-]+)+$ ]]; then
    echo "$0: '$1' is no e-mail address in small letters; a group cannot be a member" >&2
    return 2
  fi
  case $1 in
    *.gserviceaccount.com) echo "serviceAccount:$1" ;;
    *) echo "user:$1" ;;
  esac
}

# Lets a member through the door of the backend: `admit iam user:ada@example.org [SERVICE]`.
admit() {
  case $1 in
    iam)
      gc run services add-iam-policy-binding "${3:-tpujob}" --region="$REGION" --member="$2" \
        --role=roles/run.invoker --format=none
      ;;
    iap)
      gc beta iap web add-iam-policy-binding --resource-type=cloud-run --service=tpujob --region="$REGION" \
        --member="$2" --role=roles/iap.httpsResourceAccessor --format=none
      ;;
  esac
}

# Removes a binding, with the arguments of adding it; a missing binding is no error. `kept` lists bindings that could
# not be removed.
kept=""
unbind() {
  local answer
  set -- "${@/add-iam-policy-binding/remove-iam-policy-binding}" --format=none
  answer=$(once "$@" 2>&1) || is_missing "$answer" || {
    kept+="  $*"$'\n'
    echo "$answer" >&2
    return 1
  }
}

# Prints the id of the account that a member's programs run as: at most 30 letters, unique for each address.
programs_of() {
  local hash
  hash=$(printf '%s' "$1" | sha256 6)
  printf 'tpujob-vm-%s-%s\n' "$(tr -c 'a-z0-9\n' '-' <<<"${1%%@*}" | sed 's/^-*//' | cut -c1-13 | sed 's/-*$//')" "$hash"
}

# Prints the name of a member's folder in the buckets, unique for names that differ in more than capitals; the
# same as `slug` in tpujob/domain/access.py.
folder_of() {
  local name words
  name=$(printf '%s' "$1" | LC_ALL=C tr 'A-Z' 'a-z' && printf .) && name=${name%.}
  words=$(printf '%s' "$name" | LC_ALL=C tr '\n' '\001' |
    LC_ALL=C sed -E 's/@/-at-/g; s/[^a-z0-9._-]+/-/g; s/^[-._]+//; s/[-._]+$//')
  words=${words:-user}
  if [[ ${words//-at-/@} == "$name" && ${#words} -le 63 && ! $words =~ -[0-9a-f]{16}$ ]]; then
    echo "$words"
  else
    echo "${words:0:46}-$(printf '%s' "$name" | sha256 16)"
  fi
}

below() { # BUCKET PREFIX TITLE MEMBER ROLE VERB: a role for the objects below a prefix
  local condition="$scratch/condition.yaml" # gcloud ends the value of --condition at a comma
  cat >"$condition" <<YAML
title: $3
expression: "resource.name.startsWith('projects/_/buckets/${1#gs://}/objects/$2') || api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('$2')"
YAML
  "$6" storage buckets add-iam-policy-binding "$1" --member="$4" --role="$5" --condition-from-file="$condition"
}

# Adds (with `gc`) or removes (with `unbind`) the rights of the account of a member's programs: the member's folder in
# the context's buckets, reading copies of data sets, writing logs; and the backend may act as the account.
programs() { # ADDRESS MEMBER VERB
  local bucket at
  "$3" projects add-iam-policy-binding "$PROJECT" --member="$2" --role=roles/logging.logWriter --condition=None
  "$3" projects add-iam-policy-binding "$PROJECT" --member="$2" --role=roles/monitoring.metricWriter --condition=None
  at="$(owner)/u/$(folder_of "$1")/"
  for bucket in $(sed -n 's/^ *[a-z0-9-]*: *["'"'"']\{0,1\}\(gs:\/\/[a-z0-9._-]*\).*/\1/p' "$CONTEXT_FILE" | sort -u); do
    below "$bucket" "$at" own-folder "$2" roles/storage.objectUser "$3"
    below "$bucket" datasets/ data-sets "$2" roles/storage.objectViewer "$3"
    "$3" storage buckets add-iam-policy-binding "$bucket" --member="$2" --role=roles/storage.bucketViewer --condition=None
  done
  "$3" iam service-accounts add-iam-policy-binding "${2#serviceAccount:}" --member="serviceAccount:$backend" \
    --role=roles/iam.serviceAccountUser
}

# Prints the backend's folder in the buckets; the same as `owner` in tpujob/config/context.py for a store in Firestore.
owner() {
  local word
  word=$(context_value database)
  word="$PROJECT-${word:-(default)}"
  word=$(tr -d '()' <<<"$word" | sed -E 's/-default$//; s/[^a-z0-9]+/-/g')
  if [ ${#word} -gt 36 ]; then word="${word:0:27}-$(printf '%s' "$word" | sha256 8)"; fi
  echo "$word-fs"
}
