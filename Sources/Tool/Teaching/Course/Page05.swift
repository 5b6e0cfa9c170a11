// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/05-gatt-is-a-table.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page05 = #"""
# 5: GATT is a table

**35 minutes.** After it you can read the table of any Bluetooth device, and follow how a phone that knows nothing about it finds its way.

"This device has three services with nine characteristics." Every introduction to Bluetooth says such sentences, and draws boxes in boxes.
Now you listen on the air for a service, or for a characteristic. There is none. No PDU has one, no opcode is about one. What do devices
really send?

## Rows

They send rows. You know from chapter 4 that a server has numbered attributes. Each has four parts: a handle, a *type* (a UUID), a value,
and permissions. GATT, the Generic Attribute Profile, is an agreement about what to put into the rows, and in what order. Nothing else.

```swift
var builder = DatabaseBuilder()
builder.genericAccess(name: "Belt")
let measurement = builder.service("180D") { service in
  service.characteristic("2A38", .read, value: [1])
  return service.characteristic("2A37", .notify)
}
let database = try builder.build()

for row in database.allAttributes {
  let name = row.type.assignedName ?? "?"
  print(row.handle.text, row.type, name + ":", database.value(row.handle).map(hex) ?? "(a value for each client)")
}
```

```text
0x0001 2800 Primary Service: 00 18
0x0002 2803 Characteristic: 02 03 00 00 2A
0x0003 2A00 Device Name: 42 65 6C 74
0x0004 2803 Characteristic: 02 05 00 01 2A
0x0005 2A01 Appearance: 00 00
0x0006 2800 Primary Service: 0D 18
0x0007 2803 Characteristic: 02 08 00 38 2A
0x0008 2A38 Body Sensor Location: 01
0x0009 2803 Characteristic: 10 0A 00 37 2A
0x000A 2A37 Heart Rate Measurement:
0x000B 2902 Client Characteristic Configuration: (a value for each client)
```

Read it from above. A row of type 2800, *Primary Service*, begins a service; its value is the UUID of what the service is. Everything up
to the next such row belongs to it. A row of type 2803, *Characteristic*, announces a value, which follows in the next row. The boxes in
boxes are headings in a list.

`180D` and `2A37` are assigned by the Bluetooth SIG; anybody may use UUIDs of 128 bits, 16 octets, without asking.

## What a declaration says

The value of a row 2803 has three fields:

<!-- picture layout characteristic -->
```picture
octet
  0     1           3
  ├─────┼───────────┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
    │     │           └ Characteristic UUID, the rest
    │     └ Characteristic Value Handle, 2 octets
    └ Characteristic Properties
```

```swift
let row = database.value(measurement.declaration)!
let declaration = try WireDecoder.decode(CharacteristicDeclaration.self, row.span)
print(declaration.description(in: row.span))
```

```text
Characteristic Properties: 0x10, Characteristic Value Handle: 0x000A, Characteristic UUID: 0x2A37
```

`0x10` are the properties: this value can be subscribed to, and not be read. The handle points to the row with the value. The UUID is the
same as that row's type: it is here so that a client finds it with one question instead of two.

## Discovery

A phone that has never met this belt has to read the headings. Let us give it the `Device` of chapter 4, and carry the PDUs ourselves:

```swift
var belt = Device(database), phone = Device(Database())
phone.client.discoverAll(RequestID(rawValue: 1))
var questions = phone.sends(), count = 0
while let question = questions.first {
  let answer = belt.receive(question)[0]
  count += 1
  print("→", hex(question))
  print("←", hex(answer))
  questions = phone.receive(answer)
}
print(count, "questions")
```

```text
→ 10 01 00 FF FF 00 28
← 11 06 01 00 05 00 00 18 06 00 0B 00 0D 18
→ 10 0C 00 FF FF 00 28
← 01 10 0C 00 0A
→ 10 0C 00 FF FF 01 28
← 01 10 0C 00 0A
→ 08 01 00 0B 00 02 28
← 01 08 01 00 0A
→ 08 01 00 0B 00 03 28
← 09 07 02 00 02 03 00 00 2A 04 00 02 05 00 01 2A 07 00 02 08 00 38 2A
→ 08 08 00 0B 00 03 28
← 09 07 09 00 10 0A 00 37 2A
→ 08 0A 00 0B 00 03 28
← 01 08 0A 00 0A
7 questions
```

Follow the questions; there are two kinds.

