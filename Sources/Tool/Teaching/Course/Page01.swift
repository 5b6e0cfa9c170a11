// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/01-a-packet-by-hand.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page01 = #"""
# 1: A packet by hand

**20 minutes.** After it you can read and write a packet of Bluetooth Low Energy with a pencil, and know what a declaration in this project does.

You hold a phone; on the desk lies a heart rate sensor. The phone wants to know the sensor's name. Nine of the twelve octets that it
hands to its radio for that are not part of the question. Why does a question of three octets need four times its length?

## The question

A Bluetooth Low Energy device keeps its data in a numbered table. Each row is an *attribute*, and its number is its *handle*. The name
lies in row 3, so the question is "read 3". Its first octet says what the question is, the others what it is about:

```swift
let question: [UInt8] = [0x0A, 0x03, 0x00]
print(hex(question))
```

```text
0A 03 00
```

`0A` is the *opcode* of a Read Request. The handle is 0x0003, and here comes the first surprise: it is written `03 00`. Bluetooth sends
the least significant octet of a number first. A program that forgets this asks for row 0x0300 and learns that it does not exist. The message
has a name in the Specification, ATT_READ_REQ, and a layout:

<!-- picture layout ATT_READ_REQ -->
```picture
octet
  0     1           3
  ├─────┼───────────┤
    │     └ Attribute Handle, 2 octets
    └ Opcode
```

The code above needs two helpers. They are in the [workbench](../Course.md), and every chapter uses them:

```swift
/// `0A 03 00`: octets as this course writes them.
func hex(_ octets: [UInt8]) -> String {
  octets.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined(separator: " ")
}
/// What `write` appends to an empty packet.
func written(_ write: (inout OutputRawSpan) throws(WireError) -> Void) throws(WireError) -> [UInt8] {
  var packet = PacketBuffer()
  _ = try packet.fill { output throws(WireError) in
    try write(&output)
    return true
  }
  return packet.bytes
}
```

## The stack writes the same

Nobody builds packets from literals in a program. In this project a message is a struct, and writes itself:

```swift
var request = ReadRequest()
request.attributeHandle = AttributeHandle(rawValue: 0x0003)
let theirs = try written { output throws(WireError) in
  try ATTPDU.readRequest(request).encode(into: &output, from: Span())
}
print(hex(theirs), theirs == question ? "the same" : "another packet")
```

```text
0A 03 00 the same
```

You typed three octets; the stack computed three from the declaration of `ReadRequest`. If they differed, one of you had misread
Vol 3, Part F, §3.4.4.3.

## Envelopes

A radio link carries more than questions about attributes: pairing and housekeeping share it. So the question goes into an envelope which
says how long it is, and for whom. That layer is L2CAP; *channel* 4 is the Attribute Protocol, ATT. And the phone may be connected to five
devices at once, so the result goes into a second envelope that names the link. That layer is HCI, the interface between the host (your
program) and the controller (the radio chip).

```swift
let length = UInt16(question.count), channel: UInt16 = 0x0004
let frame = [UInt8(length & 0xFF), UInt8(length >> 8), UInt8(channel & 0xFF), UInt8(channel >> 8)] + question
let packet = [0x02, 0x40, 0x00, UInt8(frame.count), 0x00] + frame
print(hex(packet))
```

```text
02 40 00 07 00 03 00 04 00 0A 03 00
```

`0x02` says that this is data, and not a command to the controller. The link has number 0x0040; the controller chose it. Count: one octet
for the kind, two for the link, two for a length, two for another length, two for the channel, three for the question. Twelve.

<!-- picture layers 02 40 00 07 00 03 00 04 00 0A 03 00 -->
```picture
02 40 00 07 00 03 00 04 00 0A 03 00
└────────────┘                        HCI ACL Data
               └─────────┘            L2CAP B-frame
                           └──────┘   ATT_READ_REQ
```

There are two lengths because the layers do not trust each other. The outer one counts what this packet carries, the inner one what the
message has. They differ when a message is too long for one packet, which is [chapter 3](03-l2cap-in-forty-lines.md).

Let the tool check it:

```console
$ bindrune explain 02 40 00 07 00 03 00 04 00 0A 03 00
HCI ACL Data                                               Vol 4, Part E, §5.4.2
   0  02                      HCI packet type: acl (2)
   1  .... 0000 0100 0000     Handle: 0x0040
   2  ..00 ....               Packet_Boundary_Flag: 0 (first fragment, from a
                              host)
   2  00.. ....               Broadcast_Flag: 0
   3  07 00                   Data_Total_Length: 7 octets
L2CAP B-frame                                                Vol 3, Part A, §3.1
   5  03 00                   PDU Length: 3
   7  04 00                   Channel ID: 0x0004 (Attribute Protocol)
ATT_READ_REQ                                             Vol 3, Part F, §3.4.4.3
   9  0A                      Opcode: ATT_READ_REQ (0x0A)
      0... ....               Authentication Signature Flag: no
      .0.. ....               Command Flag: no
      ..00 1010               Method: 0x0A
  10  03 00                   Attribute Handle: 0x0003
```

Every field has its place in octets or bits, its value, and the section that defines it. `explain` is a good pencil: when an octet
puzzles you, give it the packet.

## Backwards

A receiver opens the envelopes in the other order. Each declaration decodes as well as it encodes:

```swift
let acl = try ACLPacket(packet.span)
let l2cap = try WireDecoder.decode(L2CAPFrame.self, packet.span, from: Int(acl.data.offset))
let pdu = l2cap.informationPayload.array(in: packet.span)
print("link", acl.handle.text, "channel", l2cap.channelID.text)
print(try ATTPDU(pdu.span).describe(in: pdu.span))
```

```text
link 0x0040 channel 0x0004
Attribute Handle: 0x0003
```

No octet is copied on the way. A decoded message refers to ranges of the packet, here `acl.data` and `l2cap.informationPayload`; only
`array(in:)` makes a copy. A host decodes thousands of packets a second, and most of them are looked at once.

## What the radio may send you

Packets come from strangers. What happens when one breaks off in the middle of a field?

```swift
do {
  _ = try ATTPDU([0x0C, 0x03, 0x00, 0x16].span)
} catch {
  print(error)
}
```

```text
truncated "Value Offset": needed 2, available 1
```

The error names the field, what it needs and what is there. It is never a bare `nil`, and it never stops the program: no
octet from outside may do that. The same declaration of `ReadBlobRequest` that decodes and encodes has
told the decoder the name "Value Offset". Where does it come from? From a function of four lines in `Sources/ATT/PDU.swift`, which you
will write yourself in [chapter 10](10-a-new-pdu.md).

## Exercises

1. Write the packet that reads row 0x0102 on link 0x0041, by hand, and have `bindrune explain` check it. (5 minutes)
2. Change the outer length of the packet to 6, and then the inner one to 4. What does `explain` say each time, and which of the two would
   a controller notice? (5 minutes)

[Solutions](Solutions.md) · Next: [HCI: command, event, credit](02-hci.md)
"""#
}
