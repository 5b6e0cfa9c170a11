// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/Solutions.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let solutionPage = #"""
# Solutions of the course

Try first; then compare. The code runs after the code of its chapter.

## 1: A packet by hand

**1.** The handle is 0x0102, so its octets are `02 01`; the link 0x0041 is `41 00`.

```swift
let packet: [UInt8] = [0x02, 0x41, 0x00, 0x07, 0x00, 0x03, 0x00, 0x04, 0x00, 0x0A, 0x02, 0x01]
let acl = try ACLPacket(packet.span), pdu = Array(packet[9...])
print(acl.handle.text, try ATTPDU(pdu.span).describe(in: pdu.span))
```

```text
0x0041 Attribute Handle: 0x0102
```

**2.** The outer length counts what the packet carries, and the controller looks at it: with 6 the packet has one octet too many. The inner
one is for the other host; no controller looks at it, and the message seems to continue in another packet.

```console
$ bindrune explain 02 40 00 06 00 03 00 04 00 0A 03 00 | tail -3
   5  03 00 04 00 0A 03       Data: 6 octets
  11  00                      not understood
      ^^ 1 octet more than Data_Total_Length says.
$ bindrune explain 02 40 00 07 00 04 00 04 00 0A 03 00 | tail -3
   5  04 00                   PDU Length: 4
   7  04 00                   Channel ID: 0x0004 (Attribute Protocol)
   9  0A 03 00                Fragment: 3 octets
```

## 2: HCI

**1.** Group 3 is *Controller & Baseband*. The opcode of the LE command 0x0D, LE Create Connection, goes over the wire as the second line.

```swift
let reset: UInt16 = 0x0C03
print("group", reset >> 10, "command", reset & 0x3FF)
print(hex([UInt8((8 << 10 | 0x0D) & 0xFF), UInt8((8 << 10 | 0x0D) >> 8)]))
```

```text
group 3 command 3
0D 20
```

**2.** One, then more: before the first answer a host may send one command, because it does not know yet. The inner loop is the change.
Each event may raise the credit, so only the last one counts; the stack's queue also subtracts what is still outstanding.

```swift
var configuration = ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301))
configuration.commandCredits = 3
var air = Air(configuration: .ideal), output = PacketBuffer()
let controller = air.addController(configuration)
var commands = Commands(waiting: Array(repeating: [0x01, 0x09, 0x10, 0x00], count: 7)), sent = 0
var burst: [Int] = []
while !commands.waiting.isEmpty {
  while let next = commands.next() {
    air.receive(next.span, at: controller, now: .zero)
    sent += 1
  }
  burst.append(sent)
  sent = 0
  while output.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) {
    try commands.receive(output.bytes)
  }
}
print("commands before each answer:", burst)
```

```text
commands before each answer: [1, 3, 3]
```

## 3: L2CAP

Both exercises in one: the outcome has two parts, and `count` goes on where `octets` stops.

```swift
/// What one ACL packet leads to: both can happen at once.
struct Outcome { var frame: Joiner.Frame?, fault: Joiner.Fault? }

struct KindJoiner {
  private var octets: [UInt8] = []
  private var isCollecting = false
  /// At most this many octets are kept; of longer messages the others are only counted.
  let limit: Int
  private var count = 0
  var kept: Int { octets.count }
  init(limit: Int = 512) { self.limit = limit }

  mutating func receive(_ packet: [UInt8]) throws -> Outcome {
    let acl = try ACLPacket(packet.span), piece = acl.data.array(in: packet.span)
    var outcome = Outcome()
    if acl.packetBoundaryFlag == .continuing {
      guard isCollecting else { return Outcome(fault: .noBeginning) }
    } else {
      if isCollecting { outcome.fault = .unfinished }
      (octets, count, isCollecting) = ([], 0, true)
    }
    octets += piece.prefix(limit + 4 - octets.count)
    count += piece.count
    guard count >= 4 else { return outcome }
    let length = Int(octets[0]) | Int(octets[1]) << 8
    guard count >= 4 + length else { return outcome }
    isCollecting = false
    if count > 4 + length || length > limit {
      outcome.fault = .tooMuch
    } else {
      outcome.frame = Joiner.Frame(channel: UInt16(octets[2]) | UInt16(octets[3]) << 8, payload: Array(octets[4...]))
    }
    return outcome
  }
}
```

