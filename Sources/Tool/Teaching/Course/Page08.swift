// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/08-read-a-trace.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page08 = #"""
# 8: Read a trace

**25 minutes.** After it you can open a recording of any Bluetooth device and say who did what, when, and whether it was allowed.

"It works with my phone and not with yours." The sentence costs the industry years. Both phones say that they have connected, neither says
more, and the device blinks. The truth has already been written down, packet by packet, by a part of the system that nobody asked. Where
is it, and how do you read it?

## Everybody can record

Between host and controller everything passes, in the clear, also on an encrypted link: the controller encrypts, the host does not. Android
writes it to a file if the developer options say so (*HCI snoop log*), a Mac with PacketLogger, Linux with `btmon`; and each verb of this
tool with `--trace FILE`. The formats differ, and `bindrune trace` reads all of them.

`sensor.btsnoop` is such a recording, of the phone's side: a phone finds a heart rate belt, connects and subscribes.

## First: who talks to whom

Reading a trace means leaving things out. The events of the air first:

```console
$ bindrune trace show sensor.btsnoop --layer hci | grep -E '_Report|_Connection' | cut -c 1-110
     35      1.001695 ←        HCI   HCI_LE_Extended_Advertising_Report  "Belt"  Num_Reports: 1, Reports: [{
     36      1.001797 ←        HCI   HCI_LE_Extended_Advertising_Report  Num_Reports: 1, Reports: [{Connecta
     39      1.002297 →        HCI   HCI_LE_Extended_Create_Connection  Initiator_Filter_Policy: 0x00, Own_A
     40      1.002797 ←        HCI   HCI_Command_Status  HCI_LE_Extended_Create_Connection  Status: 0x00 (Su
     41      1.108901 ← 0x0001 HCI   HCI_LE_Enhanced_Connection_Complete  Status: 0x00 (Success), Connection
```

A line has a number, a time in seconds, a direction (`→` from the host, `←` to it), the link, the layer, the name, and the fields. The
name of the device comes from its advertisement.

## Then: what they say

```console
$ bindrune trace show sensor.btsnoop --layer att | cut -c 1-110
     43      1.108901 → 0x0001 ATT   ATT_EXCHANGE_MTU_REQ  Client Rx MTU: 517
     47      1.141220 ← 0x0001 ATT   ATT_EXCHANGE_MTU_RSP  Server Rx MTU: 517
     48      1.141220 → 0x0001 ATT   ATT_READ_BY_GROUP_TYPE_REQ  Starting Handle: 0x0001, Ending Handle: 0xF
     50      1.201368 ← 0x0001 ATT   ATT_READ_BY_GROUP_TYPE_RSP  Length: 6, Attribute Data List: [{Attribute
     51      1.201368 → 0x0001 ATT   ATT_READ_BY_GROUP_TYPE_REQ  Starting Handle: 0x000A, Ending Handle: 0xF
     53      1.261396 ← 0x0001 ATT   ATT_ERROR_RSP  Request Opcode In Error: ATT_READ_BY_GROUP_TYPE_REQ (0x1
     54      1.261396 → 0x0001 ATT   ATT_READ_BY_GROUP_TYPE_REQ  Starting Handle: 0x000A, Ending Handle: 0xF
     56      1.321332 ← 0x0001 ATT   ATT_ERROR_RSP  Request Opcode In Error: ATT_READ_BY_GROUP_TYPE_REQ (0x1
     57      1.321332 → 0x0001 ATT   ATT_READ_BY_TYPE_REQ  Generic Access  Starting Handle: 0x0001, Ending H
     59      1.381194 ← 0x0001 ATT   ATT_ERROR_RSP  Generic Access  Request Opcode In Error: ATT_READ_BY_TYP
     60      1.381194 → 0x0001 ATT   ATT_READ_BY_TYPE_REQ  Generic Access  Starting Handle: 0x0001, Ending H
     62      1.441198 ← 0x0001 ATT   ATT_READ_BY_TYPE_RSP  Length: 7, Attribute Data List: [{Attribute Handl
     63      1.441198 → 0x0001 ATT   ATT_READ_BY_TYPE_REQ  Heart Rate Measurement  Starting Handle: 0x0008,
     65      1.501357 ← 0x0001 ATT   ATT_ERROR_RSP  Heart Rate Measurement  Request Opcode In Error: ATT_REA
     66      1.501357 → 0x0001 ATT   ATT_FIND_INFORMATION_REQ  Starting Handle: 0x0009, Ending Handle: 0x000
     68      1.561217 ← 0x0001 ATT   ATT_FIND_INFORMATION_RSP  Format: 1, Information Data: [{Handle: 0x0009
     69      1.561217 → 0x0001 ATT   ATT_WRITE_REQ  Client Characteristic Configuration  Attribute Handle: 0
     71      1.621407 ← 0x0001 ATT   ATT_WRITE_RSP  Client Characteristic Configuration
     72      2.521362 ← 0x0001 ATT   ATT_HANDLE_VALUE_NTF  Heart Rate Measurement  Attribute Handle: 0x0008,
     73      2.731463 ← 0x0001 ATT   ATT_HANDLE_VALUE_NTF  Heart Rate Measurement  Attribute Handle: 0x0008,
     74      2.911190 ← 0x0001 ATT   ATT_HANDLE_VALUE_NTF  Heart Rate Measurement  Attribute Handle: 0x0008,
     75      3.121251 ← 0x0001 ATT   ATT_HANDLE_VALUE_NTF  Heart Rate Measurement  Attribute Handle: 0x0008,
     76      3.331287 ← 0x0001 ATT   ATT_HANDLE_VALUE_NTF  Heart Rate Measurement  Attribute Handle: 0x0008,
```

