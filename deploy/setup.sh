#!/usr/bin/env bash
# Once for each project: APIs, accounts, roles, database, secrets. Safe to repeat.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 CONTEXT_FILE=lab.yaml BUCKETS="gs://my-lab-europe" deploy/setup.sh
#
# CONTEXT_FILE is the context as `tpujob init` wrote it, with `store: firestore`, and with how people sign in
# (deploy/README.md). BUCKETS are its buckets, which hold nothing but jobs: every program that a job runs can read and
# write all of them, unless its owner has an account of their own (deploy/join.sh). Nobody is let in here.
# EGRESS=nat: makes what hosts without external addresses need to reach Google and the internet: Private Google Access on
# their subnetworks, and Cloud NAT. It ends with `tpujob doctor`, and fails where that finds what keeps jobs from running.
source "$(dirname "$0")/common.sh"
need CONTEXT_FILE "the context's file; tpujob init writes one"
need BUCKETS "the context's buckets, such as gs://my-lab-europe"
database=$(context_value database)
database=${database:-(default)}

door >/dev/null
ssh=$(context_value ssh) # what is left out is external
case $ssh in
  internal | iap) ;;
  *)
    echo "$0: $CONTEXT_FILE reaches hosts at their external addresses. Cloud Run has no address of its own, so port 22" \
      "of every host would have to be open to the world. Write \`ssh: internal\` into it, and give up.sh NETWORK and" \
      "SUBNET; or \`ssh: iap\` (deploy/README.md)." >&2
    exit 2
    ;;
esac

case ${EGRESS:-none} in
  nat | none) ;;
  *) echo "$0: EGRESS is $EGRESS: it can be nat" >&2; exit 2 ;;