```swift
var joiner = KindJoiner(limit: 64)
let name = Array("Heart Rate Sensor in the kitchen".utf8)
for packet in [fragments(name, .attribute, length: 20)[0], fragments([0x13], .attribute, length: 20)[0]] {
  let outcome = try joiner.receive(packet)
  print(outcome.fault.map { "\($0)" } ?? "no fault,", outcome.frame.map { hex($0.payload) } ?? "no frame")
}
let long = [UInt8](repeating: 0xEE, count: 600)
let outcomes = try fragments(long, .attribute, length: 100).map { packet in
  let outcome = try joiner.receive(packet)
  guard joiner.kept <= 64 + 4 else { fatalError("\(joiner.kept)") }
  return outcome
}
print(outcomes.last!.fault!, "after", outcomes.count, "packets, kept", joiner.kept)
```

```text
no fault, no frame
unfinished 13
tooMuch after 7 packets, kept 68
```

## 4: ATT

**1.** A part that is shorter than it could be is the last one. With 44 octets, twice 22, that takes a third question, whose answer is
empty: an offset at the end of the value is allowed.

```swift
var builder = DatabaseBuilder()
builder.genericAccess(name: "Heart Rate Sensor in the kitchen, 44 octets.")
var sensor = Device(try builder.build()), whole: [UInt8] = []
while true {
  let offset = UInt8(whole.count)
  let part = sensor.receive([0x0C, 0x03, 0x00, offset, 0x00])[0]
  print(part.count - 1, "octets from", offset)
  whole += part.dropFirst()
  if part.count < sensor.bearer.mtu { break }
}
print(String(decoding: whole, as: UTF8.self))
```

```text
22 octets from 0
22 octets from 22
0 octets from 44
Heart Rate Sensor in the kitchen, 44 octets.
```

**2.** The second answer is reported and ignored. If the phone had asked the next question meanwhile, an answer to the old one would look
exactly like one to the new one: there are no numbers. Only "no request is open, so no response is due" protects it.

```swift
var phone = Device(Database())
phone.client.read(RequestID(rawValue: 1), AttributeHandle(rawValue: 0x0003))
let answer = sensor.receive(phone.sends()[0])[0]
for _ in 1...2 { _ = phone.receive(answer) }
while let effect = phone.bearer.nextEffect() {
  if case .violation(let violation) = effect { print(violation) }
}
```

```text
unexpectedResponse(ATT_READ_RSP (0x0B))
```

## 5: GATT

**1.** A heading, a declaration, the value; and because of *notify* the configuration.

```swift
var battery = DatabaseBuilder()
battery.service("180F") { $0.characteristic("2A19", [.read, .notify], value: [87]) }
for row in try battery.build().allAttributes { print(row.handle.text, row.type, row.type.assignedName ?? "?") }
```

```text
0x0001 2800 Primary Service
0x0002 2803 Characteristic
0x0003 2A19 Battery Level
0x0004 2902 Client Characteristic Configuration
```

**2.** Answers hold several rows: three headings or three declarations fit into 23 octets. So the number grows with the rows divided by
three, and a longer ATT_MTU makes it smaller still.

```swift
var ten = DatabaseBuilder()
ten.genericAccess(name: "Belt")
for number in 0..<10 {
  ten.service(.short(0xFF00 + UInt16(number))) { $0.characteristic(.short(0xFF80 + UInt16(number)), .read) }
}
var belt = Device(try ten.build()), visitor = Device(Database()), count = 0
visitor.client.discoverAll(RequestID(rawValue: 1))
var questions = visitor.sends()
while let question = questions.first {
  count += 1
  questions = visitor.receive(belt.receive(question)[0])
}
print(count, "questions")
```

```text
11 questions
```

## 6: Advertising

**1.** Flags take 3 octets, the services 6, the name 17.

```swift
let advertised = AdvertisingData(localName: "Heart Rate Belt", serviceUUIDs: ["180D", "180F"])
let packed = AdvertisingPacker(.standard).pack(advertised)
print(packed.payloads.advertising.count, "of 31 octets; left out:", packed.leftOut)
```

```text
26 of 31 octets; left out: []
```

**2.** A length of zero ends the data, which is allowed; one that reaches beyond the end is a fault.

```swift
let heard: [UInt8] = [0x02, 0x01, 0x06, 0x09, 0x09, 0x42]
var place = 0
while place < heard.count {
  let length = Int(heard[place]), left = heard.count - place - 1
  if length == 0 { break }  // the rest is padding
  guard length <= left else {
    print("the structure at octet", place, "says", length, "octets, and", left, "are left")
    break
  }
  print("type", hex([heard[place + 1]]))
  place += 1 + length
}
```

