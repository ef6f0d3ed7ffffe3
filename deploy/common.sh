# What the scripts here share: their settings from the environment, names, and calls of gcloud.
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
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints a gcloud command, then runs it.
once() {
  echo "+ gcloud $*" >&2
  gcloud --project="$PROJECT" --quiet "$@"
}

# A new account, a new grant and a newly enabled API work only after some minutes. Until then Google answers one of these.
not_yet='does not exist|unknown service account|SERVICE_DISABLED|has not been used in project|permission[ _]denied'
not_yet+='|does not have permission|forbidden|error 403'
# Firestore refuses changes of indexes that come close upon each other.
not_yet+='|ABORTED|contention|underlying data changed'

# Runs a command, and repeats it for two minutes while its error is one of those.
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

# Whether Google's answer is about something that is not there, or whose API was never enabled. Of a refusal, which often
# ends in "or it may not exist", nothing is known.
is_missing() { # ANSWER
  grep -qiE 'SERVICE_DISABLED|has not been used in project' <<<"$1" && return
  ! grep -qiE 'denied|forbidden|does not have permission' <<<"$1" &&
    grep -qiE "not found|not_found|does not exist|cannot find" <<<"$1"
}

# Whether something is there: `exists iam service-accounts describe ...`. Ends the script on any other error.
exists() {
  local answer
  answer=$(gcloud --project="$PROJECT" --quiet "$@" 2>&1 >/dev/null) && return 0
  is_missing "$answer" && return 1
  echo "$answer" >&2
  exit 1
}

# The state of a custom role: "True" deleted, so that its id stays taken for weeks; "False" there; empty: there is none.
# (Google answers with a deleted role, too, and names that in the role.)
role_deleted() {
  local answer
  if exists iam roles describe "$1"; then
    answer=$(gcloud --project="$PROJECT" --quiet iam roles describe "$1" --format='value(name,deleted)')
    if [[ $answer == *True* ]]; then echo True; else echo False; fi
  fi
}

# The first letters of the SHA-256 of what comes in: `sha256 8`. macOS has no sha256sum.
sha256() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-"$1"
}

# What the context's file says, as `tpujob init` writes it: `said door`. Empty: nothing.
said() {
  sed -n "s/^ *$1: *[\"']\{0,1\}\([^\"' #]*\).*/\1/p" "$CONTEXT_FILE" | head -n 1
}

# What stands in front of the backend; refuses what is none.
door() {
  local found
  found=$(said door)
  case ${found:-iam} in
    iam | iap | public) echo "${found:-iam}" ;;
    *)
      echo "$0: $CONTEXT_FILE: door is $found: it can be iam, iap or public" >&2
      return 2
      ;;
  esac
}

# A person or a service account as IAM spells them: `member_of ada@example.org`.
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

# The way through what stands in front: `admit iam user:ada@example.org [SERVICE]`.
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

# Takes a binding away; one that is not there is no error. The same words as for adding one. `kept` lists those that
# could not be removed.
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

# Earlier versions gave people the SSH keys of all slices; now the backend signs a certificate for minutes.
forget_keys() {
  local number
  number=$(gc projects describe "$PROJECT" --format='value(projectNumber)') || {
    kept+="  the right to read the keys of slices, if an earlier version gave it: projects describe failed"$'\n'
    return 1
  }
  unbind projects add-iam-policy-binding "$PROJECT" --member="$1" --role=roles/secretmanager.secretAccessor \
    --condition="title=keys,expression=resource.name.startsWith('projects/$number/secrets/tpujob-tj-')"
}

# The id of the account that a member's programs run as: at most 30 letters, another one for each address.
programs_of() {
  local hash
  hash=$(printf '%s' "$1" | sha256 6)
  printf 'tpujob-vm-%s-%s\n' "$(tr -c 'a-z0-9\n' '-' <<<"${1%%@*}" | sed 's/^-*//' | cut -c1-13 | sed 's/-*$//')" "$hash"
}

# The name of a member's folder in the buckets, another one for each name that differs in more than capitals; the
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

# What the account of a member's programs may do, added with `gc` or taken away with `unbind`: their own folder in the
# context's buckets, copies of data sets to be read, a log, and the backend may be it.
programs() { # ADDRESS MEMBER VERB
  local bucket at
  "$3" projects add-iam-policy-binding "$PROJECT" --member="$2" --role=roles/logging.logWriter --condition=None
  "$3" projects add-iam-policy-binding "$PROJECT" --member="$2" --role=roles/monitoring.metricWriter --condition=None
  at="$(owner)/u/$(folder_of "$1")/"
  for bucket in $(sed -n 's/^ *[a-z0-9-]*: *["'"'"']\{0,1\}\(gs:\/\/[a-z0-9._-]*\).*/\1/p' "$CONTEXT_FILE" | sort -u); do
    below "$bucket" "$at" own-folder "$2" roles/storage.objectUser "$3"
    below "$bucket" datasets/ data-sets "$2" roles/storage.objectViewer "$3"
  done
  "$3" iam service-accounts add-iam-policy-binding "${2#serviceAccount:}" --member="serviceAccount:$backend" \
    --role=roles/iam.serviceAccountUser
}

# The backend's folder in the buckets; the same as `owner` in tpujob/config/context.py for a store in Firestore.
owner() {
  local word
  word=$(said database)
  word="$PROJECT-${word:-(default)}"
  word=$(tr -d '()' <<<"$word" | sed -E 's/-default$//; s/[^a-z0-9]+/-/g')
  if [ ${#word} -gt 36 ]; then word="${word:0:27}-$(printf '%s' "$word" | sha256 8)"; fi
  echo "$word-fs"
}
