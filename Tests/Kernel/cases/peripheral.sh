# Our GATT server, and BlueZ as the central.

case_session_legacy() { # bluetoothctl: scan, connect, discover, read, write, subscribe, disconnect, and again
  session legacy
}
case_session_ext() { # the same with the commands of 5.x
  session ext
}
session() {
  radio "$1"
  background serve bindrune serve --hci hci0
  heard serve.out "^serving Bindrune HR as $left/public"
  bluetoothctl_runs
  ask 'scan le' "Device $left Bindrune HR"
  ask 'scan off' 'Discovery stopped'
  ask "connect $left" 'Connection successful'
  answered 'ServicesResolved: yes'
  heard serve.out "^connected: $right/public"
  ask "gatt.list-attributes $left" 00002a24- # all but Generic Access, which bluetoothd hides
  local uuid
  for uuid in 1801 180a 180d 180f 2a19 2a24 2a29 2a37 2a38 2a39; do
    answered "0000$uuid-0000-1000-8000-00805f9b34fb"
  done
  ask 'gatt.select-attribute 00002a24-0000-1000-8000-00805f9b34fb'
  ask 'gatt.read' 'Virtual Heart Ra'
  ask 'gatt.select-attribute 00002a39-0000-1000-8000-00805f9b34fb'
  ask 'gatt.write 1'
  heard serve.out 'written: 01'
  ask 'gatt.write 2' 'Failed to write: .*(0x80|[Ff]ailed)'
  ask 'gatt.select-attribute 00002a37-0000-1000-8000-00805f9b34fb'
  ask 'gatt.notify on' 'Notify started'
  heard serve.out 'subscribed'
  local from
  for _ in 1 2 3; do
    from=$(wc -c <dialogue)
    answered ' 00 [34][0-9a-f] ' "$from" 5 # 62 to 72 beats a minute
  done
  ask 'gatt.notify off' 'Notify stopped'
  heard serve.out 'unsubscribed'
  ask "disconnect $left" 'Successful disconnected|Disconnection successful'
  heard serve.out '^disconnected: '
  ask "connect $left" 'Connection successful'
  eventually 10 twice serve.out "^connected: $right/public" || fail 'no second connection'
}
twice() { [ "$(grep -cE -e "$2" "$1")" = 2 ]; }

case_gatttool_legacy() { # the kernel's L2CAP and a client without a daemon
  gatttool_session legacy
}
case_gatttool_ext() { # the same with the commands of 5.x
  gatttool_session ext
}
gatttool_session() {
  serve_interop "$1"
  attempt gatttool -i hci1 -b $left --primary
  succeeded 'uuid: 0000180d-' 'uuid: 0000180f-' 'uuid: a0b10000-1d1d-'
  heard peripheral.out ready
  attempt gatttool -i hci1 -b $left --characteristics
  succeeded 'uuid = 00002a37-' 'uuid = a0b1000c-'
  attempt gatttool -i hci1 -b $left --char-read -u a0b10001-1d1d-4bbd-8e5c-6f0e5f1a0c00
  succeeded 'value: 48 45 4c 4c 4f'
  attempt gatttool -i hci1 -b $left --char-read -u a0b10007-1d1d-4bbd-8e5c-6f0e5f1a0c00
  # Insufficient Authentication, and Pairing Not Supported to what the kernel then tries: it ends the link, and gatttool 5.82 may
  # not notice and wait.
  ! grep -q 'value:' out || fail 'a value that needs encryption was read without'
}
serve_interop() { # RADIO: the database of Tests/Interop on hci0, the kernel's host on hci1
  radio "$1"
  background peripheral InteropPeripheral hci0
  heard peripheral.out ready
  power_on hci1
}

