# Pairing with BlueZ in both roles. Then bluetoothd and our process end, hci1 goes down, both start again, and the next
# link is encrypted with the bond. checks.py looks for that in btmon's trace of both adapters.

lock=0000ffe0-0000-1000-8000-00805f9b34fb
secret=0000ffe1-0000-1000-8000-00805f9b34fb # needs an encrypted link
guarded=0000ffe2-0000-1000-8000-00805f9b34fb # needs one whose key has been authenticated

# Our peripheral, and BlueZ as the central

case_peripheral_sc_just_works() { # up to 90 s: LE Secure Connections; reading makes BlueZ pair
  lock_runs sc accept
  bluez_pairs_by_reading
  bluez_reconnects
}
case_peripheral_sc_numeric_comparison() { # up to 90 s: both sides show the same digits
  lock_runs sc 'sh user'
  bluez_knows DisplayYesNo
  ask "pair $left" 'Confirm passkey [0-9]{6}'
  other_shows 'Confirm passkey'
  ask yes 'Pairing successful'
  bluez_reads $guarded
  bluez_reconnects $guarded
}
case_peripheral_sc_passkey() { # up to 90 s: BlueZ shows six digits, and our user enters them
  lock_runs sc 'sh user'
  bluez_knows DisplayOnly
  ask "pair $left" 'Passkey: [0-9]{6}'
  other_shows 'Passkey:'
  answered 'Pairing successful'
  bluez_reads $guarded
  bluez_reconnects $guarded
}
case_peripheral_legacy_just_works() { # up to 90 s: LE legacy pairing; reading makes BlueZ pair
  lock_runs legacy accept
  bluez_pairs_by_reading
  bluez_reconnects
}
case_peripheral_legacy_passkey() { # up to 90 s: our host shows six digits, and BlueZ's user enters them
  lock_runs legacy 'sh user'
  bluez_knows KeyboardOnly
  ask "pair $left" 'Enter passkey'
  heard asked '^display [0-9]{6}$'
  ask "$(sed -n 's/^display //p' asked)" 'Pairing successful'
  bluez_reads $guarded
  bluez_reconnects $guarded
}
case_peripheral_sc_enhanced_bearers() { # up to 90 s: EATT: BlueZ opens a second bearer on the encrypted link, and reads there
  bearers='--enhanced-bearers 3 --trace serve.btsnoop'
  lock_runs sc accept
  bluez_pairs_by_reading
  # Not before there is a bond: BlueZ asks for the bearer on a link that is not encrypted yet, and then pairs unasked. And
  # not for two: this kernel takes the channels of an answer in the order of its own list, not of its request.
  bluez_has_bearers 2
  bluez_reconnects
  bearers_carry '→' serve.btsnoop
}

lock_runs() { # sc | legacy AGENT: our server on hci0, BlueZ on hci1; btmon writes a trace
  generation=$1 agent=$2
  write_profile
  write_user
  radio legacy
  monitor_runs
  lock_starts
  bluez_runs
}
lock_starts() {
  background serve bindrune serve --hci hci0 --name Lock --profile lock.json --bonds bonds --agent "$agent" $bearers
  serve=$pid
  heard serve.out "^serving Lock as $left/public"
}
write_profile() {
  local features
  # Server Supported Features: EATT.
  [ -z "$bearers" ] || features='{ "uuid": "1801", "characteristics": [ { "uuid": "2B29", "properties": ["read", "write"], "value": "00" }, { "uuid": "2B3A", "properties": ["read"], "value": "01" } ] },'
  cat >lock.json <<END
{ "title": "A lock", "services": [ $features { "uuid": "FFE0", "characteristics": [
  { "uuid": "FFE1", "properties": ["read"], "value": "\"secret\"", "read": "encrypted" },
  { "uuid": "FFE2", "properties": ["read"], "value": "\"guarded\"", "read": "authenticated" } ] } ] }
END
}
write_user() { # our agent: enters or compares the digits that the case writes into the file `shown`
  cat >user <<'END'
echo "$BINDRUNE_QUESTION $BINDRUNE_DIGITS" >>asked
case $BINDRUNE_QUESTION in
  passkey | compare) while [ ! -e shown ]; do usleep 50000; done ;;
esac
case $BINDRUNE_QUESTION in
  passkey) cat shown ;;
  compare) [ "$(cat shown)" = "$BINDRUNE_DIGITS" ] && echo yes || echo no ;;
  *) echo yes ;;
