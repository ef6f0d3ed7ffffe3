#!/usr/bin/env bash
# Removes what up.sh and setup.sh made, except what holds jobs: the database and the buckets are kept.
# Jobs that still run continue, are billed, and have no control loop: end them first (`tpujob list`).
#
#   PROJECT=my-lab-4711 REGION=europe-west4 CONTEXT_FILE=lab.yaml YES=1 deploy/remove.sh
source "$(dirname "$0")/common.sh"
need CONTEXT_FILE "the context's file, as for setup.sh"
need YES "YES=1 says that no job runs any more"
database=$(context_value database)
database=${database:-(default)}

gone() { # KIND NAME [FLAG]: delete it if it is there
  local kind=$1
  shift
  # shellcheck disable=SC2086  # a kind is two words
  if exists $kind describe "$@"; then gc $kind delete "$@"; fi
}

for name in tpujob-tick tpujob-sweep; do gone "scheduler jobs" "$name" --location="$REGION"; done
for name in tpujob tpujob-ticks; do gone "run services" "$name" --region="$REGION"; done
gone "artifacts repositories" tpujob --location="$REGION"
for name in tpujob-token tpujob-context; do gone secrets "$name"; done
listed() { # what a list holds; nothing where its API was never enabled
  if exists "$@"; then once "$@"; fi
}
# what users have set for their jobs
names=$(listed secrets list --filter='labels.tpujob-user:*' --format='value(name.basename())')
for name in $names; do gc secrets delete "$name"; done
# with the accounts that join.sh made for one user's programs
own=$(listed iam service-accounts list --filter='email~^tpujob-vm-[a-z0-9-]*-[0-9a-f]{6}@' --format='value(email)')
for account in "$backend" "$vm" "$tick" "$build" $own; do gone "iam service-accounts" "$account"; done
for role in tpujobBackend tpujobKeys; do
  deleted=$(role_deleted "$role")
  if [ "$deleted" = False ]; then gc iam roles delete "$role"; fi
done
echo "Gone. The buckets and the database stay. To delete the database, too, with the state of every job:"
echo "  gcloud --project=$PROJECT firestore databases update --database='$database' --no-delete-protection"
echo "  gcloud --project=$PROJECT firestore databases delete --database='$database'"
