# bindruned owns hci0, and programs of ordinary users share it; BlueZ is on the other adapters.

sensor=0000180d-0000-1000-8000-00805f9b34fb
rate=00002a37-0000-1000-8000-00805f9b34fb
socket=/run/bindrune/apps.socket

# By its path: busybox has its own, with fewer features. Two members of the group, somebody else, and the daemon's user.
ann='/bin/setpriv --reuid 1001 --regid 1001 --groups 103'
bob='/bin/setpriv --reuid 1002 --regid 1002 --groups 103'
eve='/bin/setpriv --reuid 1003 --regid 1003 --clear-groups'
daemon_user='/bin/setpriv --reuid 103 --regid 103 --clear-groups --no-new-privs'

daemon() { # CAPABILITIES: its only ones; $daemon
  mkdir -p /run/bindrune state
  chown 103:103 /run/bindrune state
  background daemon $daemon_user --inh-caps "-all,$1" --ambient-caps "-all,$1" --bounding-set "-all,$1" \
    bindruned --hci hci0 --socket $socket --group bindrune --state state --log-level info
  daemon=$pid
  heard daemon.err ' ready$'
}

bluez_has_a_sensor() { # on hci1
  ask "gatt.register-service $sensor" 'yes/no'
  ask yes
  ask "gatt.register-characteristic $rate notify" 'Enter value'
  ask '0x00 0x00'
  ask 'gatt.register-application' 'Application registered'
  ask 'advertise.name BlueZPeer'
  ask "advertise.uuids $sensor"
  ask 'advertise on' 'Advertising object registered'
}
bluez_connects() { # [ADAPTER]: scans for the peripheral app, connects, subscribes
  local from
  ask 'scan le' "Device $left"
  ask 'scan off' 'Discovery stopped'
  from=$(wc -c <dialogue)
  ask "connect $left" 'Connection successful'
  answered 'ServicesResolved: yes' "$from"
  bluez_subscribes "$1"
}
bluez_subscribes() { # [ADAPTER]
  ask "gatt.select-attribute $(plain 0 | grep -B 1 "$rate" | grep -oE "/org/bluez/${1:-hci1}/dev_.*" | tail -n 1)"
  ask 'gatt.notify on' 'Notify started'
  values_come
}
values_come() { # three, of now
  local from
  for _ in 1 2 3; do
    from=$(wc -c <dialogue)
    answered '^ +[0-9a-f]{2} [3-9a-f][0-9a-f] ' "$from" 5 # flags, and 48 beats a minute or more
  done
}
bluez_sends() { # VALUE…
  attempt KernelNotifier "$(pidof bluetoothctl)" "$@"
  succeeded
}
rates() { # FILE: the first number of each line
  echo $(sed -E 's/^[^0-9]*([0-9]+).*/\1/' "$1")
}
twice() { [ "$(grep -cE -e "$2" "$1")" -ge 2 ]; }

# btvirt gives no adapter two links that work, so BlueZ is client and server on the one that the central makes.
case_two_apps_legacy() { # up to 120 s: of two users, as central and as peripheral at once; SIGKILL to one of them
  two_apps legacy
}
case_two_apps_ext() { # up to 120 s: the same with the commands of 5.x
  two_apps ext
}
two_apps() {
  radio "$1"
  daemon +net_admin
  background peripheral $bob HeartRatePeripheral
  local peripheral=$pid from
  heard peripheral.out advertising
  bluetoothctl_runs
  bluez_has_a_sensor
  background central $ann HeartRateCentral
  local central=$pid
  answered 'Notify sock acquired'
  answered 'ServicesResolved: yes'
  bluez_subscribes
  bluez_sends 003d 003e 003f
  eventually 10 said_rates central.out '61 62 63' || fail "not three heart rates: $(cat central.out)"
  values_come

  attempt bindrune apps list --json
  succeeded "\"identifier\":\"HeartRateCentral\",\"user\":1001,\"life\":\"foreground\",\"pid\":$central" \
    "\"identifier\":\"HeartRatePeripheral\",\"user\":1002,\"life\":\"foreground\",\"pid\":$peripheral"
  attempt $ann bindrune apps list
  succeeded HeartRateCentral
  ! grep -q HeartRatePeripheral out || fail "a user sees another's app"
  attempt $ann bindrune apps terminate HeartRatePeripheral
  refused 'belongs to user 1002'

  # The link of the killed app ends. The other app goes on: BlueZ finds it, and makes a link of its own.
  from=$(wc -c <dialogue)
  kill -KILL "$central"
  answered 'Connected: no' "$from"
  attempt bindrune apps list
  succeeded HeartRatePeripheral
  ! grep -q HeartRateCentral out || fail 'the killed app is still there'
  # With the commands of 4.x btvirt has ended the advertising of the end that made the link too, and not told: it begins again.
  attempt bindrune apps background HeartRatePeripheral
  succeeded 'in the background'
  attempt bindrune apps foreground HeartRatePeripheral
  succeeded 'in the foreground'
  bluez_connects
  ask "disconnect $left" 'Successful disconnected|Disconnection successful'

  # The killed app's next process begins anew.
  background central $ann HeartRateCentral
  central=$pid
  eventually 20 acquired_twice || fail 'BlueZ has no second subscription'
  bluez_sends 003d 003e 003f 0040 0041 0042 0043 0044 0045 0046
  finished central "$central"
  succeeded
  [ "$(rates out)" = '61 62 63 64 65 66 67 68 69 70' ] || fail "not ten heart rates from 61 to 70: $(cat out)"
  ! gone "$peripheral" || fail 'the other app has ended'
}
said_rates() { [ "$(rates "$1")" = "$2" ]; }
acquired_twice() { [ "$(plain 0 | grep -c 'Notify sock acquired')" -ge 2 ]; }