esac
END
}
other_shows() { # WORDS: the digits after these in bluetoothctl's output are in `shown` from now on
  plain | sed -nE "s/.*$1 ([0-9]{6}).*/\1/p" | tail -n 1 >shown.new
  mv shown.new shown
}
bluez_runs() { # with or without LE Secure Connections, as $generation says
  bluetoothctl_runs $conf
  [ "$generation" = sc ] || btmgmt_once --index 1 sc off
}
monitor_runs() {
  background btmon btmon -w btmon.btsnoop
  monitor=$pid
  eventually 10 test -s btmon.btsnoop || fail 'btmon does not begin'
}
monitor_ends() {
  sleep 1
  kill -INT "$monitor"
  finished btmon "$monitor"
}

agent_runs() { # CAPABILITY: of BlueZ's
  ask 'agent off' 'Agent unregistered'
  ask "agent $1" 'Agent registered'
  ask 'default-agent' 'Default agent request successful'
}
bluez_knows() { # CAPABILITY: of its agent; and our server's advertisement
  agent_runs "$1"
  ask 'scan le' "Device $left Lock"
  ask 'scan off' 'Discovery stopped'
}
bluez_pairs_by_reading() { # BlueZ's user consents to Just Works
  bluez_knows NoInputNoOutput
  ask "connect $left" 'Connection successful'
  answered 'ServicesResolved: yes'
  eventually 20 has_attribute $secret || fail "BlueZ has no attribute $secret"
  ask "gatt.select-attribute $secret"
  ask 'gatt.read' 'Accept pairing'
  ask yes 'Paired: yes' # bluetoothd then loses the read: PEERS.md
}
bluez_reads() { # UUID…: of our server
  local uuid
  for uuid; do
    eventually 20 has_attribute "$uuid" || fail "BlueZ has no attribute $uuid"
    ask "gatt.select-attribute $uuid"
    case $uuid in
      "$secret") ask 'gatt.read' ' secret' ;;
      "$guarded") ask 'gatt.read' ' guarded' ;;
    esac
  done
}
has_attribute() {
  ask "gatt.list-attributes $left"
  usleep 300000
  said "$1"
}
bluez_reconnects() { # [UUID]: both sides start again, with the bond and without a user who would permit a pairing
  ask "disconnect $left" 'Successful disconnected|Disconnection successful'
  heard serve.out '^disconnected: '
  kill -INT "$serve"
  finished serve "$serve"
  succeeded
  bluez_ends
  agent=refuse
  lock_starts
  bluez_runs
  ask "connect $left" 'Connection successful'
  bluez_reads $secret $1
  monitor_ends
}
bluez_ends() { # bluetoothd and bluetoothctl; bluetoothd takes the adapter down
  echo quit >&8
  exec 8>&-
  kill "$bluetoothd"
  eventually 20 gone "$bluetoothd" || fail 'bluetoothd does not end'
  eventually 20 is_set_up hci1 || fail 'hci1 is still up'
  mv dialogue dialogue-1
  mv bluetoothd.err bluetoothd-1.err
  rm dialogue.in
}

# Our central, and BlueZ's peripheral

