#!/usr/bin/env bash
# Builds the image and runs it on Cloud Run; again for each new version. Needs deploy/setup.sh once before.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 CONTEXT_FILE=lab.yaml ADMIN=ada@example.org deploy/up.sh
#
# ADMIN is the first admin, who has access and gives it to the others (deploy/join.sh); it is used for as long as the backend
# has none. CONTEXT_FILE as for setup.sh: up.sh reads there what stands in front of the backend.
# WAKE=always (when unset): one instance that runs the control loop all the time. WAKE=called: none between requests;
# Cloud Scheduler sends one every minute. deploy/README.md has what each costs and does.
# NETWORK and SUBNET (in REGION): the backend reaches hosts inside that network, for a context with `ssh: internal`.
# VPC_EGRESS=all-traffic: it reaches everything else that way, too; when unset, private-ranges-only.
# BASE: the image to build on, by its digest, such as python:3.11-slim@sha256:...; deploy/README.md says how to find it.
# UNPINNED=1 instead: whatever python:3.11-slim is today. BUILDER: the same for the image that runs `docker build`.
source "$(dirname "$0")/common.sh"
need CONTEXT_FILE "the context's file, as for setup.sh"
need ADMIN "the address of the first admin, such as ada@example.org"
admin=$(member_of "$ADMIN")
door=$(door)
wake=${WAKE:-always}
egress=${VPC_EGRESS:-private-ranges-only}

case $wake in
  always) min=1 throttled=false called="" ;;
  called) min=0 throttled=true called=", --only-called" ;; # and no livenessProbe: its loop does not run
  *) echo "$0: WAKE is $wake: it can be always or called" >&2; exit 2 ;;
esac
case $egress in
  private-ranges-only | all-traffic) ;;
  *) echo "$0: VPC_EGRESS is $egress: it can be private-ranges-only or all-traffic" >&2; exit 2 ;;
esac
if [ -z "${UNPINNED:-}" ]; then
  need BASE "python:3.11-slim@sha256:... (deploy/README.md says how to find the digest), or UNPINNED=1 for the newest"
fi
for pinned in ${BASE:-} ${BUILDER:-}; do
  if [[ ! $pinned =~ ^[-a-z0-9_./:]+@sha256:[0-9a-f]{64}$ ]]; then
    echo "$0: BASE or BUILDER is $pinned: a tag can be moved; name a digest, as in python:3.11-slim@sha256:..." >&2
    exit 2
  fi
done
interface=${NETWORK:+"\"network\": \"$NETWORK\""}
interface+=${SUBNET:+"${interface:+, }\"subnetwork\": \"$SUBNET\""}
if [[ ${NETWORK:-}${SUBNET:-} =~ [^-a-z0-9_./:] ]]; then
  echo "$0: NETWORK and SUBNET are names, such as default: '${NETWORK:-}', '${SUBNET:-}'" >&2
  exit 2
fi
if [ -z "$interface" ]; then
  if [ "$(context_value ssh)" = internal ]; then need NETWORK "the network of the slices: $CONTEXT_FILE has ssh: internal"; fi
  if [ -n "${VPC_EGRESS:-}" ]; then need NETWORK "the network into which VPC_EGRESS leads"; fi
  network="/INTERFACE/d; /VPC_EGRESS/d"
else
  network="s|INTERFACE|{$interface}|; s|VPC_EGRESS|$egress|"
fi

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$here/../tpujob/version.py")
image="$REGION-docker.pkg.dev/$PROJECT/tpujob/backend:$version-$(date -u +%Y%m%d%H%M%S)"
number=$(once projects describe "$PROJECT" --format='value(projectNumber)')
url="https://tpujob-$number.$REGION.run.app"

clients=$(context_value client_id)
if [ -n "$clients" ]; then clients="\"$clients\""; fi
if [ -z "$clients" ] && [ "$door" != iap ]; then
  echo "$0: $CONTEXT_FILE names no OAuth client, so only service accounts can sign in (deploy/README.md)" >&2
fi
audience="/projects/$number/locations/$REGION/services/tpujob"
if [ "$door" = iap ] && [ "$(context_value iap_audience)" != "$audience" ]; then
  echo "$0: write \`iap_audience: $audience\` below \`sign_in:\` in $CONTEXT_FILE, then run setup.sh again" >&2
  exit 2
fi

