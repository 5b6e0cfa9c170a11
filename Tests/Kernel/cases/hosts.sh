# Two hosts of ours, on hci0 and on hci1, and failures below them.

case_pair_legacy() { # explore against serve
  pair legacy
}
case_pair_ext() { # the same with the commands of 5.x
  pair ext
}
pair() {
  radio "$1"
  background serve bindrune serve --hci hci0
  heard serve.out '^serving'
  attempt bindrune explore --hci hci1 --name 'Bindrune HR'
  succeeded 'Heart Rate Measurement 2A37' '"Virtual Heart Rate Belt"' 'ATT_MTU 517'
  heard serve.out '^disconnected: '
}

case_long_values() { # 512 octets there and back
  radio legacy
  background peripheral InteropPeripheral hci0
  heard peripheral.out ready
  attempt KernelCentral hci1 InteropPeer value A0B10006-1D1D-4BBD-8E5C-6F0E5F1A0C00 512
  succeeded 'ATT_MTU 517' '^read 512 octets$' '^read the same 512 octets$'
}

case_notifications_legacy() { # up to 120 s: 10,000 in order, none lost
  radio legacy
  count 10000 20
  all_received 10000
}
case_notifications_ext() { # the same with the commands of 5.x, longer and fewer
  radio ext
  count 1000 512
  all_received 1000
}
all_received() { # COUNT
  finished central "$central" 100
  succeeded "^received $1 of $1, in order\$" '^read: ' '^disconnected'
}
count() { # COUNT LENGTH [TRACE]: hci0's notifications counted on hci1; $central
  background peripheral InteropPeripheral hci0
  heard peripheral.out ready
  background central KernelCentral hci1 InteropPeer notifications "$@"
  central=$pid
  heard central.out '^subscribed'
}

case_stalled_reader() { # stopped for 3 s while 4,000 come: the kernel's buffer keeps them, and all arrive
  radio legacy
  count 4000 20
  kill -STOP "$central"
  sleep 3
  kill -CONT "$central"
  all_received 4000
}

case_overrun_reader() { # up to 120 s: stopped while more come than the buffer keeps: the kept ones arrive, and the link continues
  overrun 14000 20 11800
}
case_overrun_reader_of_fragments() { # up to 120 s: the same in two packets each: a value that lacks a half is dropped and reported
  overrun 5500 244 9500
}
overrun() { # COUNT LENGTH PACKETS: the reader stops until this many packets have been sent
  radio legacy
  count "$1" "$2" central.btsnoop
  kill -STOP "$central"
  eventually 60 has_sent hci0 "$3" || fail "hci0 has not sent $3 packets"
  kill -CONT "$central"
  finished central "$central" 60
  succeeded "^received [0-9]{4,} of $1, in order, lost [0-9]+ in [0-9]+ gaps?, first " '^read: ' '^disconnected'
}
has_sent() { # hciN PACKETS
  [ "$(hciconfig "$1" | sed -n 's/.*TX bytes:.* acl:\([0-9]*\).*/\1/p')" -gt "$2" ]
}

case_unplug_while_scanning() { # the error says that the adapter is gone
  radio legacy
  background serve bindrune serve --hci hci1
  background scan bindrune scan --hci hci0
  local ours=$pid
  heard scan.out 'Bindrune HR' # it scans: the time until then depends on the machine
  kill "$btvirt"
  finished scan "$ours"
  refused 'hci0'
}

case_unplug_while_connected() { # on both sides of a link
  radio legacy
  background serve bindrune serve --hci hci0
  local server=$pid
  heard serve.out '^serving'
  background client KernelCentral hci1 'Bindrune HR' wait
  local client=$pid
  heard client.out '^connected'
  kill "$btvirt"
  finished serve "$server"
  refused 'hci0'
  finished client "$client"
  [ "$status" = 1 ] && grep -q hci1 out || fail 'the central does not say that hci1 is gone'
}

case_killed() { # SIGKILL to both ends of a link: the next opens work, and so does the next link
  radio legacy
  background serve bindrune serve --hci hci0
  local server=$pid
  heard serve.out '^serving'
  background client KernelCentral hci1 'Bindrune HR' wait
  local client=$pid
  heard client.out '^connected'
  kill -KILL "$server" "$client"
  background again bindrune serve --hci hci0
  heard again.out '^serving'
  attempt bindrune explore --hci hci1 --name 'Bindrune HR'
  succeeded 'Heart Rate'
}

case_silent_at_start() { # a controller that does not answer Reset: an error, and later a start
  radio legacy
  kill -STOP "$btvirt"
  attempt bindrune scan --hci hci0 --duration 1
  refused 'did not start' 'Reset'
  kill -CONT "$btvirt"
  attempt bindrune scan --hci hci0 --duration 1
  succeeded
}

case_silent_later() { # a controller that stops answering: the command's time-out ends the operation with an error
  radio legacy
  background serve bindrune serve --hci hci0
  heard serve.out '^serving'
  background client KernelCentral hci1 'Bindrune HR' wait 2
  local client=$pid
  heard client.out '^found'
  kill -STOP "$btvirt"
  finished client "$client"
  [ "$status" = 1 ] && grep -qE 'controller' out || fail 'it does not say that the controller failed'
  kill -CONT "$btvirt"
  attempt bindrune explore --hci hci1 --name 'Bindrune HR'
  succeeded 'Heart Rate'
}

case_monitor() { # `trace show monitor:` and a recorder see what btmon sees, beside two hosts that have the adapters
  radio legacy
  background btmon btmon -w btmon.btsnoop
  local monitor=$pid
  background live bindrune trace show --fields monitor:
  local live=$pid
  background recorder bindrune trace convert monitor: --format monitor -o recorder.btsnoop
  local recorder=$pid
  eventually 10 test -s btmon.btsnoop || fail 'btmon does not begin'
  eventually 10 test -s recorder.btsnoop || fail 'the recorder does not begin'
  background serve bindrune serve --hci hci0
  local server=$pid
  heard serve.out '^serving'
  attempt bindrune explore --hci hci1 --name 'Bindrune HR'
  succeeded
  heard serve.out '^disconnected: '
  kill -INT "$server"
  finished serve "$server"
  sleep 1
  kill -INT "$live" "$recorder" "$monitor"
  finished btmon "$monitor"
  bindrune trace show --fields btmon.btsnoop >btmon.fields || fail 'the file of btmon does not read'
  bindrune trace show btmon.btsnoop >btmon.lines || fail 'the file of btmon does not show'
}

case_trace() { # our two traces and btmon's: the same packets
  radio legacy
  background btmon btmon -w btmon.btsnoop
  local monitor=$pid
  eventually 10 test -s btmon.btsnoop || fail 'btmon does not begin'
  background serve bindrune serve --hci hci0 --trace serve.btsnoop
  local server=$pid
  heard serve.out '^serving'
  attempt bindrune explore --hci hci1 --name 'Bindrune HR' --trace explore.btsnoop
  succeeded
  heard serve.out '^disconnected: '
  kill -INT "$server"
  finished serve "$server"
  sleep 1
  kill -INT "$monitor"
  finished btmon "$monitor"
}
