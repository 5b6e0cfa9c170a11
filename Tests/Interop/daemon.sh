# Sourced by Tests/Interop/run: apps of bindruned, each a process of its own, and Bumble.

section_daemon() { # on Bumble's controllers, and on ours
  # It sends once a second, so that neither central has its ten values before the other has begun.
  local options=(--interval 1 --endless --keep-advertising)
  peer_peripheral daemon-server "${options[@]}" || return
  shared daemon "127.0.0.1:$port"
  stop_all
  start daemon-controllers "$tool" controllers --listen tcp:127.0.0.1:0
  ready daemon-controllers "$pid" || return
  start daemon-server "$python" "$here/peer_peripheral.py" --controller "127.0.0.1:$port" --run-for 120 "${options[@]}"
  heard 'daemon, our controllers' daemon-server.out '"ready"' || return
  shared 'daemon, our controllers' "127.0.0.1:$port"
}

# Two centrals have one link to Bumble's peripheral, and a third app is found by Bumble's central. The first central is killed, then the daemon.
shared() { # PREFIX CONTROLLER
  local prefix=$1 first second
  local -x BINDRUNE_SOCKET=$logs/apps.socket BINDRUNE_HCI=broker
  rm -rf "$logs/daemon-state"
  daemon "$prefix" "$2" || return

  app first "$hr_central"
  first=$pid
  heard "$prefix" daemon-first.out bpm || return
  app second "$hr_central"
  second=$pid
  heard "$prefix" daemon-second.out bpm 2 || return
  app sensor "$hr_peripheral"
  heard "$prefix" daemon-sensor.out advertising || return
  live "$prefix: three apps" 'first foreground, second foreground, sensor foreground'
  killed "$(process first)" "$first"
  live "$prefix: two are left" 'second foreground, sensor foreground'
  bumble_visits "$prefix: a central is killed" "$2"

  # The second ends by itself with its tenth value, and with it the link.
  wait "$second"
  status=$?
  succeeded "$prefix: the other central" daemon-second
  check "$prefix: the killed central" shared_rates "$logs/daemon-first.out" 2
  check "$prefix: the other central" shared_rates "$logs/daemon-second.out" 10
  heard "$prefix" daemon-server.out '"disconnection"' || return
  check "$prefix: the peripheral's side" shared_link "$logs/daemon-server.out"

  killed "$(pgrep -P "$daemon")" "$daemon"
  heard "$prefix: the daemon is killed" daemon-sensor.err 'bindruned has ended the connection' || return
  daemon "$prefix" "$2" || return
  heard "$prefix: the daemon is back" daemon-sensor.out advertising 2 || return
  bumble_visits "$prefix: the daemon is back" "$2"
  live "$prefix: one app" 'sensor foreground'
  terminated "$prefix: the daemon" "$daemon"
}

daemon() { # PREFIX CONTROLLER: $daemon
  start daemon "$bindruned" --hci "tcp:$2" --socket "$BINDRUNE_SOCKET" --state "$logs/daemon-state"
  daemon=$pid
  heard "$1" daemon.err ready
}
app() { # IDENTIFIER COMMAND…: programs with one name need manifests to be several apps
  echo "{\"identifier\": \"$1\"}" >"$logs/$1.json"
  BINDRUNE_MANIFEST=$logs/$1.json start "daemon-$1" "${@:2}"
}
live() { # NAME LIVES: bindruned has these apps, in these lives, soon
  local lives
  for _ in $(seq 100); do
    lives=$("$tool" apps list --json | sed -nE 's/.*"identifier":"([^"]*)".*"life":"([^"]*)".*/\1 \2/p' | sort | paste -sd , | sed 's/,/, /g')
    [ "$lives" != "$2" ] || break
    sleep 0.1
  done
  equal "$1" "$lives" "$2"
}
killed() { # PROCESS PARENT: the parent is what `start` has started
  kill -KILL "$1"
  { wait "$2"; } 2>/dev/null # bash would tell of it
}
process() { # IDENTIFIER
  "$tool" apps list --json | sed -nE "s/.*\"identifier\":\"$1\".*\"pid\":([0-9]+).*/\\1/p"
}
bumble_visits() { # PREFIX CONTROLLER: finds the third app, reads and subscribes
  bounded 60 daemon-visitor "$python" "$here/peer_central.py" --controller "$2" --heart-rate 2 --sensor 'Heart Rate' --run-for 40
  tally "$1, Bumble's central" "$logs/daemon-visitor.out"
  ! grep -q '^FAIL' "$logs/daemon-visitor.out" || explain "$logs/daemon-sensor.err" "$logs/daemon.err"
}
heard() { # PREFIX FILE REGEX [COUNT]: waits for so many lines, a minute at most
  for _ in $(seq 600); do
    [ "$(grep -cE -e "$3" "$logs/$2")" -lt "${4:-1}" ] || return 0
    sleep 0.1
  done
  fail "$1: no ${4:-1} × /$3/ in $2"
  explain "$logs/$2" "$logs/daemon.err"
  return 1
}
