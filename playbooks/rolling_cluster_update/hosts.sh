#!/usr/bin/env bash
# At the end, whatever the end is: hosts that this playbook left in the middle of their update come out of maintenance
# mode, machines that it powered off run again. Hosts without a note are nobody's business.
cd "$(dirname "$0")"
. ./lib.sh

readonly DELETE=redfish/v1/Managers/iDRAC.Embedded.1/Oem/Dell/DellJobService/Actions/DellJobService.DeleteJobQueue

# What is scheduled would be installed at some later start, when nobody expects it. What runs is waited for: firmware
# that is half written is worse than none.
settle() { # address of an iDRAC
  local unfinished id
  unfinished=$(jobs_of "$1" FirmwareUpdate unfinished)
  while [[ $(jq 'any(.JobState != "Scheduled")' <<<"$unfinished") == true ]]; do
    sleep "$poll_seconds"
    unfinished=$(jobs_of "$1" FirmwareUpdate unfinished)
  done
  while IFS= read -r id; do
    say "takes the job $id back"
    redfish POST "$1/$DELETE" "$(jq -n -c --arg id "$id" '{JobID: $id}')" >/dev/null
  done < <(jq -r '.[].Id' <<<"$unfinished")
}

find_cluster
listed=$(govc find "$cluster_path" -type h)
mapfile -t paths <<<"$listed"
notes=$(notes_of "${paths[@]}")
while IFS=$'\t' read -r path text; do
  say "$path: $text"
  look_at_host "$path"
  settle "$(jq -r --arg name "$host_name" '.input.idracs[$name]' <<<"$call")"
  await_connection "$path"
  leave_host "$path"
done < <(jq -r 'to_entries[] | [.key, .value] | @tsv' <<<"$notes")
[[ $notes != '{}' ]] || say "no host was left in the middle of its update"
outcome --argjson notes "$notes" '{outcome: "done", output: {hosts: ($notes | keys)}}'
