// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/02-hci.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page02 = #"""
# 2: HCI: command, event, credit

**30 minutes.** After it you know how a program talks to a Bluetooth controller, and why it may not talk as fast as it likes.

Your program writes "start scanning" to the controller, and then "connect", and then "disconnect". It writes correct octets, in the right
order, without an error. The controller executes the first and loses the other two, and the Specification takes its side. What did the
program forget?

## Two computers

The radio chip is a computer of its own, with its own processor, memory and clock. It has to be: a connection event lasts microseconds,
and an operating system that is late by one has lost the link. So Bluetooth cuts itself in two. The *controller* keeps time and sends
radio packets; the *host* decides what to say. Between them runs the Host Controller Interface, over USB, a serial line or, in this course,
memory.

Four kinds of packets cross it, told apart by their first octet:

| first octet | kind | direction |
|---|---|---|
| 01 | command | to the controller |
| 02 | ACL data: what chapter 1 has built | both |
| 04 | event | from the controller |
| 05 | isochronous data, for audio | both |

## A command

```swift
var scan = LESetScanEnable()
scan.leScanEnable = true
let command = try written { output throws(WireError) in try scan.writePacket(into: &output, from: Span()) }
print(hex(command))
```

```text
01 0C 20 02 01 00
```

`01` is a command. `0C 20` is its opcode, 0x200C; the upper six bits are the group (8: Low Energy), the lower ten the command in it. `02`
counts the octets that follow: scan, and do not filter duplicates. Behind the first octet the packet looks like this:

<!-- picture layout HCI_LE_Set_Scan_Enable -->
```picture
octet
  0           2     3     4     5
  ├───────────┼─────┼─────┼─────┤
    │           │     │     └ Filter_Duplicates
    │           │     └ LE_Scan_Enable
    │           └ Parameter_Total_Length
    └ Opcode, 2 octets
```

## An event

Here is a controller. It is virtual, but it does not know that it talks to us: it takes the octets of any host, and answers as a chip
does.

```swift
var air = Air(configuration: .ideal)
let controller = air.addController(ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
air.receive([0x01, 0x03, 0x0C, 0x00].span, at: controller, now: .zero)  // HCI_Reset

var packet = PacketBuffer(), answers: [[UInt8]] = []
while packet.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) { answers.append(packet.bytes) }
print(answers.map(hex))
```

```text
["04 0E 04 01 03 0C 00"]
```

We sent HCI_Reset, the command that every host sends first, because it cannot know what the host before it has left behind. The answer is
an event. Let us read it:

```swift
let answer = answers[0], event = try HCIEvent(answer.span)
print(event.name)
print(event.describe(in: answer.span))
```

```text
HCI_Command_Complete
Num_HCI_Command_Packets: 1, Command_Opcode: 0x0C03, Status: 0x00 (Success)
```

Command Complete: the command with opcode 0x0C03 has ended, with status 0x00, success. A command that takes long, as connecting does, is
answered twice: at once by Command Status ("I have begun"), and later by an event of its own ("there is a link").

Note what the answer does *not* have: a request number. If you send the same command twice, you cannot tell the answers apart. The host
keeps the order.

## Credit

One field is left: `Num_HCI_Command_Packets`. That is the answer to the riddle at the beginning. The controller has little memory for
commands; often for one. This field says how many it accepts *now*. A host that sends more writes into a full buffer.

So the host needs a queue, and a number. This is the whole idea in 20 lines:

```swift
/// Sends a controller its commands, never more at once than it accepts. Vol 4, Part E, §4.4.
struct Commands {
  var waiting: [[UInt8]] = []
  /// How many the controller accepts now. Before its first answer that is one.
  var credit = 1

  mutating func next() -> [UInt8]? {
    guard credit > 0, !waiting.isEmpty else { return nil }
    credit -= 1
    return waiting.removeFirst()
  }
  mutating func receive(_ event: [UInt8]) throws {
    switch try HCIEvent(event.span) {
    case .commandComplete(let complete): credit = Int(complete.numHCICommandPackets)
    case .commandStatus(let status): credit = Int(status.numHCICommandPackets)
    default: break
    }
  }
}
```

Three commands, none of which waits for us; watch the credit:

```swift
let readAddress: [UInt8] = [0x01, 0x09, 0x10, 0x00], readBuffers: [UInt8] = [0x01, 0x02, 0x20, 0x00]
var commands = Commands(waiting: [readAddress, readBuffers, command])
while let next = commands.next() {
  print("→", hex(next))
  air.receive(next.span, at: controller, now: .zero)
  print("   credit", commands.credit)
  while packet.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) {
    print("←", hex(packet.bytes))
    try commands.receive(packet.bytes)
  }
  print("   credit", commands.credit)
}
```

```text
→ 01 09 10 00
   credit 0
← 04 0E 0A 01 09 10 00 01 53 00 5E 00 00
   credit 1
→ 01 02 20 00
   credit 0
← 04 0E 07 01 02 20 00 FB 00 08
   credit 1
→ 01 0C 20 02 01 00
   credit 0
← 04 0E 04 01 0C 20 00
   credit 1
```

After each command the credit is 0 and `next()` returns nil, however long the queue is. The answer brings it back. This is *flow control
by credit*: the owner of the buffer hands out permissions, and nobody can overrun anybody. You will meet it again and again.

The real `CommandQueue` in `Sources/HCI` is longer, and you can guess why: what happens if the answer never comes? A queue without a time
limit would wait for ever, and with it every caller. It waits two seconds, reports the command as timed out, and goes on.

## Credit for data

Data have their own credit, because they have their own buffers. When the host starts, it asks the controller how many packets it can
hold and how long they may be: the second command above did that. The answer ends with `FB 00 08`: packets of up to 251 octets, and 8
of them.

From then on the host counts. A packet takes a buffer; the event Number Of Completed Packets gives it back when the packet is *on the air
and acknowledged*. This is the only way to know that something has been sent:

```swift
var credits = DataCredits()
credits.configure(aclLength: 251, total: 8)
let link = ConnectionHandle(rawValue: 0x0040)
credits.open(link)
credits.setWants(link, true)
var sent = 0
while let granted = credits.next() {
  credits.took(granted)
  sent += 1
}
print("sent", sent, "packets; free buffers:", credits.free)
_ = credits.completed(link, 3)
print("three were completed; free buffers:", credits.free)
```

```text
sent 8 packets; free buffers: 0
three were completed; free buffers: 3
```

With one link that is simple. With two, a question of justice arises: if the first link's peer is out of reach, its packets are never
acknowledged. If it holds all eight buffers, the second link starves beside a free radio. `DataCredits` gives the next buffer to the link
that has the fewest packets in the controller, and lets no link hold more than its share while another waits. Plain turns would not do
that: in time the silent peer would hold every buffer.

## The first second of a host

Now you can read the beginning of any Bluetooth log. These are the commands with which our host starts a controller:

```console
$ bindrune trace show sensor.btsnoop --layer hci --to 24 | grep → | cut -c 1-78
      1      0.000000 →        HCI   HCI_Reset
      3      0.000500 →        HCI   HCI_Read_Local_Version_Information
      5      0.001000 →        HCI   HCI_Read_Local_Supported_Commands
      7      0.001500 →        HCI   HCI_Read_Local_Supported_Features
      9      0.002000 →        HCI   HCI_LE_Read_Local_Supported_Features
     11      0.002500 →        HCI   HCI_Read_BD_ADDR
     13      0.003000 →        HCI   HCI_Set_Event_Mask  Event_Mask: 0x20008
     15      0.003500 →        HCI   HCI_Set_Event_Mask_Page_2  Event_Mask_P
     17      0.004000 →        HCI   HCI_LE_Set_Event_Mask  LE_Event_Mask: 0
     19      0.004500 →        HCI   HCI_LE_Read_Buffer_Size
     21      0.005000 →        HCI   HCI_LE_Read_Maximum_Data_Length
     23      0.005500 →        HCI   HCI_LE_Read_Filter_Accept_List_Size
```

Reset; who are you; what can you do; what is your address; which events do I want; how many buffers have you. All of it takes a few
milliseconds, and no radio wave leaves the antenna.

`sensor.btsnoop` is a recording that comes with the course; [chapter 8](08-read-a-trace.md) reads it, and [chapter
9](09-a-radio-in-memory.md) makes it.

## Exercises

1. `03 0C` is HCI_Reset's opcode. Which group and which command is that, and which opcode has LE command 0x0D? (5 minutes)
2. Give the controller `commandCredits = 3` in its `ControllerConfiguration`. How many commands leave before the first answer, and why not
   three? Change `Commands` so that the credit is used up. (10 minutes)

[Solutions](Solutions.md) · Next: [L2CAP in forty lines](03-l2cap-in-forty-lines.md)
"""#
}
