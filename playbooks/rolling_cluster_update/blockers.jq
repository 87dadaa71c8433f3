# One running machine: what keeps it on its host. Texts have the lengths that consoles show.
$machine.virtualMachines[0] as $vm
| [$stores.datastores[] | select(.summary.multipleHostAccess == false) | .name] as $local
| def blocker(reason; severity; details; remediation):
    {vm_name: $vm.name[:255], path: $path, reason: reason, severity: severity, details: details[:1024],
     remediation: remediation};
  def is(kind): (.type // .Type) == kind;
  def is_local: (.backing.fileName // "") | capture("^\\[(?<name>[^\\]]*)\\]").name? // null
    | . != null and (. as $store | $local | index($store) != null);
[
  ($devices.devices[] | select(is("VirtualUSB"))
    | blocker("usb_passthrough"; "critical"; "a USB device of the host: \(.deviceInfo.summary // "?")";
        "take the device from it, or power it off")),
  (select(($vm.runtime.faultToleranceState // "notConfigured") | . != "notConfigured" and . != "disabled")
    | blocker("fault_tolerance"; "critical"; "fault tolerance is \($vm.runtime.faultToleranceState)";
        "suspend fault tolerance, or power it off")),
  ($devices.devices[] | select(.backing.vgpu != null)
    | blocker("vgpu"; "critical"; "a graphics card of the host: \(.backing.vgpu)"; "power it off")),
  ($devices.devices[] | select(is("VirtualDisk") and is_local)
    | blocker("local_storage"; "critical"; "a disk on the host itself: \(.backing.fileName)";
        "move its disks to shared storage, or power it off")),
  ($devices.devices[] | select(is("VirtualCdrom") and .connectable.connected == true)
    | select(is_local or (.backing.fileName // "") == "")
    | blocker("cdrom"; "warning"; "a CD of the host: \(.backing.fileName // .backing.deviceName)";
        "disconnect the CD, or power it off"))
]