- `10`, Read By Group Type: "all rows of type 2800, from row 1 to FFFF". The answer has each heading *and the last row of its group*. The
  phone asks again from where the answer ended, until it gets an error: `0A`, Attribute Not Found. That error is not a failure; it means
  "that was all".
- `08`, Read By Type: "all rows of type 2802", which nobody has here, and then "all rows of type 2803", the characteristics. Three of them
  fit into 23 octets, so the phone asks for the others from row 8 on.

A third kind, Find Information, asks "which types have these rows?". It finds what is neither a heading nor a value. Here the phone has
put that question off: a single row below a value that notifies must be its configuration. Some devices break this rule, so the phone
asks before it writes to the row.

Discovery does not ask for what can be concluded. Row 0x0003 must be the value of the characteristic in row 0x0002, so there is nothing to
ask. With the sum of chapter 4 each question costs 60 milliseconds, and a good client is one that asks few.

What it has found:

```swift
for service in phone.client.remote.services {
  print(service.uuid.assignedName ?? "\(service.uuid)")
  for characteristic in phone.client.remote.characteristics(of: service) {
    print("  ", characteristic.uuid.assignedName ?? "?", "at", characteristic.valueHandle.text)
  }
}
```

```text
Generic Access
   Device Name at 0x0003
   Appearance at 0x0005
Heart Rate
   Body Sensor Location at 0x0008
   Heart Rate Measurement at 0x000A
```

Because discovery is slow, phones remember the result, and that is the reason for many bug reports: a device with new firmware has new
rows, and the phone uses the old ones. GATT has a remedy, a hash over all headings that a client can compare with one question.

## The row that is different for everyone

One row had no value: type 2902, the *Client Characteristic Configuration*. It stands below each value that can be subscribed to, and each
client has a value of its own there. To subscribe means to write `01 00` into it:

```swift
let value: [UInt8] = [0x00, 72]
print(belt.server.mayNotify(measurement.value, to: belt.bearer.id))

let configuration = measurement.configuration!
let subscribe = [0x12, UInt8(configuration.rawValue), 0x00, 0x01, 0x00]
print("→", hex(subscribe), " ←", belt.receive(subscribe).map(hex))
print(belt.server.mayNotify(measurement.value, to: belt.bearer.id))

_ = belt.bearer.offer(notification: measurement.value, value.span)
print(belt.sends().map(hex))
```

```text
false
→ 12 0B 00 01 00  ← ["13"]
true
["1B 0A 00 00 48"]
```

Before the write the server may not send; after it, it may. There is no "subscribe" PDU: opcode `12` is the same Write Request that would
set a name. The notification `1B` carries the handle of the value and 72 beats a minute, and nobody answers it.

Two consequences surprise people. The configuration belongs to one client *and one connection*: without a bond it is gone at the
disconnection, and a client that comes back must write again. And the server is the one who knows who has subscribed; a client that has
forgotten will be notified all the same.

## Look at a whole device

The tool has a virtual heart rate sensor. This is what a phone would find in it:

```console
$ bindrune explore --hci sim --name 'Virtual*' | head -12
0001 Generic Access 1800
0002 ├ Device Name 2A00 [read] = "Virtual Heart Rate"
0004 ├ Appearance 2A01 [read] = Heart Rate Sensor, kind 1 (41 03)
0006 Generic Attribute 1801
0007 ├ Service Changed 2A05 [indicate]
0009 │ └ Client Characteristic Configuration 2902 = off (00 00)
000A ├ Client Supported Features 2B29 [read, write] = 00
000C ├ Database Hash 2B2A [read] = C2 FE F3 A1 63 12 85 E8 62 B5 43 93 79 B6 38 FB
000E Heart Rate 180D
000F ├ Heart Rate Measurement 2A37 [notify]
0011 │ └ Client Characteristic Configuration 2902 = off (00 00)
0012 ├ Body Sensor Location 2A38 [read] = Chest (01)
```

You know now what it did to find out, and could write down the octets.

## Exercises

1. Which three rows does a service "180F" with one characteristic "2A19" that can be read and notified add, and which fourth one? Build
   it, print the table, and check. (10 minutes)
2. How many questions does a phone need for the belt if the belt has ten services with one characteristic each? Estimate, then measure.
   Why does the number not grow tenfold? (10 minutes)

[Solutions](Solutions.md) · Next: [Advertising, scanning, the overflow area](06-advertising.md)
"""#
}