case_killed_daemon() { # up to 120 s: SIGKILL: apps see resetting, and poweredOn when it is back
  background btvirt btvirt -l3
  for adapter in hci0 hci1 hci2; do eventually 20 is_set_up $adapter || fail "the kernel has not set $adapter up"; done
  daemon +net_admin
  background central $ann HeartRateCentral
  heard central.err 'looking for'
  background peripheral $bob HeartRatePeripheral
  heard peripheral.out advertising
  bluetoothctl_runs
  bluez_connects
  kill -KILL "$daemon"
  heard peripheral.err 'bindruned has ended the connection'
  heard central.err 'bindruned has ended the connection'
  ! gone "$pid" || fail 'the app has ended with the daemon'
  mv daemon.err killed.err
  daemon +net_admin
  eventually 20 twice peripheral.out advertising || fail 'it does not advertise again'
  eventually 20 twice central.err 'looking for' || fail 'it does not scan again'
  # btvirt's links have no supervision timeout: hci1 still has the old one.
  ask 'select 00:AA:01:02:00:02'
  ask 'power on' 'power on succeeded'
  bluez_connects hci2
}

case_orderly_end() { # SIGTERM: links end, the socket is gone, and the adapter is free and down
  radio ext
  daemon +net_admin
  background peripheral $bob HeartRatePeripheral
  heard peripheral.out advertising
  bluetoothctl_runs
  bluez_connects
  kill -TERM "$daemon"
  finished daemon "$daemon"
  succeeded
  answered 'Connected: no'
  [ ! -e $socket ] || fail 'the socket is still there'
  ! is_up hci0 || fail 'hci0 is up, and was down before'
  attempt bindrune doctor hci0
  succeeded
  attempt bindrune scan --hci hci0 --duration 1
  succeeded
}

case_somebody_else() { # a user who is not in the group is refused, with the remedy
  radio legacy
  daemon +net_admin
  attempt $eve HeartRateCentral
  [ "$status" = 1 ] || fail "status $status instead of 1"
  grep -q "You may not use $socket: have yourself added to the socket's group" err || fail "no remedy in: $(cat err)"
  grep -q 'may not use Bluetooth' err || fail "the app does not see unauthorized: $(cat err)"
  attempt $eve bindrune apps list
  refused "$socket" 'group'
  attempt $ann bindrune apps log
  refused 'as root'
}

case_one_adapter_one_owner() { # beside the daemon the adapter has no second owner, and its apps need none
  radio legacy
  daemon +net_admin
  background peripheral $bob HeartRatePeripheral
  heard peripheral.out advertising
  attempt bindrune scan --hci hci0 --duration 1
  refused 'hci0 is taken' "bindruned.*$daemon"
  attempt bindrune scan --hci hci1 --duration 2 --json
  succeeded '"name":"Heart Rate"'
}

case_suspended() { # for real with CAP_KILL; without it for Bluetooth only, which the log says
  radio legacy
  daemon +net_admin
  background peripheral $bob HeartRatePeripheral
  local peripheral=$pid
  heard peripheral.out advertising
  attempt bindrune apps suspend HeartRatePeripheral
  succeeded 'is suspended'
  heard daemon.err 'its process runs on: .*CAP_KILL'
  [ "$(state_of "$peripheral")" != T ] || fail 'its process stands still without CAP_KILL'
  attempt bindrune apps foreground HeartRatePeripheral
  succeeded
  kill -TERM "$daemon"
  finished daemon "$daemon"
  daemon +net_admin,+kill
  eventually 20 twice peripheral.out advertising || fail 'it does not advertise again'
  attempt bindrune apps suspend HeartRatePeripheral
  succeeded 'is suspended'
  eventually 10 stands_still "$peripheral" || fail "its process runs on: $(state_of "$peripheral")"
  # A daemon that is killed leaves it so, and the next resumes it.
  kill -KILL "$daemon"
  mv daemon.err killed.err
  daemon +net_admin,+kill
  eventually 10 runs "$peripheral" || fail 'its process still stands still'
  attempt bindrune scan --hci hci1 --duration 3 --json
  succeeded '"name":"Heart Rate"'
  attempt bindrune apps terminate HeartRatePeripheral
  succeeded 'is terminated'
  eventually 10 gone "$peripheral" || fail 'its process is still there'
}
state_of() { sed -E 's/.*\) (.).*/\1/' "/proc/$1/stat"; }
stands_still() { [ "$(state_of "$1")" = T ]; }
runs() { [ "$(state_of "$1")" != T ]; }