# Prints all host names that Cloud Run gives an existing service: `names tpujob`. One has the project's number, one a
# hash that is unknown before. The backend answers under no other name.
names() {
  local answer
  answer=$(gc run services describe "$1" --region="$REGION" --format='value(status.url,metadata.annotations)') || return
  echo "https://$1-$number.$REGION.run.app"
  grep -oE "https://$1-[a-z0-9.-]+\.run\.app" <<<"$answer" | grep -vxF "https://$1-$number.$REGION.run.app" | sort -u ||
    true
}

if ! exists artifacts repositories describe tpujob --location="$REGION"; then
  echo "$0: $PROJECT is not set up in $REGION: run deploy/setup.sh first" >&2
  exit 2
fi
gc builds submit "$here/.." --config="$here/cloudbuild.yaml" \
  --substitutions="_IMAGE=$image${BASE:+,_BASE=$BASE}${BUILDER:+,_BUILDER=$BUILDER}" \
  --service-account="projects/$PROJECT/serviceAccounts/$build"

filled="$scratch/service.yaml"
replace() { # SERVICE DOOR URLS MORE_ARGUMENTS
  local arguments="" name kept
  for name in $3; do arguments+="--url, \"$name\", "; done
  kept="/ # (iap|public|always)$/{/ # ($2|$wake)$/!d;s/ # [a-z]+$//;}"
  sed -E -e "s|ARGUMENTS|$arguments--admin, \"$ADMIN\"$4|" -e "s|IMAGE|$image|" \
    -e "s|MIN_INSTANCES|$min|" -e "s|THROTTLED|$throttled|" -e "s|REGION|$REGION|" -e "s|PROJECT|$PROJECT|" \
    -e "s|NAME|$1|" -e "s|AUDIENCES|$clients|" -e "$kept" -e "$network" "$here/service.yaml" >"$filled"
  gc run services replace "$filled" --region="$REGION"
}
deploy() { # SERVICE DOOR MORE_ARGUMENTS
  local known now
  known="https://$1-$number.$REGION.run.app"
  if exists run services describe "$1" --region="$REGION"; then known=$(names "$1"); fi
  replace "$1" "$2" "$known" "$3"
  now=$(names "$1")
  if [ "$now" != "$known" ]; then replace "$1" "$2" "$now" "$3"; fi # after the first deployment of all
}
if [ "$wake" = called ] && [ "$door" != iap ]; then
  called+=", --tick-account, \"$tick\""
fi
deploy tpujob "$door" "$called"
admit "$door" "$admin"

# Where IAP asks everybody to sign in, Cloud Scheduler calls a second service, which it alone may invoke.
ticks=tpujob
if [ "$door" = iap ]; then
  gc beta services identity create --service=iap.googleapis.com --format=none
  admit iam "serviceAccount:service-$number@gcp-sa-iap.iam.gserviceaccount.com" # IAP, which passes requests on
  ticks=tpujob-ticks
  if [ "$wake" = called ]; then deploy "$ticks" iam ", --door, iam, --only-called, --tick-account, \"$tick\""; fi
fi

schedule() { # NAME CRON PATH
  local verb=create at="https://$ticks-$number.$REGION.run.app"
  if exists scheduler jobs describe "$1" --location="$REGION"; then verb=update; fi
  gc scheduler jobs "$verb" http "$1" --location="$REGION" --schedule="$2" --uri="$at$3" --http-method=post \
    --oidc-service-account-email="$tick" --oidc-token-audience="$at" --attempt-deadline=120s --format=none
}
if [ "$wake" = called ]; then
  if [ "$door" != public ]; then admit iam "serviceAccount:$tick" "$ticks"; fi
  schedule tpujob-tick "* * * * *" /v1/tick
  schedule tpujob-sweep "*/30 * * * *" "/v1/tick?sweep=true"
else
  for name in tpujob-tick tpujob-sweep; do
    if exists scheduler jobs describe "$name" --location="$REGION"; then
      gc scheduler jobs delete "$name" --location="$REGION"
    fi
  done
fi

with=""
if [ -n "$(context_value client_id)" ]; then with=" --client-id $(context_value client_id) --client-secret $(context_value client_secret)"; fi
if [ "$door" != iam ]; then with+=" --door $door"; fi
echo "The backend is at $url. $ADMIN lets people in: deploy/join.sh ADDRESS ROLE. Each of them types once:"
echo "  tpujob use $url$with"