```text
type 01
the structure at octet 3 says 9 octets, and 2 are left
```

## 7: Pairing

**1.** From 000000 to 123456, 123,457 values.

```swift
let r1: UInt128 = 0x000F0E0D_0C0B0A09_11223344_55667788, r2: UInt128 = 0x01020304_05060708_99AABBCC_DDEEFF00
let key = s1(SecurityKey(123456), r1, r2)
print("after 123457 values of c1:", String(key.number, radix: 16))
```

```text
after 123457 values of c1: 6e22999fda360d6492fa4f2bf0829e80
```

**2.** Each attempt has a chance of one in a hundred, so about a hundred key pairs are needed, and a million for six digits. A computer
makes a million key pairs in minutes. That is why the responder must commit itself to its random number before it sees the other's: then
the digits of an attempt are known only after the choice.

```swift
var chance = SystemRandomNumberGenerator()
let alice = P256KeyPair(using: &chance).publicKey, bob = P256KeyPair(using: &chance).publicKey
func digits(_ initiator: P256PublicKey, _ responder: P256PublicKey) -> UInt32 {
  g2(initiator.x, responder.x, 1, 2) % 1_000_000
}
while true {
  let mallory = P256KeyPair(using: &chance).publicKey
  if digits(alice, mallory) / 10_000 == digits(mallory, bob) / 10_000 { break }
}
print("two of six digits are equal")
```

```text
two of six digits are equal
```

## 8: Read a trace

**1.** `→` marks what the host sends. Only the packets of ATT carry something for the belt; the others are for the controller.

```console
$ bindrune trace show sensor.btsnoop | grep -c ' → '
29
$ bindrune trace show sensor.btsnoop --layer att | grep -c ' → '
9
```

**2.** `1B` are the notifications: a heart rate is one octet of each, the last.

```swift
struct Share: TraceSink {
  var counts: [UInt8: (pdus: Int, octets: Int)] = [:]
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard frame.channel == .attribute, payload.count > 0 else { return }
    counts[payload[0], default: (0, 0)].pdus += 1
    counts[payload[0], default: (0, 0)].octets += payload.count
  }
  mutating func record(_: CaptureRecord, _: Span<UInt8>) {}
  mutating func violation(_: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord) {}
}
```

```swift
var file = try TraceFile(path: path), sink = DissectingSink(Share())
try file.read(into: &sink)
let all = sink.sink.counts.values.reduce(0) { $0 + $1.octets }
for (opcode, share) in sink.sink.counts.sorted(by: { $0.key < $1.key }) {
  print(hex([opcode]), share.pdus, "PDUs,", share.octets, "of", all, "octets")
}
```

```text
01 4 PDUs, 20 of 147 octets
02 1 PDUs, 3 of 147 octets
03 1 PDUs, 3 of 147 octets
04 1 PDUs, 5 of 147 octets
05 1 PDUs, 6 of 147 octets
08 3 PDUs, 21 of 147 octets
09 1 PDUs, 23 of 147 octets
10 3 PDUs, 21 of 147 octets
11 1 PDUs, 14 of 147 octets
12 1 PDUs, 5 of 147 octets
13 1 PDUs, 1 of 147 octets
1B 5 PDUs, 25 of 147 octets
```

## 9: A radio in memory

They arrive all, in order, and late: the controllers repeat each packet until it is acknowledged. Loss becomes time. After the reconnection
the belt may not send: the row of the configuration, 2902, is as on the first day, because the two have no bond.