You have met every line of it: the exchange of ATT_MTU, the discovery of chapter 5 with its errors that are none, the write to the
configuration, and five notifications. Note that the tool says *Heart Rate Measurement* where the packet has only the handle: it has read
the discovery as the phone did. A trace that begins in the middle of a connection has no such names.

Look at the times of questions and answers. There is the sum of chapter 4: each question costs two connection intervals.

## Then: one packet

When a line puzzles you, take it apart:

```console
$ bindrune explain sensor.btsnoop:60
HCI ACL Data                                               Vol 4, Part E, §5.4.2
   0  02                      HCI packet type: acl (2)
   1  .... 0000 0000 0001     Handle: 0x0001
   2  ..00 ....               Packet_Boundary_Flag: 0 (first fragment, from a
                              host)
   2  00.. ....               Broadcast_Flag: 0
   3  0B 00                   Data_Total_Length: 11 octets
L2CAP B-frame                                                Vol 3, Part A, §3.1
   5  07 00                   PDU Length: 7
   7  04 00                   Channel ID: 0x0004 (Attribute Protocol)
ATT_READ_BY_TYPE_REQ                                     Vol 3, Part F, §3.4.4.1
   9  08                      Opcode: ATT_READ_BY_TYPE_REQ (0x08)
      0... ....               Authentication Signature Flag: no
      .0.. ....               Command Flag: no
      ..00 1000               Method: 0x08
  10  01 00                   Starting Handle: 0x0001
  12  09 00                   Ending Handle: 0x0009
  14  03 28                   Attribute Type: 0x2803 (Characteristic)
```

## Who is wrong

A person can compare a trace with the Specification for an hour. A program does it in a millisecond, for every
rule that it knows:

```console
$ bindrune trace check sensor.btsnoop
sensor.btsnoop: no findings; 76 records; 74 of 144 rules judged 814 times
```

A rule can only be judged where the trace shows what it is about; so the last words say how many were. A finding names the packet, *who*
broke the rule (host, controller or peer), what is in the packet, what is allowed, and the section. That is the answer to the sentence at
the beginning: not "your phone", but "frame 812, peer, Vol 3, Part F, §3.4.2.2".

## Ask your own question

No tool has every question that you will have. A trace is a stream of values, and your question is a small type that looks at them. How long
does the belt take to answer?

```swift
/// How long the server takes for each answer.
struct RoundTrips: TraceSink {
  var asked: Int64?
  var milliseconds: [Int64] = []

  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard frame.channel == .attribute, payload.count > 0 else { return }
    switch (record.direction, payload[0]) {
    // A request has an even opcode, and is no command and no confirmation; its answer has the next number.
    case (.fromHost?, let opcode) where opcode % 2 == 0 && opcode < 0x1B || opcode == 0x20: asked = record.time
    case (.fromController?, let opcode) where opcode % 2 == 1 && opcode < 0x1B || opcode == 0x21:
      if let asked { milliseconds.append((record.time - asked) / 1_000_000) }
      asked = nil
    default: break
    }
  }
  mutating func record(_: CaptureRecord, _: Span<UInt8>) {}
  mutating func violation(_: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord) {}
}
```

The dissector joins fragments (chapter 3) and calls `frame` for each whole message. So a question about ATT is ten lines, and never sees a
radio packet:

```swift
var file = try TraceFile(path: path)  // sensor.btsnoop
var sink = DissectingSink(RoundTrips())
try file.read(into: &sink)
print(sink.sink.milliseconds)
```

```text
[32, 60, 60, 59, 59, 60, 60, 59, 60]
```

Two connection intervals of 30 milliseconds, rounded down; the very first question met a connection event at once. If a device needs
longer, one of these numbers is larger, and you know which question it was.

The checker is a sink like yours:

```swift
var again = try TraceFile(path: path), checker = DissectingSink(Checker())
try again.read(into: &checker)
print("findings:", checker.sink.findings.count)
```

```text
findings: 0
```

## What a trace does not show

Four things are easy to forget.

- The time is that of the host. A packet that waits in the controller has been "sent" in the trace and not on the air. Number Of Completed
  Packets tells the truth.
- The controller repeats lost packets by itself. Bad radio looks like slow answers, not like losses.
- It is one side. If the phone's trace has a question without an answer, the belt's trace says whether the question has arrived.
- It has keys. After a pairing the long term key is in the file, and addresses, names and values are in it anyway. Do not publish a trace
  that somebody has trusted you with.

## Exercises

1. How many packets has the host sent in the whole trace, and how many of them carry something for the belt? Use `trace show`, `grep` and
   `wc`. (5 minutes)
2. Write a sink that counts, for each opcode of ATT, how often it occurs and how many octets it moves. Which share of the octets in the
   trace are heart rates? (10 minutes)

[Solutions](Solutions.md) · Next: [A radio in memory](09-a-radio-in-memory.md)
"""#
}
