#!/usr/bin/env bash
# Writes to ADMIN when the backend does not answer, or its control loop has stopped: an uptime check of /health every five
# minutes, and an alert on it. Safe to repeat, also with another ADMIN. Messages of the backend itself end with it.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 CONTEXT_FILE=lab.yaml ADMIN=ada@example.org deploy/alert.sh
#
# With `door: iam`, Cloud Monitoring signs in with its own account, which gets the right to call the service. With
# `door: iap` there is nothing that it may call, unless up.sh has made tpujob-ticks (WAKE=called). Nothing here was tried
# in a project.
source "$(dirname "$0")/common.sh"
need CONTEXT_FILE "the context's file, as for setup.sh"
need ADMIN "the address that gets the messages, such as ada@example.org"
member_of "$ADMIN" >/dev/null
door=$(door)
service=tpujob
if [ "$door" = iap ]; then
  service=tpujob-ticks
  if ! exists run services describe "$service" --region="$REGION"; then
    echo "$0: behind IAP, Cloud Monitoring reaches the backend only with WAKE=called of up.sh" >&2
    exit 2
  fi
fi

once services enable monitoring.googleapis.com
number=$(gc projects describe "$PROJECT" --format='value(projectNumber)')
host="$service-$number.$REGION.run.app"
signed=()
if [ "$door" != public ]; then
  gc beta services identity create --service=monitoring.googleapis.com --format=none
  admit iam "serviceAccount:service-$number@gcp-sa-monitoring-notification.iam.gserviceaccount.com" "$service"
  signed=(--service-agent-auth=oidc-token)
fi

# Prints the name of what has the display name: `named monitoring uptime list-configs`.
named() { gc "$@" --filter="displayName='$alert'" --format='value(name)' | head -n 1; }

# What an earlier run made, the policy first, as Google deletes no check that a policy names: its host may be another now.
policy=$(named alpha monitoring policies list)
if [ -n "$policy" ]; then gc alpha monitoring policies delete "$policy"; fi
check=$(named monitoring uptime list-configs)
if [ -n "$check" ]; then gc monitoring uptime delete "$check"; fi
gc monitoring uptime create "$alert" --resource-type=uptime-url --resource-labels="host=$host,project_id=$PROJECT" \
  --protocol=https --path=/health --period=5 --timeout=30 --validate-ssl=true ${signed[@]+"${signed[@]}"} --format=none
check=$(named monitoring uptime list-configs)

channel=$(named beta monitoring channels list)
if [ -n "$channel" ]; then
  gc beta monitoring channels update "$channel" --update-channel-labels="email_address=$ADMIN" --format=none
else
  gc beta monitoring channels create --display-name="$alert" --type=email --channel-labels="email_address=$ADMIN" --format=none
  channel=$(named beta monitoring channels list)
fi

# Two of the places from which Google checks must agree.
cat >"$scratch/policy.json" <<JSON
{
  "displayName": "$alert",
  "combiner": "OR",
  "conditions": [{
    "displayName": "/health does not answer with 200",
    "conditionThreshold": {
      "filter": "metric.type=\"monitoring.googleapis.com/uptime_check/check_passed\" AND resource.type=\"uptime_url\" AND metric.label.check_id=\"${check##*/}\"",
      "aggregations": [{
        "alignmentPeriod": "600s",
        "perSeriesAligner": "ALIGN_NEXT_OLDER",
        "crossSeriesReducer": "REDUCE_COUNT_FALSE",
        "groupByFields": ["resource.label.*"]
      }],
      "comparison": "COMPARISON_GT",
      "thresholdValue": 1,
      "duration": "60s",
      "trigger": {"count": 1}
    }
  }],
  "notificationChannels": ["$channel"],
  "documentation": {
    "mimeType": "text/markdown",
    "content": "No job is supervised now: slices continue, and are billed. \`tpujob doctor\` and the log of the service $service say more."
  }
}
JSON
gc alpha monitoring policies create --policy-from-file="$scratch/policy.json" --format=none
echo "$ADMIN gets an e-mail when https://$host/health has failed for about ten minutes."