case_long_values_legacy() { # 512 octets read and written with an MTU of 517 and one ACL buffer of 192 octets
  long_values legacy
}
case_long_values_ext() { # the same with the commands of 5.x
  long_values ext
}
long_values() {
  serve_interop "$1"
  converse gatttool -i hci1 -b $left -I
  ask connect 'Connection successful'
  local handle expected
  handle=$(value_handle a0b10006)
  expected=$(octets 512 | sed 's/../& /g')
  ask 'mtu 517' 'MTU was exchanged successfully: 517'
  ask "char-read-hnd $handle" "$expected"
  expected=$(octets 512 | sed 's/../& /g' | tr ' ' '\n' | tac | tr -d '\n')
  ask "char-write-req $handle $expected" 'written successfully'
  ask "char-read-hnd $handle" "$(echo "$expected" | sed 's/../& /g')"
}
octets() { # COUNT: 00 01 … as hex
  awk -v count="$1" 'BEGIN { for (i = 0; i < count; i++) printf "%02x", i % 256 }'
}
value_handle() { # UUID's first digits: asked of the server by the dialogue with gatttool
  ask characteristics "uuid: a0b1000c" >/dev/null
  plain 0 | sed -nE "s/.*char value handle: (0x[0-9a-f]{4}), uuid: $1-.*/\1/p" | head -n 1
}

case_notifications() { # up to 120 s: 3,000 of them to the kernel's host, in order, none lost
  serve_interop legacy
  converse gatttool -i hci1 -b $left -I
  ask connect 'Connection successful'
  local source control
  source=$(value_handle a0b10004)
  control=$(value_handle a0b1000a)
  ask "char-write-req $(printf '0x%04x' $((source + 1))) 0100" 'written successfully'
  ask "char-write-req $control 01b80b1400" # 3,000 of 20 octets
  eventually 90 have_come 3000 || fail "$(grep -c 'Notification handle' dialogue) of 3000 came"
  [ "$(in_order)" = 3000 ] || fail "$(in_order) of 3000 came in order"
}
have_come() { [ "$(grep -c 'Notification handle' dialogue)" = "$1" ] && sleep 1; }
in_order() { # how many, up to the first that is out of order
  plain 0 | awk '/Notification handle/ {
    sub(".*value: ", "")
    if (NF != 20 || $0 !~ sprintf("^%02x %02x 00 00 ", n % 256, n / 256)) exit
    n++
  } END { print n + 0 }'
}

case_advertise_legacy() { # name, service and manufacturer data of `bindrune advertise`, as bluetoothd reads them
  advertised legacy 'Bindrune on Linux' 'Bindrune on Linux'
}
case_advertise_ext() { # the same with the commands of 5.x
  advertised ext 'Bindrune on Linux' 'Bindrune on Linux'
}
case_advertise_shortened() { # a name that the scan response cannot hold is cut to 29 octets
  advertised legacy "$long_name" 'A name of more than thirty-on'
}
case_advertise_too_much_legacy() { # data that do not fit are refused with the numbers
  too_much legacy
}
case_advertise_too_much_ext() { # also with the commands of 5.x: btvirt's advertisements still have 31 octets
  too_much ext
}
too_much() {
  radio "$1"
  attempt bindrune advertise --hci hci0 --policy everything --name "$long_name" --service $one_uuid --service $another_uuid --service $third_uuid
  refused 'not possible' 'needs [0-9]+ octets and [0-9]+ are free'
}
long_name='A name of more than thirty-one octets and a few more'
one_uuid=12345678-1234-5678-1234-56789abcdef0
another_uuid=12345678-1234-5678-1234-56789abcdef1
third_uuid=12345678-1234-5678-1234-56789abcdef2
advertised() { # RADIO NAME ITS-NAME-ON-THE-AIR OPTION…
  local radio=$1 name=$2 heard=$3
  shift 3
  radio "$radio"
  background advertise bindrune advertise --hci hci0 --policy everything --name "$name" --service 180D --manufacturer FFFF0102 "$@"
  local ours=$pid
  heard advertise.out "$left"
  bluetoothctl_runs
  ask 'scan le' "Device $left $heard\$"
  ask "info $left" 'UUID: Heart Rate'
  answered 'ManufacturerData.*0xffff'
  answered '^ +01 02  '
  kill -INT "$ours"
  finished advertise "$ours"
  succeeded
}

