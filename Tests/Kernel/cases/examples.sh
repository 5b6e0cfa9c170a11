# Examples/HeartRateCentral and HeartRatePeripheral, which use Core Bluetooth only, and BlueZ. They name no
# adapter: without BINDRUNE_HCI they use hci0.

sensor=0000180d-0000-1000-8000-00805f9b34fb
rate=00002a37-0000-1000-8000-00805f9b34fb

case_central_legacy() { # ten heart rates of bluetoothd's, in order, none missing
  central legacy
}
case_central_ext() { # the same with the commands of 5.x
  central ext
}
central() {
  radio "$1"
  bluetoothctl_runs
  ask "gatt.register-service $sensor" 'yes/no'
  ask yes
  ask "gatt.register-characteristic $rate notify" 'Enter value'
  ask '0x00 0x00'
  ask 'gatt.register-application' 'Application registered'
  ask 'advertise.name BlueZPeer'
  ask "advertise.uuids $sensor"
  ask 'advertise on' 'Advertising object registered'
  background central HeartRateCentral
  local ours=$pid
  answered 'Notify sock acquired'
  # bluetoothctl 5.66 has no command for it: KernelNotifier writes all ten in its socket at once, and bluetoothd reads one
  # after another and sends each as a notification. HeartRateCentral ends with its tenth.
  attempt KernelNotifier "$(pidof bluetoothctl)" 003d 003e 003f 0040 0041 0042 0043 0044 0045 0046
  succeeded
  finished central "$ours"
  succeeded
  [ "$(rates)" = '61 62 63 64 65 66 67 68 69 70' ] || fail "not ten heart rates from 61 to 70: $(cat out)"
}
rates() { # the first number of each line
  echo $(sed -E 's/^[^0-9]*([0-9]+).*/\1/' out)
}

case_peripheral_legacy() { # bluetoothctl: scan, connect, subscribe, values, disconnect, and again; SIGTERM
  peripheral legacy
}
case_peripheral_ext() { # the same with the commands of 5.x
  peripheral ext
}
peripheral() {
  radio "$1"
  background peripheral HeartRatePeripheral
  local ours=$pid from
  heard peripheral.out '[Aa]dvertising'
  bluetoothctl_runs
  ask 'scan le' "Device $left"
  ask 'scan off' 'Discovery stopped'
  for _ in 1 2; do
    from=$(wc -c <dialogue)
    ask "connect $left" 'Connection successful'
    answered 'ServicesResolved: yes' "$from"
    ask "gatt.select-attribute $rate"
    ask 'gatt.notify on' 'Notify started'
    for _ in 1 2 3; do
      from=$(wc -c <dialogue)
      answered '^ +[0-9a-f]{2} [3-9a-f][0-9a-f] ' "$from" 5 # flags, and 48 beats a minute or more
    done
    ask 'gatt.notify off' 'Notify stopped'
    ask "disconnect $left" 'Successful disconnected|Disconnection successful'
  done
  kill -TERM "$ours"
  finished peripheral "$ours"
  case $status in 0 | 143) ;; *) fail "status $status at SIGTERM" ;; esac
}

case_each_other() { # both ends are ours, over the kernel's two adapters
  radio ext
  background peripheral HeartRatePeripheral
  heard peripheral.out '[Aa]dvertising'
  export BINDRUNE_HCI=hci1
  attempt HeartRateCentral
  succeeded
  [ "$(rates | wc -w)" = 10 ] || fail "not ten heart rates: $(cat out)"
}

case_take_down() { # an adapter that is up: down for a Core Bluetooth program, and up again after a signal that it leaves alone
  radio legacy
  power_on hci0
  export BINDRUNE_TAKE_DOWN=1
  background central HeartRateCentral
  local ours=$pid
  heard central.err 'looking for'
  kill -TERM "$ours" # a background process of a shell ignores SIGINT
  finished central "$ours"
  [ "$status" = 143 ] || fail "status $status instead of 143, SIGTERM's"
  is_up hci0 || fail 'hci0 was up before, and is not now'
}
