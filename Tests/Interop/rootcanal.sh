# The sections of `run` on RootCanal's controllers, which conform to the Specification: PEERS.md. Read by `run`.

rootcanals=0

rootcanal_runs() { # sets $address, of which every connection is one controller
  local program name=rootcanal-$((++rootcanals))
  if ! program=$("$python" "$here/rootcanal.py" "$cache" 2>"$logs/rootcanal.err"); then
    skip "rootcanal: $(tail -n 1 "$logs/rootcanal.err")"
    return 1
  fi
  start "$name" "$program" --test_port=0 --hci_port=0 --link_port=0 --link_ble_port=0
  address=
  for _ in $(seq 100); do
    address=$(sed -n '/Opening an HCI/,$ s/.*Listening on: \([1-9][0-9]*\).*/127.0.0.1:\1/p' "$logs/$name.out" | head -n 1)
    [ -z "$address" ] || return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  fail 'rootcanal: got no port want one'
  explain "$logs/$name.out" "$logs/$name.err"
  return 1
}

section_rootcanal() { # that its controllers behave as we expect
  local address
  rootcanal_runs || return
  judged 'rootcanal' rootcanal "$address"
}

section_rootcanal_advertise() { # the tool's advertisements in legacy and extended PDUs, received and connected to
  local address long='-1D1D-4BBD-8E5C-6F0E5F1A0C00' name='A name of more octets than a scan response has'
  local services=(--service "A0B10000$long" --service "A0B10001$long" --service "A0B10002$long" --service 180D)
  rootcanal_runs || return
  trace="$logs/advertise.btsnoop"
  advertised 'rootcanal, advertise' legacy "$address" --name Rune --service 180D --service 180F --manufacturer FFFF0102
  check 'rootcanal, advertise' commands "$trace"
  advertised 'rootcanal, advertise extended' extended "$address" --name "$name" "${services[@]}" --manufacturer FFFF0102
  check 'rootcanal, advertise extended' commands "$trace"
  trace=
  bounded 60 packing "$python" "$here/packing.py" "$address" --tool "$tool" --vectors "$root/Fixtures/Vectors/overflow.txt"
  tally 'rootcanal, packing' "$logs/packing.out"
  explain "$logs/packing.err"
}

section_rootcanal_scan() { # all advertisements of peer_advertiser.py, each complete and joined
  local address
  rootcanal_runs || return
  on_the_air "$address" || return
  bounded 20 air "$tool" scan --hci "tcp:$address" --duration 2 --json --trace "$logs/air.btsnoop"
  succeeded 'rootcanal, scan' air
  check 'rootcanal, scan' air "$logs/air.out"
  check 'rootcanal, scan' commands "$logs/air.btsnoop"
}

on_the_air() { # CONTROLLER: the advertisements of peer_advertiser.py
  start advertiser "$python" "$here/peer_advertiser.py" "$1"
  for _ in $(seq 100); do
    grep -q '"ready"' "$logs/advertiser.out" && return
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  fail 'the advertisers are not ready'
  explain "$logs/advertiser.out" "$logs/advertiser.err"
  return 1
}

section_rootcanal_gap() { # advertising, scanning and connections through the API, observed by raw HCI hosts
  local address
  rootcanal_runs || return
  bounded 150 gap "$python" "$here/gap.py" "$address" --program "$gap" --traces "$logs"
  tally 'rootcanal' "$logs/gap.out"
  explain "$logs/gap.err"
}

section_rootcanal_links() { # both roles with the GATT database, and two centrals at once
  local address server client
  rootcanal_runs || return
  start central-server "$python" "$here/peer_peripheral.py" --controller "$address" --disconnections 2 --run-for 100
  server=$pid
  for _ in $(seq 100); do grep -q '"ready"' "$logs/central-server.out" && break; sleep 0.1; done
  bounded 60 central "$central" "tcp:$address"
  succeeded 'rootcanal, central' central
  tally 'rootcanal, central' "$logs/central.out"
  for _ in $(seq 50); do kill -0 "$server" 2>/dev/null || break; sleep 0.1; done
  stop "$server"
  check 'rootcanal, central' exit "$logs/central-server.out" write_commands=100 write_command_octets=2000 confirmations=3 \
    parameter_update=0 pairing_failed=5

  start peripheral "$peripheral" "tcp:$address"
  server=$pid
  bounded 60 peripheral-client "$python" "$here/peer_central.py" --controller "$address" --strict --any-address
  tally 'rootcanal, peripheral' "$logs/peripheral-client.out"
  ! grep -q '^FAIL' "$logs/peripheral-client.out" || explain "$logs/peripheral.out" "$logs/peripheral.err"
  stop "$server"

  start serve "$tool" serve --hci "tcp:$address"
  start serve-client "$python" "$here/peer_central.py" --controller "$address" --heart-rate 4 --run-for 40
  client=$pid
  # One after the other: RootCanal lets two centrals that answer the same advertisement share one link.
  for _ in $(seq 100); do grep -q '^connected' "$logs/serve.out" && break; sleep 0.1; done
  bounded 60 serve-client2 "$python" "$here/peer_central.py" --controller "$address" --heart-rate 2 \
    --address E0:E1:E2:E3:E4:E6 --run-for 40
  wait "$client"
  tally 'rootcanal, serve first' "$logs/serve-client.out"
  tally 'rootcanal, serve second' "$logs/serve-client2.out"
  ! grep -q '^FAIL' "$logs/serve-client.out" "$logs/serve-client2.out" || explain "$logs/serve.out" "$logs/serve.err"
}

section_rootcanal_security() { # on controllers that compare keys
  local address
  rootcanal_runs || return
  secured 'rootcanal, security' "$address"
}

section_rootcanal_channels() { # 30,000 octets each way through `bindrune pipe`; ATT on enhanced bearers
  local address kind port
  rootcanal_runs || return
  port=${address##*:}
  for kind in ours theirs; do head -c 30000 /dev/urandom >"$logs/$kind.octets"; done
  for kind in le enhanced; do
    start channels-peer "$python" "$here/peer_channels.py" --controller "$address" --role central --channels $kind "${channel_files[@]}"
    piped "rootcanal, channels $kind, our listener" "$pid" --listen 0x80 --timeout 20
  done
  start channels-peer "$python" "$here/peer_channels.py" --controller "$address" --role peripheral --channels le "${channel_files[@]}"
  piped 'rootcanal, channels le, our client' "$pid" --psm 0x80 --name InteropPeer

  start bearers "$tool" serve --hci "tcp:$address" --enhanced-bearers 3 --bonds "$logs/bonds"
  bounded 90 bearers-peer "$python" "$here/peer_channels.py" --controller "$address" --role central --channels bearers
  tally 'rootcanal, bearers, our peripheral' "$logs/bearers-peer.out"
  ! grep -q '^FAIL' "$logs/bearers-peer.out" || explain "$logs/bearers.out" "$logs/bearers.err" "$logs/bearers-peer.err"
}

section_rootcanal_bench() {
  local address
  rootcanal_runs || return
  measured 'rootcanal, bench' "$address"
  measured 'rootcanal, bench, LE 2M' "$address" --phy 2M --size 20 --interval balanced
}
