# What the scripts here share: what they are told by the environment, and names.
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

# Every command says what it does before it does it.
gc() {
  echo "+ gcloud $*" >&2
  gcloud --project="$PROJECT" --quiet "$@"
}

# Whether something is there: `exists service-accounts describe ...`
exists() {
  gcloud --project="$PROJECT" --quiet "$@" >/dev/null 2>&1
}

# Where a custom role stands: "True" deleted, so that its id stays taken for weeks; "False" there; empty: there is none.
# (Google answers with a deleted role, too, and says so in the role.)
role_deleted() {
  local said
  said=$(gcloud --project="$PROJECT" --quiet iam roles describe "$1" --format='value(name,deleted)' 2>/dev/null) || return 0
  if [[ $said == *True* ]]; then echo True; else echo False; fi
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

# Take a binding away; one that is not there is no error. The same words as for adding one.
unbind() {
  local said
  said=$(gc "${@/add-iam-policy-binding/remove-iam-policy-binding}" --format=none 2>&1) ||
    grep -qiE "not found|does not exist|cannot find" <<<"$said" || {
    echo "$said" >&2
    return 1
  }
}

# Earlier versions gave people the SSH keys of all slices; now the backend signs a certificate for minutes.
forget_keys() {
  local number
  number=$(gc projects describe "$PROJECT" --format='value(projectNumber)')
  unbind projects add-iam-policy-binding "$PROJECT" --member="$1" --role=roles/secretmanager.secretAccessor \
    --condition="title=keys,expression=resource.name.startsWith('projects/$number/secrets/tpujob-tj-')"
}

# The id of the account that somebody's programs run as: at most 30 letters, another one for each address.
programs_of() {
  local hash
  hash=$(printf '%s' "$1" | sha256sum | cut -c1-6)
  printf 'tpujob-vm-%s-%s\n' "$(tr -c 'a-z0-9\n' '-' <<<"${1%%@*}" | sed 's/^-*//' | cut -c1-13 | sed 's/-*$//')" "$hash"
}

# The name of somebody's folder in the buckets; the same as in tpujob/domain/access.py.
folder_of() {
  sed -E 's/@/-at-/g; s/[^a-z0-9._-]+/-/g; s/^[-._]+//; s/[-._]+$//' <<<"$1" | cut -c1-63
}

# What the account of somebody's programs may do, added with `gc` or taken away with `unbind`: their own folder in the
# context's buckets, a log, and the backend may be it.
programs() { # ADDRESS MEMBER VERB
  local bucket at folder
  folder="$(folder_of "$1")"
  "$3" projects add-iam-policy-binding "$PROJECT" --member="$2" --role=roles/logging.logWriter --condition=None
  "$3" projects add-iam-policy-binding "$PROJECT" --member="$2" --role=roles/monitoring.metricWriter --condition=None
  for bucket in $(sed -n 's/^ *[a-z0-9-]*: *["'"'"']\{0,1\}\(gs:\/\/[a-z0-9._-]*\).*/\1/p' "$CONTEXT_FILE" | sort -u); do
    at="$(owner)/u/$folder/"
    "$3" storage buckets add-iam-policy-binding "$bucket" --member="$2" --role=roles/storage.objectUser \
      --condition="title=own-folder,expression=resource.name.startsWith('projects/_/buckets/${bucket#gs://}/objects/$at') || api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('$at')"
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
  if [ ${#word} -gt 36 ]; then word="${word:0:27}-$(printf '%s' "$word" | sha256sum | cut -c1-8)"; fi
  echo "$word-fs"
}
