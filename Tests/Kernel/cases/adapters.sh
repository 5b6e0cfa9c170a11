# Who may open an adapter, and the errors for those who may not.

# By their paths: busybox has its own, with fewer features.
nobody='/bin/setpriv --reuid 65534 --regid 65534 --clear-groups'
scan='bindrune scan --hci hci0 --duration 1'
doctor='bindrune doctor hci0'

diagnosed() { # REGEX…: the last output of the doctor, who found an obstacle
  [ "$status" = 1 ] || fail "the doctor's status is $status instead of 1"
  local regex
  for regex; do grep -qE -e "$regex" out || fail "the doctor does not say /$regex/"; done
}

case_opens() { # root, with the adapter down: it works, repeatedly
  radio legacy
  for _ in 1 2 3; do
    attempt $scan
    succeeded
  done
}

case_nobody() { # without CAP_NET_ADMIN: EPERM, and the setcap line that cures it
  radio legacy
  attempt $nobody $doctor
  diagnosed '✗ CAP_NET_ADMIN' 'setcap cap_net_admin\+ep /bin/bindrune'
  cp /bin/bindrune /tmp/ours # what it gets is its own
  attempt $nobody /tmp/ours scan --hci hci0 --duration 1
  refused 'CAP_NET_ADMIN' 'setcap cap_net_admin\+ep /tmp/ours'
  eval "$(grep -oE 'setcap cap_net_admin\+ep [^` ]*' err)" || fail 'that line does not work'
  attempt $nobody /tmp/ours scan --hci hci0 --duration 1
  succeeded
}

case_net_admin() { # the user nobody with CAP_NET_ADMIN and no other capability
  radio legacy
  attempt $nobody --inh-caps +net_admin --ambient-caps +net_admin $scan
  succeeded
  attempt $nobody --inh-caps +net_admin --ambient-caps +net_admin $doctor
  succeeded 'hci0 can be opened'
}

case_net_raw() { # CAP_NET_RAW is not enough
  radio legacy
  attempt $nobody --inh-caps +net_raw --ambient-caps +net_raw $scan
  refused 'CAP_NET_ADMIN'
}

case_user_namespace() { # root there is nobody here: EPERM
  radio legacy
  attempt /bin/unshare --map-root-user $scan
  refused 'user namespace'
  attempt /bin/unshare --map-root-user $doctor
  diagnosed '✗ user namespace'
}

case_network_namespace() { # where there is no Bluetooth: EAFNOSUPPORT
  radio legacy
  attempt /bin/unshare --net $scan
  refused 'network namespace' 'host'
  attempt /bin/unshare --net $doctor
  diagnosed '✗ Bluetooth .*network namespace'
}

case_no_bluetooth() { # a kernel without it: EAFNOSUPPORT
  rmmod hci_vhci && rmmod bluetooth || fail 'the modules do not unload'
  attempt $doctor
  cp out doctor.out
  attempt $scan
  insmod /lib/modules/bluetooth.ko && insmod /lib/modules/hci_vhci.ko || fail 'the modules do not load again'
  grep -q '✗ Bluetooth' doctor.out || fail 'the doctor does not see it'
  refused 'no Bluetooth' 'modprobe bluetooth|kernel'
}

case_none() { # no adapter at all: ENODEV
  attempt $scan
  refused 'no Bluetooth adapter'
  attempt bindrune doctor
  diagnosed 'no Bluetooth adapter'
  attempt bindrune adapters
  succeeded 'no Bluetooth adapter'
}

case_absent() { # not that one: ENODEV, and the existing ones
  radio legacy
  attempt bindrune scan --hci hci99 --duration 1
  refused 'no hci99' 'hci0' 'hci1'
  attempt bindrune doctor hci99
  diagnosed 'no hci99'
}

