// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/06-advertising.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page06 = #"""
# 6: Advertising, scanning, the overflow area

**30 minutes.** After it you know how devices find each other, what fits into 31 octets, and how an iPhone hides a service in one bit.

An iPhone's app advertises two services. You put the phone into your pocket; the app goes to the background; and on the air both services
are gone. Another iPhone finds them all the same. A laptop beside it does not. What does the second iPhone see that the laptop does not?

## Shouting into the room

Two devices that do not know each other have no link, so nobody can ask a question. One of them *advertises*: a few times a second it
sends a short packet on three radio channels, to nobody in particular. The other *scans*: it listens. That is all there is; no search, no
answer, no guarantee. A scanner hears an advertiser when both happen to be on the same channel at the same time.

The packet has room for 31 octets. This is what a heart rate belt does with them:

```swift
let belt = AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"])
let packed = AdvertisingPacker(.standard).pack(belt)
print(hex(packed.payloads.advertising))
```

```text
02 01 06 03 03 0D 18 05 09 42 65 6C 74
```

The octets are a row of structures: a length, a type, data. Ten lines read them:

```swift
let heard = packed.payloads.advertising
var place = 0
while place < heard.count {
  let length = Int(heard[place])
  guard length > 0, place + length < heard.count else { break }
  print("type", hex([heard[place + 1]]), "data", hex(Array(heard[(place + 2)...(place + length)])))
  place += 1 + length
}
```

```text
type 01 data 06
type 03 data 0D 18
type 09 data 42 65 6C 74
```

Type 01 are flags, `06`: everybody may find me, and I speak Low Energy only. Type 03 is the complete list of services of 16 bits: `0D 18`
is 180D, Heart Rate, again with the least significant octet first. Type 09 is the name. The tool knows them all:

```console
$ bindrune explain --as ad 02 01 06 03 03 0D 18 05 09 42 65 6C 74
Advertising data                                              Vol 3, Part C, §11
   0  02                      Length: 2 octets
   1  01                      AD Type: 0x01 (Flags)
   2  06                      Flags: 0x06
      .... ...0               LE Limited Discoverable Mode: no
      .... ..1.               LE General Discoverable Mode: yes
      .... .1..               BR/EDR Not Supported: yes
      .... 0...               Simultaneous LE and BR/EDR (Controller): no
      ...0 ....               Previously used: no
   3  03                      Length: 3 octets
   4  03                      AD Type: 0x03 (Complete List of 16-bit Service
                              Class UUIDs)
   5  0D 18                   UUID: 0x180D (Heart Rate)
   7  05                      Length: 5 octets
   8  09                      AD Type: 0x09 (Complete Local Name)
   9  42 65 6C 74             Name: "Belt"
```

Note the `guard`: it stops when a length is zero or reaches beyond the end. Advertisements are the part of Bluetooth that *anybody* in
the room can send to you, unasked.

## One more question

There is one exception to "no answer". A scanner may be *active*: when it hears an advertiser, it sends a scan request, and the advertiser
replies with another 31 octets, the scan response. It costs both a little power, and the scanner some secrecy: a passive scanner is never
heard by anybody.

A scanner in a busy place hears hundreds of devices, and an app wants one kind:

```swift
let filter = ScanFilter(services: ["180D"])
print(AdvertisingData(decoding: heard.span).serviceUUIDs, "is wanted:", filter.services)
```

```text
[180D] is wanted: [180D]
```

## Who decides about the room

Two services of 128 bits take 2 × 18 octets. With flags that is more than 31. A program that advertises more than fits has to know what
was left out; so packing has a policy, and the answer a list. This is what happens to two long UUIDs with Core Bluetooth's policy:

```console
$ U=1D1D-4BBD-8E5C-6F0E5F1A0C00; bindrune advertise --dry-run --name Belt --service A0B10000-$U --service A0B10001-$U
advertising data, 27 of 31 octets
  flags: general discoverable, BR/EDR not supported
    02 01 06
  services, not all: A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00
    11 06 00 0C 1A 5F 0E 6F 5C 8E BD 4B 1D 1D 00 00
    B1 A0
  name: "Belt"
    05 09 42 65 6C 74
scan response, 21 of 31 octets
  overflow area: A0B10001-1D1D-4BBD-8E5C-6F0E5F1A0C00
    14 FF 4C 00 01 00 00 00 04 00 00 00 00 00 00 00
    00 00 00 00 00
overflow: A0B10001-1D1D-4BBD-8E5C-6F0E5F1A0C00 (bit 26)
```

