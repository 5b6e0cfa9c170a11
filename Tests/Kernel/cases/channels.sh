# Credit-based channels of L2CAP, with a socket of the kernel at the other end: KernelChannel.

case_kernel_writes_legacy() { # a file from the kernel, over an LE credit-based channel that it opens
  kernel_writes legacy le
}
case_kernel_writes_ext() { # the same with the commands of 5.x
  kernel_writes ext le
}
case_kernel_writes_enhanced() { # over an enhanced credit-based channel: BT_MODE_EXT_FLOWCTL
  enhanced_channels
  kernel_writes ext enhanced
}
kernel_writes() { # RADIO MODE
  octets
  radio "$1"
  background pipe bindrune pipe --hci hci0 --listen 0x80 --name Desk --trace pipe.btsnoop
  pipe=$pid
  heard pipe.err 'listening on PSM 0x0080'
  power_on hci1
  background kernel sh -c "exec KernelChannel write connect $2 128 $right $left <octets"
  finished kernel $pid
  succeeded
  finished pipe "$pipe"
  succeeded
  arrived out
}

case_kernel_reads_legacy() { # a file to the kernel, over a channel that we open
  kernel_reads legacy
}
case_kernel_reads_ext() { # the same with the commands of 5.x
  kernel_reads ext
}
kernel_reads() { # RADIO
  octets
  radio "$1"
  power_on hci1
  background kernel KernelChannel read listen le 129 $right
  kernel=$pid
  heard kernel.err listening
  kernel_advertises
  background pipe sh -c "exec bindrune pipe --hci hci0 --address $right/public --psm 129 --close --trace pipe.btsnoop <octets"
  finished pipe $pid
  succeeded
  finished kernel "$kernel"
  succeeded
  arrived out
}

case_kernel_refuses() { # a PSM where nothing of the kernel listens: our program says so, with status 4
  radio ext
  power_on hci1
  kernel_advertises
  attempt bindrune pipe --hci hci0 --address $right/public --psm 130
  [ "$status" = 4 ] || fail "status $status instead of 4: $(cat err)"
  grep -q 'no service' err || fail "$(cat err)"
}

kernel_advertises() {
  btmgmt_once --index 1 connectable on
  btmgmt_once --index 1 advertising on
}

octets() { seq 100000 107500 >octets; } # 52,507 octets, each line another
arrived() { # FILE
  cmp octets "$1" && [ -s octets ] || fail "not the octets that were sent: $(wc -c <"$1") of $(wc -c <octets)"
}
