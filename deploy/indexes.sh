#!/usr/bin/env bash
# Makes the indexes of firestore.indexes.json one after the other in the background; existing ones stay. Fields that
# hold whole records get no index: each would cost a write, and a field of more than 1,500 bytes can have none.
#   PROJECT=my-lab-4711 REGION=europe-west4 deploy/indexes.sh "(default)"
source "$(dirname "$0")/common.sh"
database=${1:-(default)}

fields() { # one line of flags for each index
  python3 - "$here/firestore.indexes.json" <<'PY'
import json, sys

for index in json.load(open(sys.argv[1]))["indexes"]:
    fields = [f"--field-config=field-path={f['fieldPath']},order={f['order'].lower()}" for f in index["fields"]]
    print(f"--collection-group={index['collectionGroup']}", *fields)
PY
}

fields | while read -r -a flags; do
  gc firestore indexes composite create --database="$database" --query-scope=collection "${flags[@]}" \
    --async --format=none </dev/null 2> >(grep -vi "already exists" >&2) || grep -qi "already exists" "$scratch/errors"
done

# Calls Google's API directly, as gcloud cannot make an index of all collections of a name.
of_fields() { # one line for each field whose own indexes are not the usual ones: COLLECTION FIELD BODY
  python3 - "$here/firestore.indexes.json" <<'PY'
import json, sys

for field in json.load(open(sys.argv[1]))["fieldOverrides"]:
    path = field["fieldPath"]
    indexes = [
        {"queryScope": index["queryScope"], "fields": [{"fieldPath": path, "order": index["order"]}]}
        for index in field["indexes"]
    ]
    print(field["collectionGroup"], path, json.dumps({"indexConfig": {"indexes": indexes}}))
PY
}

# The token is passed by standard input, as all users of this machine can read arguments.
patch() { # COLLECTION FIELD BODY
  local answer
  answer=$(curl --silent --show-error --config - --request PATCH --header "Content-Type: application/json" \
    --header "x-goog-user-project: $PROJECT" --data "$3" \
    "https://firestore.googleapis.com/v1/projects/$PROJECT/databases/$database/collectionGroups/$1/fields/$2?updateMask=indexConfig" \
    <<<"header = \"Authorization: Bearer $token\"") || return
  if grep -q '"error"' <<<"$answer"; then
    echo "$answer" >&2
    return 1
  fi
}
token=$(gc auth print-access-token)
of_fields | while read -r collection field body; do
  echo "+ PATCH $collection/$field $body" >&2
  retry patch "$collection" "$field" "$body"
done