esac
network=$(context_value network)
network=${network:-default}
if [ "${EGRESS:-}" = nat ] && [[ $network == */* ]]; then
  echo "$0: EGRESS=nat is for a network of $PROJECT: of a shared one, its owner makes Cloud NAT" >&2
  exit 2
fi

grant() { # MEMBER ROLE [CONDITION]
  gc projects add-iam-policy-binding "$PROJECT" --member="$1" --role="$2" --condition="${3:-None}" --format=none
}

once services enable tpu.googleapis.com compute.googleapis.com storage.googleapis.com run.googleapis.com \
  firestore.googleapis.com secretmanager.googleapis.com cloudscheduler.googleapis.com \
  artifactregistry.googleapis.com cloudbuild.googleapis.com iam.googleapis.com \
  cloudresourcemanager.googleapis.com serviceusage.googleapis.com iamcredentials.googleapis.com iap.googleapis.com \
  orgpolicy.googleapis.com

# Four accounts: the backend, the hosts of slices (so all programs of all users), Cloud Scheduler, and
# Cloud Build, whose default account may build nothing in many organisations.
for name in backend vm tick build; do
  if ! exists iam service-accounts describe "tpujob-$name@$PROJECT.iam.gserviceaccount.com"; then
    gc iam service-accounts create "tpujob-$name" --display-name="tpujob $name"
  fi
done

# The backend: slices, their keys, its database, its own log; to be the hosts' account and no other.
role() { # NAME FILE
  local verb=create deleted
  deleted=$(role_deleted "$1")
  case $deleted in
    True)
      gc iam roles undelete "$1" --format=none
      verb=update
      ;;
    False) verb=update ;;
  esac
  gc iam roles "$verb" "$1" --file="$here/$2" --format=none
}
role tpujobBackend backend-role.yaml
role tpujobKeys keys-role.yaml
number=$(gc projects describe "$PROJECT" --format='value(projectNumber)')
keys="title=keys,expression=resource.name.startsWith('projects/$number/secrets/tpujob-tj-')"
grant "serviceAccount:$backend" "projects/$PROJECT/roles/tpujobKeys" "$keys"
# Secrets of users' jobs (`tpujob secret set`): the backend alone reads them. To let a person manage their own by other
# means, too, bind a role under the same condition with tpujob-s-OWNER-.
grant "serviceAccount:$backend" "projects/$PROJECT/roles/tpujobKeys" \
  "title=secrets,expression=resource.name.startsWith('projects/$number/secrets/tpujob-s-')"
grant "serviceAccount:$backend" "projects/$PROJECT/roles/tpujobBackend"
# Google documents no permission for the guest attributes of a TPU host, which hold its SSH host keys, so a custom role
# cannot name it. This role can read all of Cloud TPU, and change nothing.
grant "serviceAccount:$backend" roles/tpu.viewer
grant "serviceAccount:$backend" roles/datastore.user \
  "title=tpujob,expression=resource.name=='projects/$PROJECT/databases/$database'"
grant "serviceAccount:$backend" roles/logging.logWriter
gc iam service-accounts add-iam-policy-binding "$vm" --member="serviceAccount:$backend" \
  --role=roles/iam.serviceAccountUser --format=none
if [ "$ssh" = iap ]; then
  grant "serviceAccount:$backend" roles/iap.tunnelResourceAccessor "title=ssh,expression=destination.port==22"
fi

# The hosts: their log, and the buckets. No database, no slices, no secrets.
grant "serviceAccount:$vm" roles/logging.logWriter
grant "serviceAccount:$vm" roles/monitoring.metricWriter
on_bucket() { # ACCOUNT ROLE; a bucket with accounts of one's own (join.sh) has conditions, and then gcloud wants this one
  gc storage buckets add-iam-policy-binding "$bucket" --member="serviceAccount:$1" --role="$2" --condition=None \
    --format=none
}
for bucket in $BUCKETS; do
  on_bucket "$vm" roles/storage.objectUser
  on_bucket "$vm" roles/storage.bucketViewer # Orbax reads the bucket's own settings
  on_bucket "$backend" roles/storage.objectUser
done

# The only copy of every job's state: it cannot be deleted by mistake, and can be read as of any minute of seven days.
verb=update location=""
if ! exists firestore databases describe --database="$database"; then
  verb=create location="--location=$REGION --type=firestore-native"
fi
# shellcheck disable=SC2086  # two flags
gc firestore databases "$verb" --database="$database" $location --delete-protection --enable-pitr --format=none
"$here/indexes.sh" "$database"

# How jobs run. People's tokens are verified with Google's public keys, so that there is no secret to keep. Each version
# costs money until it is destroyed: the newest two stay.
if ! exists secrets describe tpujob-context; then
  where=$(context_value secret_region) # left out: everywhere
  replication=--replication-policy=automatic
  if [ -n "$where" ]; then replication="--replication-policy=user-managed --locations=$where"; fi
  # shellcheck disable=SC2086  # two flags
  gc secrets create tpujob-context $replication --format=none
fi
if ! once secrets versions access latest --secret=tpujob-context 2>"$scratch/none" | cmp -s - "$CONTEXT_FILE"; then
  gc secrets versions add tpujob-context --data-file="$CONTEXT_FILE" --format=none
fi
versions=$(gc secrets versions list tpujob-context --filter='state!=DESTROYED' --sort-by='~createTime' \
  --format='value(name.basename())')
for version in $(tail -n +3 <<<"$versions"); do gc secrets versions destroy "$version" --secret=tpujob-context; done
gc secrets add-iam-policy-binding tpujob-context --member="serviceAccount:$backend" \
  --role=roles/secretmanager.secretAccessor --format=none

# Images: the newest ten stay, for back.sh; others go after 30 days.
if ! exists artifacts repositories describe tpujob --location="$REGION"; then
  gc artifacts repositories create tpujob --location="$REGION" --repository-format=docker
fi
gc artifacts repositories set-cleanup-policies tpujob --location="$REGION" --policy="$here/cleanup-policy.json" \
  --no-dry-run --format=none

# The build: reads the sources that `gcloud builds submit` uploads, writes its log, and the one image. gcloud would make
# their bucket in the multi-region US, where an organization may forbid it.
grant "serviceAccount:$build" roles/logging.logWriter
bucket="gs://$sources"
if ! exists storage buckets describe "$bucket"; then
  gc storage buckets create "$bucket" --location="$REGION" --uniform-bucket-level-access --public-access-prevention
fi
on_bucket "$build" roles/storage.objectViewer
gc artifacts repositories add-iam-policy-binding tpujob --location="$REGION" --member="serviceAccount:$build" \
  --role=roles/artifactregistry.writer --format=none
# The way out of hosts without external addresses, in the regions of the context's buckets, which are those of its zones. A
# region whose router already has Cloud NAT for the network keeps it.
if [ "${EGRESS:-}" = nat ]; then
  subnetwork=$(context_value subnetwork)
  for region in $(regions); do
    gc compute networks subnets update "${subnetwork:-$network}" --region="$region" --enable-private-ip-google-access
    found=$(gc compute routers list --regions="$region" --filter="network~/$network\$ AND nats:*" --format='value(name)')
    if [ -n "$found" ]; then continue; fi
    if ! exists compute routers describe "$router" --region="$region"; then
      gc compute routers create "$router" --network="$network" --region="$region" --format=none
    fi
    gc compute routers nats create "$router" --router="$router" --region="$region" --auto-allocate-nat-external-ips \
      --nat-all-subnet-ip-ranges
  done
fi

# Doctor reads contexts from a folder of their own.
name=$(context_value name)
mkdir -p "$scratch/state/contexts"
cp "$CONTEXT_FILE" "$scratch/state/contexts/$name.yaml"
code=0
TPUJOB_STATE="$scratch/state" TPUJOB_CONTEXT="$name" tpujob doctor || code=$?
case $code in
  0) ;;
  6)
    echo "$0: the project is set up, but jobs would fail: cure what is marked FAIL, then run this again" >&2
    exit 1
    ;;
  *) echo "$0: tpujob doctor could not check everything (exit code $code)" >&2 ;;
esac

way=""
if [ "$ssh" = internal ]; then way="NETWORK=default SUBNET=default "; fi
echo "The project is ready. Next:"
echo "  PROJECT=$PROJECT REGION=$REGION CONTEXT_FILE=$CONTEXT_FILE ADMIN=YOUR_ADDRESS ${way}deploy/up.sh"