```swift
/// A belt and a phone that has subscribed to the heart rate, as in the chapter.
func subscribedWorld(
  _ body: (inout World<Box>, _ belt: Int, _ phone: Int, _ rate: AttributeHandle) throws -> Void
) throws {
  var world = World<Box>(seed: 9), builder = DatabaseBuilder()
  builder.genericAccess(name: "Belt")
  let rate = builder.service("180D") { $0.characteristic("2A37", .notify).value }
  let belt = world.add(Box(try builder.build()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
  let phone = world.add(Box(Database()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5302)))
  for host in [belt, phone] { world.withHost(host) { $0.core.start(now: $1) } }
  world.run(for: .seconds(1))
  try world.withHost(belt) { _ = try $0.core.advertise(AdvertisingData(localName: "Belt"), now: $1) }
  let address = PeerAddress(DeviceAddress(0x0000_5E00_5301), .public), id = RequestID(rawValue: 2)
  world.withHost(phone) { $0.core.connect(to: address, id: RequestID(rawValue: 1), now: $1) }
  world.run(for: .seconds(5)) { $0.readHost(phone) { $0.link == nil } }
  let link = world.readHost(phone) { $0.link! }
  world.withHost(phone) { box, _ in box.core.withClient(of: link, id: id) { $0.discoverAll(id) } }
  world.run(for: .seconds(5)) { $0.readHost(phone) { $0.isReading } }
  world.withHost(phone) { box, _ in box.core.withClient(of: link, id: id) { $0.subscribe(id, rate, .notification) } }
  world.run(for: .seconds(1))
  try body(&world, belt, phone, rate)
}
```

```swift
try subscribedWorld { world, belt, phone, rate in
  world.air.setLoss(0.5)
  let start = world.now
  for beats in 70...74 as ClosedRange<UInt8> {
    world.withHost(belt) { box, _ in _ = box.core.notify([0x00, beats].span, of: rate, on: box.link!) }
  }
  world.run(for: .seconds(4)) { $0.readHost(phone) { $0.values.count < 5 } }
  print(world.readHost(phone) { $0.values.map(hex) }, "after", world.now - start)

  world.air.setLoss(0)
  world.separate(belt, phone)
  world.run(for: .seconds(60)) { $0.readHost(phone) { $0.link != nil } }
  world.reunite(belt, phone)
  let address = PeerAddress(DeviceAddress(0x0000_5E00_5301), .public)
  world.withHost(phone) { $0.core.connect(to: address, id: RequestID(rawValue: 4), now: $1) }
  world.run(for: .seconds(9)) { $0.readHost(phone) { $0.link == nil } }
  world.run(for: .seconds(1))
  let answer = world.withHost(belt) { box, _ in box.core.notify([0x00, 75].span, of: rate, on: box.link!) }
  print("connected again; the belt", answer == nil ? "may not notify" : "notifies")
}
```

```text
["00 46", "00 47", "00 48", "00 49", "00 4A"] after 0.469996251 seconds
connected again; the belt may not notify
```

## 10: A new PDU

**1.** The count is not a property: the list knows it.

```swift
struct Rate: WireRecord {
  var beats: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try visit.value("Beats", &beats) }
}
struct RatesReport: WireRecord {
  var contact: UInt8 = 0
  var resistance: UInt16 = 0
  var rates = WireList<Rate>()
  var note = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Contact", &contact)
    try visit.value("Resistance", &resistance)
    try visit.list(countIn: "Num_Rates", "Rates", &rates)
    try visit.octets("Note", &note)
  }
}
```

```swift
var arena: [UInt8] = [], report = RatesReport()
report.rates = try WireList([70, 71, 72].map { beats in Rate.with { $0.beats = beats } }, in: &arena)
let octets = try report.encoded(from: arena.span)
print(hex(octets))
print(try WireDecoder.decode(RatesReport.self, octets.span).description(in: octets.span))
for _ in 0..<1000 {
  var arena: [UInt8] = []
  let report = RatesReport.arbitrary(using: &chance, in: &arena), octets = try report.encoded(from: arena.span)
  let again = try WireDecoder.decode(RatesReport.self, octets.span).encoded(from: octets.span)
  guard again == octets else { fatalError(hex(octets)) }
}
```

```text
00 00 00 03 46 47 48
Contact: 0, Resistance: 0, Num_Rates: 3, Rates: [{Beats: 70}, {Beats: 71}, {Beats: 72}], Note: (empty)
```

**2.** An offset *at* the end is allowed, one beyond it is not.

<!-- file name.exchange -->
```file
title: A value of 32 octets is read in two parts
section: Vol 3, Part F, §3.4.4.5
database: name.json
side: server

< 0A 03 00
> 0B "Heart Rate Sensor in t"
< 0C 03 00 16 00
> 0D "he kitchen"
< 0C 03 00 20 00     # at the end: nothing is left
> 0D
< 0C 03 00 21 00     # beyond it: Invalid Offset
> 01 0C 03 00 07
```

```console
$ bindrune conform name.exchange
PASS name
1 passed, 0 failed
```

[All chapters](../Course.md)
"""#
}
