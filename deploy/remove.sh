#!/usr/bin/env bash
# Removes what up.sh, setup.sh and alert.sh made, except what holds jobs: the database and the buckets are kept. Its last
# lines name all that stays.
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
gone secrets tpujob-context
listed() { # what a list holds; nothing where its API was never enabled
  if exists "$@"; then once "$@"; fi
}
# what users have set for their jobs
names=$(listed secrets list --filter='labels.tpujob-user:*' --format='value(name.basename())')
for name in $names; do gc secrets delete "$name"; done
# with the accounts that join.sh made for one user's programs
own=$(listed iam service-accounts list --filter='email~^tpujob-vm-[a-z0-9-]*-[0-9a-f]{6}@' --format='value(email)')
for account in "$backend" "$vm" "$tick" "$build" $own; do gone "iam service-accounts" "$account"; done
# what EGRESS=nat made, in any region
made=$(listed compute routers list --filter="name=$router" --format='value(region.basename())')
for region in $made; do gc compute routers delete "$router" --region="$region"; done
# what alert.sh made
for kind in "alpha monitoring policies list" "monitoring uptime list-configs" "beta monitoring channels list"; do
  # shellcheck disable=SC2086  # words of a command
  made=$(listed $kind --filter="displayName=$alert" --format='value(name)')
  for name in $made; do
    # shellcheck disable=SC2086
    gc ${kind% list*} delete "$name"
  done
done
for role in tpujobBackend tpujobKeys; do
  deleted=$(role_deleted "$role")
  if [ "$deleted" = False ]; then gc iam roles delete "$role"; fi
done
cat <<END
Gone. This stays:
  the buckets of the context
  the database $database with its indexes, which holds the state of every job
  the secret tpujob-tj-signing: without it, nothing can be verified that hosts have reported
  gs://$sources, the sources of builds; the roles tpujobBackend and tpujobKeys, deleted, for some weeks
  Private Google Access of subnetworks, and the APIs that are enabled
To delete them, too:
  gcloud --project=$PROJECT firestore databases update --database='$database' --no-delete-protection
  gcloud --project=$PROJECT firestore databases delete --database='$database'
  gcloud --project=$PROJECT secrets delete tpujob-tj-signing
  gcloud --project=$PROJECT storage rm --recursive gs://$sources
END