case_scan_response() { # both halves of what serve advertises reach the kernel
  radio legacy
  background serve bindrune serve --hci hci0 --name 'A name of twenty-nine octets.'
  heard serve.out '^serving'
  bluetoothctl_runs
  ask 'scan le' "Device $left A name of twenty-nine octets\."
  ask "info $left" 'UUID: Heart Rate'
}

# As an iPhone sends: 28 octets beside the flags, and UUIDs that do not fit as bits of the overflow area.

case_like_an_iphone_legacy() { # policy coreBluetooth: a 128-bit UUID leaves eight octets for the name
  like_an_iphone legacy
}
case_like_an_iphone_ext() { # the same with the commands of 5.x
  like_an_iphone ext
}
like_an_iphone() {
  seen_by_bluez "$1" --name 'LightBlue on Linux' --service $one_uuid
  bluez_shows 'Device '$left' LightBlu$' "UUID: .*$one_uuid"
  monitor_shows 'Flags: 0x06' '128-bit Service UUIDs \(complete\): 1 entr' 'Name \(short\): LightBlu$'
}

# C007, C008 and 1001 set bits 10 of octet 4, 08 and 02 of octet 7: captures of iPhones, Fixtures/Vectors/overflow.txt.
case_overflow_legacy() { # the UUIDs that do not fit are bits of Apple's manufacturer data in the scan response
  overflow legacy
}
case_overflow_ext() { # the same with the commands of 5.x
  overflow ext
}
overflow() {
  seen_by_bluez "$1" --name Fred --service $one_uuid --service 180D --service 180F --service 180A --service 1812 \
    --service C007 --service C008 --service 1001
  bluez_shows 'Device '$left' Fred$' 'UUID: Heart Rate' 'UUID: Battery Service' 'UUID: Human Interface Device' \
    "UUID: .*$one_uuid" 'ManufacturerData.*0x004c' '^ +01 00 00 00 00 10 00 00 0a 00 00 00 00 00 00 00 '
  ! said 'c007-0000|c008-0000|00001001-' 0 || fail 'a service of the overflow area was advertised'
  monitor_shows 'Name \(complete\): Fred$' '16-bit Service UUIDs \(partial\): 4 entries' '128-bit Service UUIDs \(complete\): 1 entr' \
    'Company: Apple, Inc. \(76\)'
}
case_background() { # in the background there are no name and no UUIDs, only bits
  seen_by_bluez legacy --background --name Fred --service C007
  bluez_shows "Device $left ([0-9A-F]{2}-){5}" 'ManufacturerData.*0x004c' '^ +01 00 00 00 00 10 00 00 00 00 00 00 00 00 00 00 '
  ! said 'Fred|c007-0000' 0 || fail 'what an iPhone keeps for the foreground was advertised'
}

case_policy_standard() { # both halves full: two 128-bit UUIDs, a name, manufacturer data
  seen_by_bluez legacy --policy standard --name 'Both halves' --service $one_uuid --service 180D --manufacturer FFFF0102
  bluez_shows "Device $left Both halves$" "UUID: .*$one_uuid" 'UUID: Heart Rate' 'ManufacturerData.*0xffff' '^ +01 02  '
}
case_policy_extended() { # extended PDUs, as far as btvirt has room
  seen_by_bluez ext --policy extended --name Extended --service 180D --manufacturer FFFF0102
  bluez_shows "Device $left Extended$" 'UUID: Heart Rate' 'ManufacturerData.*0xffff'
  monitor_shows 'LE Extended Advertising Report' 'Name \(complete\): Extended$'
}

seen_by_bluez() { # RADIO OPTION…: of bindrune advertise, which continues; btmon shows what BlueZ receives
  radio "$1"
  shift
  background btmon stdbuf -oL btmon --index 1
  background advertise bindrune advertise --hci hci0 "$@"
  heard advertise.out "$left"
  bluetoothctl_runs
}
bluez_shows() { # DEVICE-LINE REGEX…: of bluetoothctl's information about us
  ask 'scan le' "$1"
  shift
  ask "info $left" 'RSSI|Connected:'
  local regex
  for regex; do answered "$regex"; done
}
monitor_shows() { # REGEX…: in what btmon makes of our packets
  local regex
  for regex; do heard btmon.out "$regex"; done
}
