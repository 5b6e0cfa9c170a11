// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/10-a-new-pdu.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page10 = #"""
# 10: A new PDU, and a conformance script for it

**35 minutes.** After it you can add a message to this project, and write a test of behaviour that any Bluetooth stack can be held to.

Other stacks have, for each message, a function that reads it, one that writes it, one that prints it, a table of offsets for the
documentation, and a test with random values. Five descriptions of one thing; in old code no two of them agree. Here is a message, and
there is exactly one description of it. Where are the other four?

## The declaration

Suppose that belts had a PDU of their own, which reports how they sit:

```swift
/// How a belt sits: an invented PDU.
struct FitReport: WireRecord {
  var sensor = AttributeHandle()
  var contact: UInt8 = 0
  var resistance: UInt16 = 0  // ohms
  var note = Octets()

  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Sensor", &sensor)
    try visit.value("Contact", &contact)
    try visit.value("Resistance", &resistance)
    try visit.octets("Note", &note)
  }
}
```

A struct, its properties with safe defaults, and `fields`, which names them in the order of the wire. The names are those that the
Specification would use. Everything else follows:

```swift
var arena: [UInt8] = []
var report = FitReport()
report.sensor = AttributeHandle(rawValue: 0x000A)
report.contact = 2
report.resistance = 1500
report.note = Octets(Array("ok".utf8), in: &arena)

let octets = try report.encoded(from: arena.span)
print(hex(octets))
let decoded = try WireDecoder.decode(FitReport.self, octets.span)
print(decoded.description(in: octets.span))
for field in FitReport.layout { print(field.label, "bit", field.bit ?? -1, "width", field.width ?? -1) }
```

```text
0A 00 02 DC 05 6F 6B
Sensor: 0x000A, Contact: 2, Resistance: 1500, Note: 6F 6B
Sensor bit 0 width 16
Contact bit 16 width 8
Resistance bit 24 width 16
Note bit 40 width -1
```

Written, read, printed, and laid out, from one function. The trick is the parameter: `visit` is a `FieldVisitor`, and there are several.
The decoder takes each field from a packet; the encoder puts it there; the describer appends text; the layout counts bits. The compiler
specialises `fields` for each of them, so that the result is about as fast as code that somebody has written in C by hand; the README has
the figures.

## Random values, and every way to be too short

There is a fifth visitor: it sets the fields to random values.

```swift
var chance = SystemRandomNumberGenerator()
for _ in 0..<1000 {
  var arena: [UInt8] = []
  let report = FitReport.arbitrary(using: &chance, in: &arena)
  let octets = try report.encoded(from: arena.span)
  let again = try WireDecoder.decode(FitReport.self, octets.span).encoded(from: octets.span)
  guard again == octets else { fatalError(hex(octets)) }
}
for count in 0..<5 {
  let short = Array(octets[..<count])
  do { _ = try WireDecoder.decode(FitReport.self, short.span) } catch { print(count, error) }
}
```

```text
0 truncated "Sensor": needed 2, available 0
1 truncated "Sensor": needed 2, available 1
2 truncated "Contact": needed 1, available 0
3 truncated "Resistance": needed 2, available 0
4 truncated "Resistance": needed 2, available 1
```

A thousand random reports survive the way to octets and back. Then each packet that is too short: the error names the field that is
missing. You have written none of these checks, and cannot forget one.

The last lines tell you something about the design of the PDU, too: 5 octets are enough, with an empty note.

## A type is a check

`contact` is a `UInt8`, and only three of its values mean anything. Where do you check that? Not in a function that somebody has to call,
but in the type of the field:

```swift
enum Contact: UInt8, ClosedNumber {
  case none = 0
  case weak = 1
  case good = 2
}
struct CheckedReport: WireRecord {
  var contact = Contact.none
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try visit.value("Contact", &contact) }
}
```

```swift
do { _ = try WireDecoder.decode(CheckedReport.self, [0x07].span) } catch { print(error) }
```

```text
invalid "Contact": 0x07
```

Use such a *closed* number only where the Specification closes the set for ever. If a later edition may add a value, an old host must not
reject the whole message for it: then it is an *open* number, a struct with named constants, which keeps what it does not know.

## Into the stack

A real message needs three more steps; `CONTRIBUTING.md` has them in full.

1. Its number and its section in the same struct, then `Scripts/messages`: it writes the layer's one enum, such as `ATTPDU`, and its switches.
2. A *vector*: three lines in `Fixtures/Vectors` with its name and section, its octets, and its text. A test fails while a message has
   none. The octets come from the Specification or from another implementation, never from our own encoder: it would agree with itself.
3. A line in the table of features of its module.

## Behaviour

A message that encodes well can still be sent at the wrong time. *When* may a server answer, and with what? For that there are conformance
scripts: text files that say what a tester sends and what must come back. This one is about a belt with two characteristics:

<!-- file belt.exchange -->
```file
title: The belt tells where it is worn, and accepts one octet at its control point
section: Vol 3, Part F, §3.4.4.3 and §3.4.5.1
database: belt.json
side: server

< 0A 03 00          # Read Request, handle 0x0003 …
> 0B 01             # … 1: on the chest
< 12 05 00 01       # Write Request, handle 0x0005
> 13
< 12 03 00 02       # the place cannot be written:
> 01 12 03 00 03    # Error Response, Write Not Permitted
< 12 05 00 01 01    # two octets are too many
> 01 12 05 00 0D    # Invalid Attribute Value Length
```

`<` goes to the side under test, `>` must come from it. You can read every octet of it by now. The database is a file as well:

<!-- file belt.json -->
```file
{ "title": "A belt",
  "services": [
    { "uuid": "180D", "handle": "0x0001",
      "characteristics": [
        { "uuid": "2A38", "properties": ["read"], "value": "01" },
        { "uuid": "2A39", "properties": ["write"], "value": "00", "fixed": true } ] } ] }
```

Run it against our stack:

```console
$ bindrune conform belt.exchange
PASS belt
1 passed, 0 failed
```

A test that has never failed proves nothing. Here is one with a wrong expectation:

```console
$ tail -2 wrong.exchange; bindrune conform wrong.exchange
< 0A 03 00
> 0B 02
FAIL wrong: line 7, > 0B 02, expected 0B 02, got 0B 01
0 passed, 1 failed
```

The line, what was expected, what came. Because a script is text and knows nothing of our code, `bindrune conform --against tcp:HOST:PORT`
runs the same file against any other stack. Hundreds of scripts in `Fixtures/Scripts` hold ours to the Specification, for ATT, GATT and
pairing; `FORMAT.md` beside them has everything that a tester may do: wait, subscribe, pair, and compute the sums of chapter 7.

## What you can do now

You have written packets by hand, a layer, a parser of advertisements, a listener's attack, a question to a trace, a host on a radio in
memory, and a message. The tables and machines of this project are nothing else, in larger numbers. Each machine in `Sources` opens with
its overview, its function and its phases: begin with the one whose chapter you liked best. [Decisions](../Decisions.md) tells why things
are as they are.

## Exercises

1. Give `FitReport` a list: after the resistance, a count and that many heart rates of one octet each. `WireList` and
   `visit.list(countIn:…)` do it. Run the random test again. (10 minutes)
2. Write a script for the server of chapter 4: a value of 32 octets is read in two parts, and an offset beyond its end is refused with the
   error that Vol 3, Part F, §3.4.4.5 names. (15 minutes)

[Solutions](Solutions.md) · [All chapters](../Course.md)
"""#
}