case_rfkill() { # switched off: ERFKILL, and on again
  radio legacy
  soft_block 1
  attempt $scan
  refused 'hci0' 'rfkill' 'rfkill unblock'
  attempt $doctor
  diagnosed '✗ radio switch'
  soft_block 0
  attempt $scan
  succeeded
}
soft_block() {
  local switch
  for switch in /sys/class/rfkill/*; do
    [ "$(cat "$switch/name")" != hci0 ] || echo "$1" >"$switch/soft" || fail 'rfkill does not switch'
  done
}

case_up() { # the kernel uses it: EBUSY
  radio legacy
  power_on hci0
  attempt $scan
  refused 'hci0 is up' '--take-down'
  is_up hci0 || fail 'hci0 is not up any more'
}

case_bluetoothd() { # with its defaults it powers every adapter: EBUSY, and the daemon's name
  radio legacy
  bluetoothd_runs /etc/bluetooth/default.conf
  eventually 20 is_up hci0 || fail 'bluetoothd has not powered hci0'
  attempt $scan
  refused 'hci0 is up' 'bluetoothd' '--take-down'
  attempt $doctor
  diagnosed '✗ power' 'bluetoothd .*pid'
}

case_bluetoothd_leaves_ours() { # the program that opens it first keeps it
  radio legacy
  background serve bindrune serve --hci hci0
  local ours=$pid
  heard serve.out '^serving'
  bluetoothd_runs /etc/bluetooth/default.conf
  eventually 20 is_up hci1 || fail 'bluetoothd has not powered hci1'
  kill -INT "$ours"
  finished serve "$ours"
  succeeded
  [ ! -s err ] || fail "it complains: $(cat err)"
}

case_taken() { # by another program of ours: EBUSY, and its name
  radio legacy
  background serve bindrune serve --hci hci0
  local holder=$pid
  heard serve.out '^serving'
  attempt $scan
  refused 'hci0 is taken' "bindrune.*$holder"
  attempt $doctor
  diagnosed '✗ user channel' "bindrune.*$holder"
  kill -TERM "$holder"
  finished serve "$holder"
  attempt $scan
  succeeded
}

case_in_set_up() { # just after it appeared: waits until the kernel has set it up
  in_set_up
  background scan $scan
  local ours=$pid
  sleep 0.5
  gone "$ours" && fail "it did not wait: $(cat scan.err)"
  kill -CONT "$btvirt"
  finished scan "$ours"
  succeeded
}

case_doctor_in_set_up() { # and so does the doctor
  in_set_up
  background doctor $doctor
  local ours=$pid
  sleep 0.5
  gone "$ours" && fail "it did not wait: $(cat doctor.out)"
  kill -CONT "$btvirt"
  finished doctor "$ours"
  succeeded 'hci0 can be opened'
}

case_stays_in_set_up() { # a controller that never answers the kernel: an error, until it is plugged in again
  in_set_up
  attempt $scan
  refused 'hci0 is still being set up'
  attempt $doctor
  diagnosed '✗ set-up'
  kill -KILL "$btvirt"
  eventually 10 test ! -e /sys/class/bluetooth/hci0 || fail 'hci0 does not go'
  radio legacy
  attempt $scan
  succeeded
}

in_set_up() { # a controller that has stopped answering while the kernel asks what it is
  transmit legacy
  until [ -e /sys/class/bluetooth/hci0 ]; do :; done
  kill -STOP "$btvirt"
  is_set_up hci0 && fail 'the kernel was too quick'
  return 0
}

case_take_down() { # an adapter that is up: down for us, and up again after us
  radio legacy
  power_on hci0
  background serve bindrune serve --hci hci0 --take-down
  local ours=$pid
  heard serve.out '^serving'
  attempt bindrune explore --hci hci1 --name 'Bindrune HR'
  succeeded 'Heart Rate'
  kill -INT "$ours"
  finished serve "$ours"
  succeeded
  is_up hci0 || fail 'hci0 was up before, and is not now'
}

case_take_down_with_bluetoothd() { # the same with a daemon that wants it
  radio legacy
  bluetoothd_runs /etc/bluetooth/default.conf
  eventually 20 is_up hci0 || fail 'bluetoothd has not powered hci0'
  attempt $scan --take-down
  succeeded
  eventually 5 is_up hci0 || fail 'hci0 was up before, and is not now'
}

case_take_down_of_what_is_down() { # it stays down
  radio legacy
  attempt $scan --take-down
  succeeded
  is_up hci0 && fail 'hci0 was down before, and is up now'
  return 0
}

case_list() { # adapters: those there are, with their addresses
  radio legacy
  attempt bindrune adapters
  succeeded "hci0.*$left" "hci1.*$right"
}

case_doctor() { # whether all is well, and what to do; the same for programs
  radio legacy
  attempt $doctor
  succeeded 'hci0 can be opened'
  attempt $doctor --open
  succeeded 'hci0 can be opened'
  power_on hci0
  attempt $doctor
  diagnosed '✗ power .*hci0 is up' '--take-down'
  attempt $doctor --json
  diagnosed '^\{"ok":false,.*\}$'
}
