// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/03-l2cap-in-forty-lines.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page03 = #"""
# 3: L2CAP in forty lines

**35 minutes.** After it you have written a layer of Bluetooth, and tested it against the one of this project.

A characteristic may have a value of 512 octets. The first Low Energy radios sent 27 octets in a packet, and many still do. A phone's
stack does not know what a sensor's radio can hold, and the sensor's does not know the phone's. Somebody has to cut, and somebody on the
other side has to join, without a sequence number, without a checksum, and without ever asking "did you get that?". Why does that work?

## It works because somebody else did the hard part

The controllers acknowledge every radio packet and repeat it until it has arrived, or until the link is declared dead. What comes out at
the other end is complete, in order and correct, or it is nothing at all. On such a link two facts are enough to cut and join: *this piece
begins a message*, and *the message has so many octets*.

The second fact is in front of the message. This is the whole header of L2CAP, the Logical Link Control and Adaptation Protocol:

<!-- picture layout L2CAP -->
```picture
octet
  0           2           4
  ├───────────┼───────────┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
    │           │           └ Information Payload, the rest
    │           └ Channel ID, 2 octets
    └ PDU Length, 2 octets
```

```swift
var frame = L2CAPFrame(ChannelID.attribute, Octets(0, 3))
frame.pduLength = 3
let octets = try frame.encoded(from: [0x0A, 0x03, 0x00].span)
print(hex(octets))
```

```text
03 00 04 00 0A 03 00
```

The length, the channel, the payload: the middle layer of chapter 1's packet. Three channels matter for Low Energy: 4 carries ATT, 5
carries L2CAP's own signaling, 6 the Security Manager. Their numbers are fixed, so no device has to open them.

The first fact is one of the two flags in the ACL header, which has room for them because links have numbers of only 12 bits:

<!-- picture layout ACL -->
```picture
octet (the least significant bit of each is at the left)
  0                               2                               4
  ├───────────────────────┼───┼───┼───────────────────────────────┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
    │                       │   │   │                               └ Data, the rest
    │                       │   │   └ Data_Total_Length, 2 octets
    │                       │   └ Broadcast_Flag, 2 bits
    │                       └ Packet_Boundary_Flag, 2 bits
    └ Handle, 12 bits
```

`Packet_Boundary_Flag` is 0 (from a host) or 2 (from a controller) in the first piece of a message, and 1 in each that follows.

## Forty lines

That is all there is to know. Here is the layer:

```swift
/// Joins the frames of one link from its ACL packets. Vol 3, Part A, §7.2.2.
struct Joiner {
  enum Fault: Error { case noBeginning, tooMuch, unfinished }
  struct Frame { var channel: UInt16, payload: [UInt8] }
  private var octets: [UInt8] = []
  private var isCollecting = false

  /// One ACL packet; the result is the frame that it completes.
  mutating func receive(_ packet: [UInt8]) throws -> Frame? {
    let acl = try ACLPacket(packet.span)
    if acl.packetBoundaryFlag == .continuing {
      guard isCollecting else { throw Fault.noBeginning }
    } else {
      if isCollecting {
        isCollecting = false
        throw Fault.unfinished
      }
      octets = []
      isCollecting = true
    }
    octets += acl.data.array(in: packet.span)

    // The fragment may be shorter than the header: then nobody knows the length yet.
    guard octets.count >= 4 else { return nil }
    let length = Int(octets[0]) | Int(octets[1]) << 8
    guard octets.count >= 4 + length else { return nil }
    isCollecting = false
    guard octets.count == 4 + length else { throw Fault.tooMuch }
    return Frame(channel: UInt16(octets[2]) | UInt16(octets[3]) << 8, payload: Array(octets[4...]))
  }
}
```

Read it once more and look for what is *not* there. There is no timer: the radio has one. There is no list of half-finished messages: the
pieces of two messages of one link are never mixed, so there is at most one. And there is no `assert`, `!` or `fatalError`: each line that
could fail does so because of octets from a stranger, and a stranger's octets are input, not a bug.

Three ways to be wrong have a name: a piece that continues nothing, a message that is longer than it said, and a message that never ends.

## Try it

This function lets the stack's own `Fragmenter` cut a message:

```swift
/// The ACL packets in which the stack sends a frame, each with at most `length` octets of it.
func fragments(_ payload: [UInt8], _ channel: ChannelID, length: Int) -> [[UInt8]] {
  var fragmenter = Fragmenter(longestPayload: payload.count), packet = PacketBuffer(capacity: 9 + payload.count)
  let link = ConnectionHandle(rawValue: 0x0040)
  _ = packet.fill { output in
    Fragmenter.begin(&output)
    output.append(contentsOf: payload.span)
    fragmenter.seal(from: 0, on: channel, of: link, aclLength: length, &output)
    return true
  }
  var packets = [packet.bytes]
  while packet.fill({ fragmenter.writeNext(of: link, aclLength: length, into: &$0) }) { packets.append(packet.bytes) }
  return packets
}
```

A name of 32 octets, with room for 20 in each packet:

```swift
let name = [0x0B] + Array("Heart Rate Sensor in the kitchen".utf8)
var joiner = Joiner()
for packet in fragments(name, .attribute, length: 20) {
  let joined = try joiner.receive(packet)
  print(hex(packet), joined.map { "→ \($0.payload.count) octets for channel \($0.channel)" } ?? "")
}
```

```text
02 40 00 14 00 21 00 04 00 0B 48 65 61 72 74 20 52 61 74 65 20 53 65 6E 73
02 40 10 11 00 6F 72 20 69 6E 20 74 68 65 20 6B 69 74 63 68 65 6E → 33 octets for channel 4
```

Look at the header of the second packet: `40 10`. The link is 0x040 and the flag 1. No length of the message, no channel: it continues
what the first one began.

## Try it a thousand times

One example proves little. A controller may cut anywhere, even in the middle of the header; does ours survive a first piece of one octet?
Ask chance:

```swift
var chance = SystemRandomNumberGenerator()
for _ in 0..<1000 {
  let payload = (0..<Int.random(in: 0...600, using: &chance)).map { UInt8(truncatingIfNeeded: $0) }
  let packets = fragments(payload, .attribute, length: Int.random(in: 1...251, using: &chance))
  let joined = try packets.compactMap { try joiner.receive($0) }
  guard joined.count == 1, joined[0].payload == payload else { fatalError("\(packets.map(hex))") }
}
print("1000 frames, all whole")
```

```text
1000 frames, all whole
```

Random lengths find what examples miss. This project tests every message in this way, and prints the seed when something fails, so that
the failure can be repeated.

## Try to break it

What if a message ends in the middle, because the other host crashed, and a new one begins?

```swift
do {
  for packet in [fragments(name, .attribute, length: 20)[0], fragments([0x13], .attribute, length: 20)[0]] {
    _ = try joiner.receive(packet)
  }
} catch {
  print("a frame that never ended:", error)
}
```

```text
a frame that never ended: unfinished
```

Our joiner throws, and the packet that began the new message is lost with the old one. That is correct but unkind: the new message was
whole. The `Recombiner` in `Sources/L2CAP` can report the violation *and* deliver the frame, because its result has room for both.

There is a worse attack. A header may say 65,535 octets. Our joiner collects them: an attacker with 1,000 links and some patience asks for
64 megabytes. The stack's keeps the octets that any of its channels can use, a few hundred, and *counts* the others. A number that a
stranger sends never decides how much memory you spend. That is exercise 2.

## Why a layer is a value

`Joiner` is a `struct` with one `mutating` function. It has no socket, no thread, no clock and no callback: octets go in, a result comes
out. So the test above ran a thousand frames in a few milliseconds, without a radio and without waiting, and would give the same result on
any machine. All layers of this project are like that, up to the whole host. It is called *sans-IO*, and chapter 9 shows where it leads.

The real layer does the same work as your forty lines, and some more: it copies nothing if a frame lies whole in one packet, as most do;
it fills the packets of several channels; and it answers signaling commands. Its core, though, is what you have just read.

## Exercises

1. Let `Joiner` deliver the new message when the old one never ended: return what happened as a value with two parts, as `Recombined`
   does. (10 minutes)
2. Give `Joiner` a limit: it keeps at most `limit` octets, counts the others, and delivers no message that was longer. Check that
   `octets.count` never exceeds the limit. (10 minutes)

[Solutions](Solutions.md) · Next: [ATT: one question at a time](04-att-one-question-at-a-time.md)
"""#
}
