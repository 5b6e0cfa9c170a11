# What the cases say. A case runs in a shell of its own, alone in the guest, in an empty folder that is kept for whoever
# looks for the cause of a failure. The first thing that is not as it should be ends it.

left=00:AA:01:00:00:00 # btvirt's address of hci0
right=00:AA:01:01:00:01 # and of hci1

step() {
  local now
  read -r now _ </proc/uptime
  echo "[$now] $*"
}

fail() { # WHY
  step "FAILED: $*"
  echo "$*" | head -n 1 >why
  exit 1
}

eventually() { # SECONDS COMMAND…: tried until it holds
  local now end
  read -r now _ </proc/uptime
  end=$((${now%.*} + $1 + 1))
  shift
  until "$@"; do
    read -r now _ </proc/uptime
    [ "${now%.*}" -lt $end ] || return 1
    usleep 100000 # the processes that look take their time from those that are looked at
  done
}

# Programs

background() { # NAME COMMAND…: goes on beside the case; says into NAME.out and NAME.err; $pid
  local name=$1
  shift
  step "$name: $*"
  "$@" >"$name.out" 2>"$name.err" </dev/null &
  pid=$!
}

heard() { # FILE REGEX [SECONDS]: waits until the file has it
  eventually "${3:-20}" grep -qE -e "$2" "$1" && step "$1 has /$2/" && return
  tail -n 20 "$1" | sed 's/^/  | /'
  fail "no /$2/ in $1 after ${3:-20} s"
}

finished() { # NAME PID [SECONDS]: waits for the end of what is in the background; out, err, $status as of attempt
  eventually "${3:-20}" gone "$2" || fail "$1 still runs after ${3:-20} s"
  wait "$2"
  status=$?
  cp "$1.out" out
  cp "$1.err" err
  ended
}
gone() { ! kill -0 "$1" 2>/dev/null; }

attempt() { # COMMAND…: to its end, half a minute at most; says into out and err; $status
  step "$*"
  timeout -k 5 30 "$@" >out 2>err </dev/null
  status=$?
  ended
}
ended() {
  head -n 40 out | cut -c -300 | sed 's/^/  out: /'
  head -n 40 err | cut -c -600 | sed 's/^/  err: /'
  step "status $status"
}

succeeded() { # [REGEX…]: status 0, and each of these in what it said
  [ "$status" = 0 ] || fail "status $status instead of 0: $(tail -n 1 err)"
  local regex
  for regex; do grep -qE -e "$regex" out || fail "no /$regex/ in what it said"; done
}

refused() { # REGEX…: status 1 and one sentence, which has each of these
  [ "$status" = 1 ] || fail "status $status instead of 1: $(tail -n 1 err)"
  [ "$(wc -l <err)" = 1 ] || fail "not one sentence: $(cat err)"
  local regex
  for regex; do grep -qE -e "$regex" err || fail "no /$regex/ in: $(cat err)"; done
}

# The radio and its adapters

radio() { # legacy | ext: hci0 and hci1, which hear each other; set up, and down
  transmit "$1"
  eventually 20 is_set_up hci0 && eventually 20 is_set_up hci1 || fail 'the kernel has not set the adapters up'
}
transmit() {
  case $1 in
    legacy) background btvirt btvirt -L -l2 ;; # LE only, with the commands of 4.x and one ACL buffer of 192 octets
    ext) background btvirt btvirt -l2 ;; # BR/EDR too, with the commands of 5.x
  esac
  btvirt=$pid
}
is_set_up() { hciconfig "$1" 2>/dev/null | grep -q 'DOWN' && ! hciconfig "$1" | grep -q INIT; }

power_on() { # hciN: by the kernel
  btmgmt_once --index "${1#hci}" le on
  btmgmt_once --index "${1#hci}" power on
  eventually 10 is_up "$1" || fail "$1 does not come up"
}
is_up() { hciconfig "$1" | grep -q '^[[:space:]]*UP '; }
btmgmt_once() { # it would end at the end of its input
  [ -e no-input ] || mkfifo no-input
  timeout 10 btmgmt "$@" <>no-input
}

enhanced_channels() {
  echo Y >/sys/module/bluetooth/parameters/enable_ecred || fail 'this kernel has no enhanced channels'
}

# BlueZ

bluetoothd_runs() { # [main.conf]: $bluetoothd
  mkdir -p /run/dbus
  [ -e /run/dbus/system_bus_socket ] || dbus-daemon --system --fork --nopidfile || fail 'no dbus-daemon'
  background bluetoothd bluetoothd -n -d -f "${1:-/etc/bluetooth/main.conf}"
  bluetoothd=$pid
  eventually 20 bluetoothd_answers || fail 'bluetoothd does not answer'
}
bluetoothd_answers() {
  dbus-send --system --print-reply --dest=org.bluez / org.freedesktop.DBus.ObjectManager.GetManagedObjects 2>/dev/null \
    | grep -q /org/bluez/hci1
}

converse() { # COMMAND…: starts a program that one talks with in lines
  step "$*"
  mkfifo dialogue.in
  stdbuf -oL "$@" <dialogue.in >dialogue 2>&1 &
  exec 8>dialogue.in
}
ask() { # LINE [REGEX [SECONDS]]: and waits for this in the answer
  local from
  from=$(wc -c <dialogue)
  step "> $1"
  echo "$1" >&8
  [ -z "$2" ] || answered "$2" "$from" "$3"
}
answered() { # REGEX [OFFSET [SECONDS]]: waits until it has been said, from this offset on
  eventually "${3:-20}" said "$1" "${2:-0}" && return
  plain "${2:-0}" | tail -n 30 | sed 's/^/  | /'
  fail "no /$1/ from the other side after ${3:-20} s"
}
said() { plain "$2" | grep -qE -e "$1"; }
plain() { # OFFSET: without colours and prompts
  tail -c "+$(($1 + 1))" dialogue | tr -d '\001\002' \
    | sed -e "s/$escape\[[0-9;]*[A-Za-z]//g" -e 's/\r/\n/g' -e 's/^\[[^]]*\][#>] *//'
}
escape=$(printf '\033')

bluetoothctl_runs() { # [main.conf]: on hci1, up
  bluetoothd_runs "$@"
  converse bluetoothctl
  ask "select $right"
  ask 'power on' 'power on succeeded'
}
