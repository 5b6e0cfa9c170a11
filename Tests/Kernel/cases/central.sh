# Our central, and BlueZ as the GATT server on hci1.

service=12345678-1234-5678-1234-56789abcdef0
value=12345678-1234-5678-1234-56789abcdef1

bluez_serves() { # RADIO [VALUE]: the value is also the longest that it accepts
  radio "$1"
  bluetoothctl_runs
  ask "gatt.register-service $service" 'yes/no'
  ask yes
  ask "gatt.register-characteristic $value read,write,notify" 'Enter value'
  ask "${2:-0x42 0x6c 0x75 0x65}"
  ask 'gatt.register-application' 'Application registered'
  ask 'advertise.name BlueZPeer'
  ask "advertise.uuids $service"
  ask 'advertise on' 'Advertising object registered'
}

case_scan_legacy() { # bluetoothd's advertisement
  scan legacy
}
case_scan_ext() { # the same with the commands of 5.x
  scan ext
}
scan() {
  bluez_serves "$1"
  attempt bindrune scan --hci hci0 --duration 4 --json
  succeeded "\"address\":\"$right\"" '"name":"BlueZPeer"' "\"services\":\\[\"$(echo $service | tr a-f A-F)\"\\]" '"connectable":true'
}

case_explore_legacy() { # discovery and reading, and bluetoothd's view of it
  explore legacy
}
case_explore_ext() { # the same with the commands of 5.x
  explore ext
}
explore() {
  bluez_serves "$1"
  attempt bindrune explore --hci hci0 --name BlueZPeer --json
  succeeded "\"uuid\":\"$(echo $value | tr a-f A-F)\".*\"value\":\"426C7565\"" '"event":"done".*"mtu":517' '"uuid":"2B2A"'
  answered 'ReadValue: .*offset 0 link LE'
}

case_explore_by_address() { # without scanning for it first
  bluez_serves legacy
  attempt bindrune explore --hci hci0 --address $right/public
  succeeded 'ATT_MTU 517'
}

case_long_values_legacy() { # 512 octets read and 510 written with an MTU of 517, through one ACL buffer of 192 octets
  long_values legacy
}
case_long_values_ext() { # the same with the commands of 5.x
  long_values ext
}
# BlueZ counts a Write Request's handle as part of its value, and refuses 512 octets with 0x0D. What is written is compared
# with what BlueZ says that it got, in checks.py: to whoever reads it again 5.82 gives the first 256 octets and no more.
long_values() {
  bluez_serves "$1" "$(yes 0x55 | head -n 512 | tr '\n' ' ')"
  attempt KernelCentral hci0 BlueZPeer value $value 510
  succeeded 'ATT_MTU 517' '^read 512 octets$' '^wrote 510 octets$' '^read (the same 510|256) octets'
}
