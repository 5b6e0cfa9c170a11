// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/09-a-radio-in-memory.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page09 = #"""
# 9: A radio in memory

**30 minutes.** After it you can put any number of Bluetooth devices into a test, move them out of reach, and repeat what happened to the octet.

Radio tests fail on Tuesdays. A microwave, a colleague's headset, a busy machine: everybody who tests Bluetooth with real radios learns to press
"run again". The trace of chapter 8 was recorded without a radio, without an operating system's Bluetooth and without waiting, and if you
record it again, every octet is the same. How do you do that with a protocol that is full of times and chance?

## Take both out

Look at what a layer of this project may *not* do: it has no clock, so somebody tells it the time; it has no generator of random numbers,
so somebody passes one; it has no thread and no socket, so somebody carries its packets. If that somebody is a test, time is a variable.

A host is then a value with four functions: a packet in, a packet out, the time at which it wants to be called, and that call. The protocol
is `HCIHost`. Here is a host; `HostCore` contains all layers of chapters 2 to 7:

```swift
/// A host on a simulated radio, which writes down what happens to it.
struct Box: ~Copyable, HCIHost {
  var core: HostCore
  var heard: [PeerAddress] = []
  var link: LinkID?
  var values: [[UInt8]] = []
  var isReading = true

  init(_ database: Database) { core = HostCore(database: database) }

  mutating func receive(_ packet: Span<UInt8>, now: Instant) {
    core.receive(packet, now: now)
    drain()
  }
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    core.nextPacket(into: &output, now: now)
  }
  var deadline: Instant? { core.deadline }
  mutating func expire(now: Instant) {
    core.expire(now: now)
    drain()
  }
  mutating func drain() {
    while let effect = core.nextEffect() {
      switch effect {
      case .discovered(_, let discovery): heard.append(discovery.address)
      case .linkUp(let link, _, _, _): self.link = link
      case .linkDown: link = nil
      case .value(_, _, let value, _): values.append(core.bytes(of: value))
      case .completed(_, .gatt): isReading = false
      default: break
      }
    }
  }
}
```

The last function is the whole interface to the outside world: the core reports *effects*, and we write down what we care about. Nothing
calls back, nothing runs meanwhile.

## A world

A `World` has an air, controllers on it, and a host on each controller:

```swift
var world = World<Box>(seed: 9)
var builder = DatabaseBuilder()
builder.genericAccess(name: "Belt")
let rate = builder.service("180D") { $0.characteristic("2A37", .notify).value }
let belt = world.add(Box(try builder.build()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
let phone = world.add(Box(Database()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5302)))
world.air.startRecording()

for host in [belt, phone] { world.withHost(host) { $0.core.start(now: $1) } }
world.run(for: .seconds(1))
print("running:", world.readHost(belt) { $0.core.isRunning }, world.readHost(phone) { $0.core.isRunning })
```

```text
running: true true
```

One second has passed in the world, and about a millisecond on your table. `run` asks everybody for the next deadline, sets the clock to
it, and goes on. A minute of silence costs nothing.

Find and connect:

```swift
let data = AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"])
try world.withHost(belt) { _ = try $0.core.advertise(data, now: $1) }
world.withHost(phone) { $0.core.startScan(filter: ScanFilter(services: ["180D"]), now: $1) }
world.run(for: .seconds(5)) { $0.readHost(phone) { $0.heard.isEmpty } }

let address = world.readHost(phone) { $0.heard[0] }
print("the phone has heard", address)
world.withHost(phone) { box, now in
  box.core.stopScan(now: now)
  box.core.connect(to: address, id: RequestID(rawValue: 1), now: now)
}
world.run(for: .seconds(5)) { $0.readHost(phone) { $0.link == nil } }
```

```text
the phone has heard 00:00:5E:00:53:01/public
```

The closures of `run` say how long to go on. Nobody sleeps; no time-out is guessed. A test that waits for an *event* in virtual time
cannot be too slow, on any machine.

