import BindruneWire
import BindruneGAP
import TestSupport
import Testing

@Suite("Course 6: advertising", .hang) struct Chapter6 {
  @Test func page() throws {
    try course("06-advertising", exercises: [5, 10]) { page in
      // snippet
      let belt = AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"])
      let packed = AdvertisingPacker(.standard).pack(belt)
      print(hex(packed.payloads.advertising))
      page.shows()

      // snippet
      let heard = packed.payloads.advertising
      var place = 0
      while place < heard.count {
        let length = Int(heard[place])
        guard length > 0, place + length < heard.count else { break }
        print("type", hex([heard[place + 1]]), "data", hex(Array(heard[(place + 2)...(place + length)])))
        place += 1 + length
      }
      page.shows()

      // snippet
      let filter = ScanFilter(services: ["180D"])
      print(AdvertisingData(decoding: heard.span).serviceUUIDs, "is wanted:", filter.services)
      page.shows()

      // snippet
      let app = AdvertisingData(localName: "Belt", serviceUUIDs: ["180D", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"])
      let hidden = AdvertisingPacker(.coreBluetooth).pack(app, isInBackground: true)
      print(hex(hidden.payloads.advertising))
      page.shows()

      // snippet
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
      page.shows()
    }
  }
}
