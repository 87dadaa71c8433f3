#!/usr/bin/env bash
# Looks only: whether everybody answers, which hosts need firmware, and how things are before anything is touched.
cd "$(dirname "$0")"
for tool in govc curl jq; do
  command -v "$tool" >/dev/null && continue
  echo "$tool is missing on this worker: README.md says where to get it" >&2
  printf '{"outcome": "fail", "code": "TOOL_MISSING", "message": "%s is missing on this worker", "permanent": true}\n' \
    "$tool" >"$WAYPOST_OUTPUT"
  exit 0
done
. ./lib.sh

govc about >/dev/null
find_cluster
settings=$(govc object.collect -json -s "$cluster_path" configurationEx)
if [[ $(jq '.drsConfig.enabled and .drsConfig.defaultVmBehavior == "fullyAutomated"' <<<"$settings") != true ]]; then
  fail DRS_NOT_AUTOMATED "DRS of $cluster does not move machines by itself: no host could be emptied"
fi
catalogue=$(curl --silent --show-error --fail --max-time 120 "$catalogue_url")
appliance_host=
if [[ -n $appliance ]]; then
  found=$(govc find / -type m -name "$appliance")
  [[ -n $found ]] || fail BAD_INPUT "input vcenter_vm: vCenter has no machine $appliance"
  appliance_host=$(govc vm.info -json "$found" | jq -r '.virtualMachines[0].runtime.host | "\(.type):\(.value)"')
fi

# One line of JSON for each host.
look() {
  local idrac system wanted inventory updates
  while IFS= read -r path; do
    look_at_host "$path"
    idrac=$(jq -r --arg name "$host_name" '.input.idracs[$name] // ""' <<<"$call")
    [[ -n $idrac ]] || { jq -n -c --arg name "$host_name" '{no_idrac: $name}'; continue; }
    [[ $connection == connected ]] || { jq -n -c --arg state "$host_name: $connection" '{away: $state}'; continue; }
    system=$(redfish GET "$idrac/redfish/v1/Systems/System.Embedded.1")
    wanted=$(jq -c --argjson system "$system" \
      '[.components[] | select(.models == null or (.models | index($system.Model)))]' <<<"$catalogue")
    inventory=$(installed_on "$idrac")
    updates=$(missing "$wanted" "$inventory")
    jq -n -c --arg name "$host_name" --arg path "$path" --arg idrac "$idrac" --argjson updates "$updates" \
      --argjson system "$system" --argjson in_maintenance "$in_maintenance" --argjson last "$([[ $reference == "$appliance_host" ]] && echo true || echo false)" \
      '{host: {name: $name, path: $path, idrac: $idrac, ip: ($idrac | sub("^https?://"; "") | sub("[:/].*"; "")),
        server_id: ($system.UUID // $system.SKU // null), updates: $updates}, in_maintenance: $in_maintenance, last: $last}'
  done
}
paths=$(govc find "$cluster_path" -type h)
looked=$(look <<<"$paths" | jq -s -c .)

without=$(jq -r 'map(.no_idrac // empty) | join(", ")' <<<"$looked")
[[ -z $without ]] || fail BAD_INPUT "input idracs: no address for $without"
away=$(jq -r 'map(.away // empty) | join(", ")' <<<"$looked")
[[ -z $away ]] || fail HOST_UNREACHABLE "vCenter does not reach every host: $away"

jq -r '.[].host | if .updates == [] then "\(.name) has the catalogue\u0027s firmware"
  else "\(.name) needs \(.updates | map("\(.name) \(.installed) → \(.version)") | join(", "))" end' <<<"$looked"
# vCenter's own host is the last: while it is updated, vCenter has to live elsewhere.
outcome --argjson looked "$looked" --argjson settings "$settings" --arg cluster "$cluster" '
  ($looked | map(select(.host.updates != [])) | sort_by(.last) | map(.host)) as $hosts
  | {outcome: (if $hosts == [] then "finish" else "done" end),
     reason: (if $hosts == [] then "every host of \($cluster) has the catalogue\u0027s firmware" else "" end),
     output: {
       hosts: $hosts,
       up_to_date: ($looked | map(.host | select(.updates == []) | .name)),
       in_maintenance_before: ($looked | map(select(.in_maintenance) | .host.name)),
       ha: $settings.dasConfig
     },
     details: {
       hosts_needing_updates: ($hosts | map(.name)),
       hosts_total: ($hosts | length),
       hosts_completed: 0,
       update_check_results: ($looked | map({key: .host.name, value: (.host.updates | map({name, installed, version}))}) | from_entries)
     }}'