case_central_sc_just_works() { # up to 90 s: LE Secure Connections; BlueZ's user consents
  bluez_locks sc NoInputNoOutput
  we_cannot_read
  we_pair_by_consent --sc-only
  we_have_paired 'Secure Connections, unauthenticated, 16 octets'
  we_reconnect
}
case_central_sc_numeric_comparison() { # up to 90 s: both sides show the same digits
  bluez_locks sc DisplayYesNo
  we_cannot_read
  we_pair --io yesno --mitm --sc-only
  heard pair.out ' shows: [0-9]{6}$'
  answered 'Confirm passkey [0-9]{6}'
  other_shows 'Confirm passkey'
  grep -q " shows: $(cat shown)\$" pair.out || fail "BlueZ shows $(cat shown), and we $(cat pair.out)"
  ask yes
  echo yes >&7
  we_have_paired 'Secure Connections, authenticated, 16 octets'
  we_reconnect
}
case_central_sc_passkey() { # up to 90 s: our tool shows six digits, and BlueZ's user enters them
  bluez_locks sc KeyboardOnly
  we_cannot_read
  we_pair --io display --mitm --sc-only
  heard pair.out '^Enter these digits on .*: [0-9]{6}$'
  answered 'Enter passkey'
  ask "$(sed -nE 's/^Enter these digits on .*: ([0-9]{6})$/\1/p' pair.out)"
  we_have_paired 'Secure Connections, authenticated, 16 octets'
  we_reconnect
}
case_central_legacy_just_works() { # up to 90 s: LE legacy pairing; BlueZ's user consents
  bluez_locks legacy NoInputNoOutput
  we_cannot_read
  we_pair_by_consent
  we_have_paired 'legacy, unauthenticated, 16 octets'
  we_reconnect
}
case_central_legacy_passkey() { # up to 90 s: BlueZ shows six digits, and our user enters them
  bluez_locks legacy DisplayOnly
  we_cannot_read
  we_pair --io keyboard --mitm
  answered 'Passkey: [0-9]{6}'
  other_shows 'Passkey:'
  cat shown >&7
  we_have_paired 'legacy, authenticated, 16 octets'
  we_reconnect
}
case_central_lost_key() { # up to 90 s: BlueZ removes the bond: our tool says so, and keeps ours until it is removed
  bluez_locks sc NoInputNoOutput
  we_pair_by_consent
  we_have_paired 'Secure Connections, unauthenticated, 16 octets'
  ask "remove $left" 'Device has been removed'
  attempt bindrune pair $to_bluez --io none
  refused 'no longer has the key of the bond' "bindrune bonds remove $right/public"
  attempt bindrune read $to_bluez --agent accept $secret
  [ "$status" = 1 ] || fail "status $status instead of 1"
  grep -q 'no longer has the key of the bond' err || fail 'the reason is not in the sentence'
  attempt bindrune bonds list --bonds bonds
  succeeded "$right/public"
  attempt bindrune bonds remove "$right" --bonds bonds
  succeeded
  we_pair_by_consent
  we_have_paired 'Secure Connections, unauthenticated, 16 octets'
  monitor_ends
}
case_central_sc_enhanced_bearers() { # up to 90 s: EATT: we open bearers on the encrypted link, BlueZ serves there
  bluez_locks sc NoInputNoOutput
  we_pair_by_consent --sc-only
  we_have_paired 'Secure Connections, unauthenticated, 16 octets'
  bluez_has_bearers 4
  to_bluez="$to_bluez --enhanced-bearers 3 --trace read.btsnoop"
  we_reconnect
  attempt bindrune explore $to_bluez --agent refuse
  succeeded secret
  bearers_carry '←' read.btsnoop
}
bluez_has_bearers() { # COUNT: the most that bluetoothd has on a link when it starts again, the first one included
  enhanced_channels
  printf '[Policy]\nAutoEnable=false\n[GATT]\nChannels=%s\n' "$1" >main.conf
  conf=main.conf
}
bearers_carry() { # ARROW TRACE: enhanced bearers have been opened, and a PDU has come on one
  attempt bindrune trace show "$2"
  cp out shown
  local regex
  for regex in 'L2CAP_CREDIT_BASED_CONNECTION_RSP .*Result: 0x0000' "$1 0x002A ATT   ATT_[A-Z_]+  bearer 0x004"; do
    grep -qE "$regex" shown || fail "no /$regex/ in the trace"
  done
}

to_bluez="--hci hci0 --address $right/public --bonds bonds"

bluez_locks() { # sc | legacy CAPABILITY: of BlueZ's agent, which serves and advertises on hci1; btmon writes a trace
  generation=$1
  radio legacy
  monitor_runs
  bluez_runs
  bluez_advertises "$2"
}
bluez_advertises() { # CAPABILITY
  agent_runs "$1"
  ask "gatt.register-service $lock" 'yes/no'
  ask yes
  ask "gatt.register-characteristic $secret encrypt-read" 'Enter value'
  ask '0x73 0x65 0x63 0x72 0x65 0x74'
  ask 'gatt.register-application' 'Application registered'
  ask 'advertise.name BlueZPeer'
  ask 'advertise on' 'Advertising object registered'
}
we_cannot_read() { # without a pairing
  attempt bindrune read $to_bluez --agent refuse $secret
  [ "$status" = 4 ] || fail "status $status instead of 4"
  grep -q 'Insufficient' err || fail "no refusal in: $(cat err)"
}
we_pair() { # OPTION…: bindrune pair, which reads what we write to 7
  [ -e answers ] || mkfifo answers
  exec 7<>answers
  step "pair: bindrune pair $to_bluez $*"
  bindrune pair $to_bluez "$@" <answers >pair.out 2>pair.err &
  pair=$!
}
we_pair_by_consent() { # OPTION…: Just Works
  local from
  from=$(wc -c <dialogue)
  we_pair --io none "$@"
  answered 'Accept pairing' "$from"
  ask yes
}
we_have_paired() { # REGEX
  finished pair "$pair"
  succeeded "$1"
}
we_reconnect() { # BlueZ starts again, and so do we: the bond encrypts the link, and no agent permits a pairing
  bluez_ends
  bluez_runs
  bluez_advertises NoInputNoOutput
  local try
  for try in 1 2 3; do # bluetoothd may end the link: PEERS.md
    attempt bindrune read $to_bluez --agent refuse --format utf8 $secret
    grep -q 'The link went down, 0x13' err || break
  done
  succeeded '^secret$'
  attempt bindrune pair $to_bluez --json
  succeeded '"event":"encrypted".*"encrypted":true'
  monitor_ends
}
