# What the steps share. Whatever is not expected ends a script with 75, which asks for another try; every script looks
# how things are before it acts, so that it may be killed anywhere and begin again.
#
# Bash forgives a command that fails inside of [[ … ]], an argument or a condition. So what asks vCenter or an iDRAC is
# always assigned to a variable first: no answer must never look like "nothing there".
# shellcheck shell=bash
set -Eeuo pipefail
shopt -s inherit_errexit
trap 'exit 75' ERR

readonly FIELD=waypost            # the custom attribute that notes are kept in
call=$(cat)
eval "$(jq -r '@sh "run_id=\(.run_id) unattended=\(.unattended // "") cluster=\(.input.cluster)
  appliance=\(.input.vcenter_vm // "") catalogue_url=\(.input.catalogue // "") idrac_user=\(.input.idrac_user // "root")
  poll_seconds=\(.input.poll_seconds // 10) evacuation_seconds=\(.input.evacuation_seconds // 3600)
  shutdown_seconds=\(.input.shutdown_seconds // 180)"' <<<"$call")"

say() { printf '%s\n' "$*"; }
task() { printf '::task %s %s\n' "$1" "$2"; }

# The Outcome, from jq's arguments, and the end of the script.
outcome() {
  jq -n "$@" >"$WAYPOST_OUTPUT"
  exit 0
}

fail() { # code, message: no other try would do better
  say "$2" >&2
  outcome --arg code "$1" --arg message "$2" '{outcome: "fail", code: $code, message: $message, permanent: true}'
}

# ---- vCenter

find_cluster() { # sets cluster_path
  cluster_path=$(govc find / -type c -name "$cluster")
  if [[ -z $cluster_path || $cluster_path == *$'\n'* ]]; then
    say "vCenter has not exactly one cluster $cluster" >&2
    return 1
  fi
}

look_at_host() { # path; sets host_name, reference, connection, in_maintenance
  local answer
  answer=$(govc host.info -json "$1")
  eval "$(jq -r '.hostSystems[0] | @sh "host_name=\(.name) reference=\("\(.self.type):\(.self.value)")
    connection=\(.runtime.connectionState) in_maintenance=\(.runtime.inMaintenanceMode)"' <<<"$answer")"
}

await_connection() { # path
  look_at_host "$1"
  until [[ $connection == connected ]]; do
    sleep "$poll_seconds"
    look_at_host "$1"
  done
}

# Tasks that empty a host.
entering() { # path
  local recent task info
  recent=$(govc object.collect -json -s "$1" recentTask)
  for task in $(jq -r '(. // [])[] | "\(.type):\(.value)"' <<<"$recent"); do
    info=$(govc object.collect -json -s "$task" info)
    jq -r 'select(.descriptionId == "HostSystem.enterMaintenanceMode" and (.state | IN("queued", "running"))) | .key' <<<"$info"
  done
}

# vCenter goes on with them when nobody waits any more.
stop_entering() { # path
  local tasks task
  tasks=$(entering "$1")
  while [[ -n $tasks ]]; do
    # It may have ended meanwhile.
    for task in $tasks; do govc task.cancel "$task" || true; done
    sleep "$poll_seconds"
    tasks=$(entering "$1")
  done
}

power_of() { govc vm.info -json "$1" | jq -r '.virtualMachines[0].runtime.powerState'; }

# A note says what is to be undone. It is made on the object itself, before what it tells of is done, so that whoever
# comes next knows, whatever became of the script, its machine and the run.
note() { govc fields.set -add "$FIELD" "$2" "$1"; }     # path, text; an empty one takes the note away

# {"path": "text"} of those that have a note.
notes_of() { # paths
  local answer
  answer=$(govc fields.info -json -n "$FIELD" "$@")
  # There is no answer at all as long as nobody ever made a note.
  jq -c '[(.info // .Info // [])[] | {(.path // .Path): (.value // .Value)} | select(.[] != "")] | add // {}' \
    <<<"${answer:-"{}"}"
}

noted() { # path
  local notes
  notes=$(notes_of "$1")
  [[ $notes == '{}' ]] || jq -r '.[]' <<<"$notes"
}

# Running machines that keep a host from maintenance mode, as a JSON list.
blockers_of() { # path of a host
  local stores vms vm machine devices
  look_at_host "$1"
  stores=$(govc datastore.info -json)
  vms=$(govc find / -type m -runtime.host "$reference" -runtime.powerState poweredOn)
  while IFS= read -r vm; do
    [[ -n $vm ]] || continue
    machine=$(govc vm.info -json "$vm")
    devices=$(govc device.info -json -vm "$vm")
    jq -n -c --arg path "$vm" --argjson machine "$machine" --argjson devices "$devices" --argjson stores "$stores" \
      -f blockers.jq
  done <<<"$vms" | jq -s -c 'add // [] | .[:50]'
}

in_words() { jq -r 'map("\(.vm_name) (\(.reason))") | join(", ")'; }

# ---- iDRAC

# The password goes through a pipe: a process list shows arguments.
redfish() { # method, address, body
  local answer password=${IDRAC_PASSWORD//\\/\\\\}
  answer=$(curl --silent --show-error --fail-with-body --globoff --max-time 120 --request "$1" \
    --header "Content-Type: application/json" --header "Idempotency-Key: ${WAYPOST_IDEMPOTENCY_KEY:-}" \
    --config <(printf 'user = "%s:%s"\n' "$idrac_user" "${password//\"/\\\"}") ${3:+--data-binary "$3"} "$2") || {
    say "$1 $2: $answer" >&2
    return 1
  }
  printf '%s\n' "$answer"
}

readonly EXPANDED='?$expand=*($levels=1)'

installed_on() { redfish GET "$1/redfish/v1/UpdateService/FirmwareInventory$EXPANDED"; }     # address of an iDRAC

jobs_of() { # address of an iDRAC, type, more jq
  redfish GET "$1/redfish/v1/Managers/iDRAC.Embedded.1/Oem/Dell/Jobs$EXPANDED" | jq -c --arg type "$2" '
    def unfinished: map(select(.JobState | IN("Completed", "CompletedWithErrors", "Failed") | not));
    [.Members[] | select(.JobType == $type)] | sort_by(.Id) | '"${3:-.}"
}

# What of a list of wanted firmware a server has in an older version. What it does not have at all it does not need.
missing() { # wanted, what installed_on gave
  jq -n -c --argjson wanted "$1" --argjson inventory "$2" '
    def numbers: [scan("[0-9]+") | tonumber];
    [$wanted[] | . as $want
      | [$inventory.Members[] | select((.Id | startswith("Installed")) and .SoftwareId == $want.software_id) | .Version]
      | select(any(numbers < ($want.version | numbers)))
      | $want + {installed: min_by(numbers)}]'
}

# ---- what an update of a host leaves as it found it

# Out of maintenance mode, if it was put there; machines that were powered off run again.
leave_host() { # path
  local text listed vms notes vm power
  text=$(noted "$1")
  [[ -n $text ]] || return 0
  stop_entering "$1"
  look_at_host "$1"
  if [[ $in_maintenance == true && $text != *"was in maintenance mode"* ]]; then
    govc host.maintenance.exit "$1"
  fi
  listed=$(govc find / -type m -runtime.host "$reference")
  notes='{}'
  if [[ -n $listed ]]; then
    mapfile -t vms <<<"$listed"
    notes=$(notes_of "${vms[@]}")
  fi
  while IFS= read -r vm; do
    power=$(power_of "$vm")
    if [[ $power == poweredOff ]]; then
      say "powers $vm on again"
      govc vm.power -on "$vm"
    fi
    note "$vm" ""
  done < <(jq -r 'keys[]' <<<"$notes")
  note "$1" ""
}


# ---- what people decided

decision_for() { # name of a host
  jq -r --arg name "$1" '.resolutions[$name] // {} | if type == "object" then .decision // "" else . end' <<<"$call"
}

check_decisions() {
  local unknown
  unknown=$(jq -r '(.resolutions // {}) | to_entries | map(.value |= if type == "object" then .decision // "" else . end)
    | map(select(.value | IN("", "power_off", "skip") | not) | "resolutions.\(.key) is \(.value | tojson)") | join(", ")' <<<"$call")
  [[ -z $unknown ]] || fail BAD_RESOLUTION "$unknown; allowed: power_off, skip"
}

# vCenter does not power itself off, whatever was decided.
holds_appliance() { # blockers
  [[ -n $appliance && $(jq --arg vm "$appliance" 'any(.vm_name == $vm)' <<<"$1") == true ]]
}

with_blockers() { # object, name of a host, blockers
  jq -c --arg name "$2" --argjson found "$3" --arg appliance "$appliance" '
    .[$name] = {host_name: $name, choices: ["power_off", "skip"],
      blockers: ($found | map(del(.path) | if .vm_name == $appliance then
        .remediation = "this is vCenter itself and is never powered off: move it, or skip the host" else . end))}' <<<"$1"
}

pause_for() { # blockers by host
  outcome --argjson blockers "$1" '
    ($blockers | map(.blockers | map(select(.severity == "critical")) | length) | add) as $critical
    | {outcome: "pause", blockers: $blockers,
       reason: "machines keep \($blockers | keys | join(", ")) from maintenance mode: power them off, or skip the host",
       details: {hosts_with_blockers: ($blockers | length), total_critical_blockers: $critical}}'
}