## A conversation

```swift
let link = world.readHost(phone) { $0.link! }
let discovery = RequestID(rawValue: 2), subscription = RequestID(rawValue: 3)
world.withHost(phone) { box, _ in box.core.withClient(of: link, id: discovery) { $0.discoverAll(discovery) } }
world.run(for: .seconds(5)) { $0.readHost(phone) { $0.isReading } }
world.withHost(phone) { box, _ in
  box.core.withClient(of: link, id: subscription) { $0.subscribe(subscription, rate, .notification) }
}
world.run(for: .seconds(1))
for beats in 70...74 as ClosedRange<UInt8> {
  world.withHost(belt) { box, _ in _ = box.core.notify([0x00, beats].span, of: rate, on: box.link!) }
  world.run(for: .milliseconds(200))
}
print(world.readHost(phone) { $0.values.map(hex) })
```

```text
["00 46", "00 47", "00 48", "00 49", "00 4A"]
```

Five heart rates went through the belt's GATT server, ATT, L2CAP and HCI, were cut and scheduled by its controller, crossed an air that
loses packets now and then, and came up through the same layers of the phone.

## The recording

The air has noted what crossed each HCI. This writes the phone's side in the format that Wireshark opens:

```swift
var octets: [UInt8] = []
BTSnoop.appendHeader(to: &octets)
for record in world.air.takeRecords() where record.controller == world.controller(of: phone) {
  let direction: HCIDirection = record.isToHost ? .fromController : .fromHost
  BTSnoop.append(record.bytes.span, direction, time: record.time.nanoseconds / 1000, to: &octets)
}
print("sensor.btsnoop:", octets.count, "octets")
```

```text
sensor.btsnoop: 2793 octets
```

This is the file of chapter 8; the test of this page compares the two, octet by octet. It works because chance is a number here, the
*seed*: `World(seed: 9)`. Fading, delays and losses are drawn from it. Another seed is another day; the same seed is the same day, for ever.

So a test of this project runs hundreds of seeds, with losses and lost links, and checks what must *always* hold: no request is answered
twice, none is forgotten, notifications stay in order, queues stay bounded. If seed 143 fails, the failure is not a memory of last Tuesday.
It is a line in a file.

## Walk away

What does a phone do if the belt leaves the room? Try that with a real radio, ten times:

```swift
world.separate(belt, phone)
let before = world.now
world.run(for: .seconds(60)) { $0.readHost(phone) { $0.link != nil } }
print("the link ended after", world.now - before)
```

```text
the link ended after 4.9900904729999995 seconds
```

The *supervision time-out*: both sides give up when nothing has come for this long. It was agreed when the link was made. Before it ends,
neither side knows anything; an app that shows "connected" for five seconds after the device has gone is not wrong.

## The same air for real programs

The virtual controllers know nothing of the hosts of this project. They speak HCI, so any program can use them, in real time:
`bindrune controllers` offers them over TCP to any Bluetooth stack, and every verb of the tool takes `--hci sim`:

```console
$ bindrune scan --hci sim --duration 1 --json | head -1 | cut -c 1-110
{"event":"advertisement","address":"00:00:5E:00:53:01","address_type":"public","rssi":-18,"connectable":true,"
$ bindrune read --hci sim --name 'Virtual*' 2A38
Chest
```

Whether your program runs on this air or on a real one, it sends the same octets. That was the point of taking the radio out.

## Exercises

1. Set `world.air.setLoss(0.5)` before the five notifications. Do they arrive, in order, and when? Why is none lost? (10 minutes)
2. Bring the belt back with `world.reunite(belt, phone)`, and connect again. Does the belt still send notifications? Which row of chapter
   5's table decides that? (10 minutes)

[Solutions](Solutions.md) · Next: [A new PDU](10-a-new-pdu.md)
"""#
}
