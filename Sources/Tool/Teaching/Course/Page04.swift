// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/04-att-one-question-at-a-time.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page04 = #"""
# 4: ATT: one question at a time

**25 minutes.** After it you know the protocol behind every read and write, what it costs, and why notifications exist.

A Bluetooth radio of today sends two million bits a second. You connect a phone to a thermometer and read its value, of two octets, in a
loop, as fast as the link allows. You get sixteen values a second. Where did the other million and some bits go?

## Questions and answers

The Attribute Protocol, ATT, has two roles. The *server* has the table of attributes; the *client* asks about it. Often the sensor is the
server and the phone the client, but both may be both at once.

Here is a device that is both, without any radio. A *bearer* is ATT's end of an L2CAP channel: PDUs (protocol data units, the messages)
go in and come out.

```swift
/// A device without a radio: PDUs in, PDUs out.
struct Device: ~Copyable {
  var server: Server
  var client = Client()
  var bearer = Bearer(BearerID(rawValue: 0))

  init(_ database: Database) {
    server = Server(database: database)
    server.open(bearer.id)
    client.open(bearer.id)
  }
  /// Gives it one PDU, and returns what it sends then.
  mutating func receive(_ pdu: [UInt8], now: Instant = .zero) -> [[UInt8]] {
    bearer.receive(pdu.span, now: now, server: &server, client: &client)
    return sends(now: now)
  }
  mutating func sends(now: Instant = .zero) -> [[UInt8]] {
    var pdus: [[UInt8]] = [], packet = PacketBuffer()
    while packet.fill({ bearer.nextPDU(into: &$0, now: now, client: &client) }) { pdus.append(packet.bytes) }
    return pdus
  }
}
```

Let us ask a sensor for its name, with the three octets of chapter 1:

```swift
var builder = DatabaseBuilder()
builder.genericAccess(name: "Heart Rate Sensor in the kitchen")
var sensor = Device(try builder.build())

for answer in sensor.receive([0x0A, 0x03, 0x00]) {
  print(hex(answer))
  print(try ATTPDU(answer.span).describe(in: answer.span))
}
```

```text
0B 48 65 61 72 74 20 52 61 74 65 20 53 65 6E 73 6F 72 20 69 6E 20 74
Attribute Value: 48 65 61 72 74 20 52 61 74 65 20 53 65 6E 73 6F 72 20 69 6E 20 74
```

Opcode `0B`: each request has a response of its own, with the next number. The response does not repeat the handle. It need not: the
client has asked only one question.

## A value that is too long

The name has 32 octets, and only 22 have come, without an error. ATT_MTU, the longest PDU, is 23 at the beginning of every link, and one
octet goes to the opcode. A value is *cut* silently. A client that gets exactly 22 octets has to ask for the rest. That is ATT_READ_BLOB_REQ,
which has an offset:

<!-- picture layout ATT_READ_BLOB_REQ -->
```picture
octet
  0     1           3           5
  ├─────┼───────────┼───────────┤
    │     │           └ Value Offset, 2 octets
    │     └ Attribute Handle, 2 octets
    └ Opcode
```

```swift
for answer in sensor.receive([0x0C, 0x03, 0x00, 0x16, 0x00]) { print(hex(answer)) }
```

```text
0D 68 65 20 6B 69 74 63 68 65 6E
```

Ten octets, fewer than 22, so this was the end. (Both sides can agree on a longer ATT_MTU, up to 517. A good client does that first.)

## Refusals

```swift
for question in [[0x0A, 0x09, 0x00], [0x12, 0x03, 0x00, 0x58], [0x0A, 0x03]] as [[UInt8]] {
  for answer in sensor.receive(question) {
    print(try ATTPDU(answer.span).describe(in: answer.span))
  }
}
```

```text
Request Opcode In Error: ATT_READ_REQ (0x0A), Attribute Handle In Error: 0x0009, Error Code: Invalid Handle (0x01)
Request Opcode In Error: ATT_WRITE_REQ (0x12), Attribute Handle In Error: 0x0003, Error Code: Write Not Permitted (0x03)
Request Opcode In Error: ATT_READ_REQ (0x0A), Attribute Handle In Error: 0x0000, Error Code: Invalid PDU (0x04)
```

There is no row 9; the name may not be written; and a read without a whole handle is no read. All three answers are one PDU, the Error
Response, which says what was asked, about which row, and why not:

<!-- picture layout ATT_ERROR_RSP -->
```picture
octet
  0     1     2           4     5
  ├─────┼─────┼───────────┼─────┤
    │     │     │           └ Error Code
    │     │     └ Attribute Handle In Error, 2 octets
    │     └ Request Opcode In Error
    └ Opcode
```

```console
$ bindrune explain 01 0A 09 00 01
ATT_ERROR_RSP                                            Vol 3, Part F, §3.4.1.1
   0  01                      Opcode: ATT_ERROR_RSP (0x01)
      0... ....               Authentication Signature Flag: no
      .0.. ....               Command Flag: no
      ..00 0001               Method: 0x01
   1  0A                      Request Opcode In Error: ATT_READ_REQ (0x0A)
      0... ....               Authentication Signature Flag: no
      .0.. ....               Command Flag: no
      ..00 1010               Method: 0x0A
   2  09 00                   Attribute Handle In Error: 0x0009
   4  01                      Error Code: Invalid Handle (0x01)
```

## One at a time

What if a client asks a second question before it has the first answer, and then a third?

```swift
while sensor.bearer.nextEffect() != nil {}  // reports about the questions above
for handle in [3, 5, 3] as [UInt8] {
  let question = [0x0A, handle, 0x00]
  sensor.bearer.receive(question.span, now: .zero, server: &sensor.server, client: &sensor.client)
}
print("three questions,", sensor.sends().count, "answers")
while let effect = sensor.bearer.nextEffect() {
  if case .violation(let violation) = effect { print(violation) }
}
```

```text
three questions, 2 answers
requestBeforeResponse(ATT_READ_REQ (0x0A))
requestDropped(ATT_READ_REQ (0x0A))
```

Our server is patient with one question too many: it answers that one after the first, and reports it. The third is dropped. The rule is
in Vol 3, Part F, §3.3.2: a client sends no request before the response to the last one. It makes life simple: an answer needs no number,
and a server needs memory for one question of each client. A thermometer with 8 kB of memory can do that.

The rule has a second half, for the case in which no answer ever comes:

```swift
var phone = Device(Database())
phone.client.read(RequestID(rawValue: 1), AttributeHandle(rawValue: 0x0003))
print(phone.sends().map(hex))
let limit = phone.bearer.deadline!
phone.bearer.expire(now: limit, server: &phone.server, client: &phone.client)
while let effect = phone.client.nextEffect() {
  if case .completed(let id, .failed(let error)) = effect { print("request", id.rawValue, "failed:", error) }
}
```

```text
["0A 03 00"]
request 1 failed: bearerClosed(ATT.BearerClosure.timedOut)
```

After 30 seconds the bearer is closed for good; on this channel that means that the link ends. There is no "retry": if the answer came
after all, the client would take it for the answer to its next question. The caller that waited, of request 1, gets its result exactly once.

## The sum

Now the loop at the beginning. Two devices do not send whenever they like. They meet: a *connection event* takes place every *connection
interval*, 30 milliseconds on many phones, and between events both radios sleep. That is why the sensor's battery lasts a year.

A question leaves in one event. The answer is ready a little later, when the radios sleep already, so it leaves in the next. The client
asks again, and that question waits for the event after:

```swift
let interval = 0.030  // seconds
print("reads a second:", Int(1 / (2 * interval)))
```

```text
reads a second: 16
```

Two thousand bits a second out of two million. The radio is not slow; it was asked to wait for every single answer. The cure is not a
faster radio but *not asking*. ATT has PDUs without an answer: a client may send Write Commands, a server Handle Value Notifications, as
many as fit. On the same link hundreds of notifications a second are possible, and that is why each sensor has them.

Their price: nobody says whether the *application* has got them. For the cases where that matters there are indications, which are
confirmed one by one, at the speed of reads. You choose for each value: fast, or certain.

## Exercises

1. Read the whole name of the sensor with Read Blob Requests only, in a loop that works for any length, also for 44 octets. When do you
   know that you are done? (5 minutes)
2. Let the phone read handle 3, and deliver the sensor's answer to it twice. What does its bearer report, and why must it not take the
   second one for an answer? (10 minutes)

[Solutions](Solutions.md) · Next: [GATT is a table](05-gatt-is-a-table.md)
"""#
}
