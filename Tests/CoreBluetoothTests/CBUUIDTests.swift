import CoreBluetooth
import Testing

@Suite struct CBUUIDTests {
  @Test(
    "S78, S79: the forms of one UUID are one UUID",
    arguments: ["180D", "180d", "0x180D", "0X180d", "0000180D", "0x0000180D", "0000180D-0000-1000-8000-00805F9B34FB"])
  func forms(text: String) {
    let uuid = CBUUID(string: text)
    #expect(uuid == CBUUID(string: "180D"))
    #expect(uuid.uuidString == "180D")
    #expect(uuid.data == Data([0x18, 0x0D]))
    #expect([CBUUID(string: "180D"): 1][uuid] == 1)
  }
  @Test("S77, S80: every way to make one gives the same UUID, of 16, 32 or 128 bits")
  func makers() throws {
    let text = "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"
    let foundation = try #require(UUID(uuidString: text))
    let uuid = CBUUID(string: text)
    #expect(CBUUID(nsuuid: foundation) == uuid)
    #expect(CBUUID(data: uuid.data) == uuid)
    #expect(CBUUID(string: text.lowercased()).uuidString == text)
    #expect(uuid.data.count == 16)
    #expect(CBUUID(string: "12345678").data == Data([0x12, 0x34, 0x56, 0x78]))
    #expect(CBUUID(string: "12345678") == CBUUID(string: "12345678-0000-1000-8000-00805F9B34FB"))
    #expect(CBUUID(string: "180D") != CBUUID(string: "180F"))
    #expect(CBUUID() == CBUUID(string: "0000"))
    #expect(uuid.copy() as? CBUUID == uuid)
    #expect(!uuid.isEqual("A0B1"))
  }
  @Test("A subclass that replaces it may be made without a string")
  func subclass() {
    final class Fake: CBUUID, @unchecked Sendable {
      override init() { super.init() }
      override var uuidString: String { "FAKE" }
    }
    #expect(Fake().uuidString == "FAKE")
    #expect(Fake().data == Data(count: 2))
  }
  @Test("It prints as Apple's does: the name of an assigned one, else the UUID")
  func description() {
    #expect(CBUUID(string: "180D").description == "Heart Rate")
    #expect("\(CBUUID(string: "2A37"))" == "Heart Rate Measurement")
    #expect(CBUUID(string: "FFF0").description == "FFF0")
    #expect(
      CBUUID(string: CBUUIDL2CAPPSMCharacteristicString).description == "ABDD3056-28FA-441D-A470-55A75A52553A")
  }
}