## In the pocket

Back to the riddle. In the background an iPhone omits the name, and all services go elsewhere:

```swift
let app = AdvertisingData(localName: "Belt", serviceUUIDs: ["180D", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"])
let hidden = AdvertisingPacker(.coreBluetooth).pack(app, isInBackground: true)
print(hex(hidden.payloads.advertising))
```

```text
02 01 06 14 FF 4C 00 01 00 00 00 00 00 00 00 20 00 00 00 00 00 00 00 20
```

After the flags there is one structure of type FF, *manufacturer specific data*: `4C 00` is Apple, `01` the kind, and then come 16 octets
that are nearly all zero. They are 128 bits, and each service sets one of them. This is the *overflow area*.

Which bit? Apple has published nothing. Observations of many people fit a checksum: the lower seven bits of a CRC-8 over the UUID. In Swift:

```swift
func bit(_ uuid: BluetoothUUID) -> UInt8 {
  var remainder: UInt8 = 0
  for word in [uuid.high, uuid.low] {
    for octet in stride(from: 56, through: 0, by: -8).map({ UInt8(truncatingIfNeeded: word >> UInt64($0)) }) {
      remainder ^= octet
      for _ in 0..<8 { remainder = remainder << 1 ^ (remainder & 0x80 == 0 ? 0 : 0x09) }
    }
  }
  return remainder & 0x7F
}
for uuid in ["180D", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", "1001", "3333"] as [BluetoothUUID] {
  print(uuid, "bit", bit(uuid), bit(uuid) == OverflowArea.bit(of: uuid) ? "as the stack says" : "?")
}
```

```text
180D bit 61 as the stack says
A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00 bit 125 as the stack says
1001 bit 57 as the stack says
3333 bit 57 as the stack says
```

128 bits cannot distinguish all services: 1001 and 3333 share one. So a scanner that looks for a service sees that it *may* be there, and
has to connect to be sure. A scanner that looks for nothing in particular learns nothing at all, for nobody can go back from a bit to a
UUID. The second iPhone knows what it looks for; the laptop did not know that it should look at bits.

```console
$ bindrune overflow 1001 3333
octet  0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
mask  00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00
bit 7  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
bit 6  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
bit 5  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
bit 4  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
bit 3  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
bit 2  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
bit 1  ·  ·  ·  ·  ·  ·  ·  ●  ·  ·  ·  ·  ·  ·  ·  ·
bit 0  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·

1001  bit  57  octet  7, 02  shared with 3333
3333  bit  57  octet  7, 02  shared with 1001
mask 00000000000000020000000000000000
```

## Advertising has phases

To the controller, advertising is several commands, and each may fail or be overtaken by a connection. Our `Advertiser` is a state machine,
and a test writes a table of every phase with every input. This path through the table starts an advertisement; a connection ends it, and
the machine starts it again:

<!-- picture phases advertiser: advertise a, accepted, accepted, accepted, accepted, connection -->
```picture
no set
  │ advertise a   ⇒ LE_Set_Advertising_Parameters
  ▼
setting parameters
  │ accepted   ⇒ LE_Set_Advertising_Data
  ▼
setting data
  │ accepted   ⇒ LE_Set_Scan_Response_Data
  ▼
setting scanResponse
  │ accepted   ⇒ LE_Set_Advertising_Enable(on)
  ▼
setting enable
  │ accepted   ⇒ advertisingStarted
  ▼
on
  │ connection   ⇒ LE_Set_Advertising_Enable(on), link 1 up: 00:00:5E:00:53:01/public, Peripheral
  ▼
setting enable, restart
```

`accepted` means that the controller has answered the command; `⇒` is what the machine sends or reports. The table in
`Fixtures/Machines/advertiser.txt` has all the other paths: what if a stop comes before the answer? What if the controller is silent?
Writing them all down is how such questions are found before a user finds them.

## Exercises

1. The belt gets a second service, Battery (180F), and the name "Heart Rate Belt". Is there room in 31 octets? Pack it and see.
   (5 minutes)
2. Change the loop so that it reports what is wrong instead of stopping silently. Try it with `02 01 06 09 09 42`. (10 minutes)

[Solutions](Solutions.md) · Next: [Pairing, with the sums](07-pairing.md)
"""#
}
