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
