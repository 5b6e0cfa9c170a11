import CoreBluetooth
import Testing

@Suite struct CBUUIDTests {
  @Test(
    "S78, S79: the forms of one UUID are one UUID",
    arguments: ["180D", "180d", "0000180D", "0000180D-0000-1000-8000-00805F9B34FB"])
  func forms(text: String) {
    let uuid = CBUUID(string: text)
    #expect(uuid == CBUUID(string: "180D"))
    #expect(uuid.uuidString == "180D")
    #expect(uuid.data == Data([0x18, 0x0D]))
    #expect([CBUUID(string: "180D"): 1][uuid] == 1)
  }
}
