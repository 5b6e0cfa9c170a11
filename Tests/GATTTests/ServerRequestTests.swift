import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Requests and the responses that the Specification requires, on `richDatabase()`, ATT_MTU 23 unless stated.
@Suite struct ServerRequestTests {
  let tester: ServerUnderTest
  init() throws { tester = ServerUnderTest(try richDatabase()) }

  /// Vol 3, Part F, §3.4.3.1, §3.4.3.2.
  @Test func findInformation() {
    #expect(tester.ask("04 01 00 05 00") == "05 01 01 00 00 28 02 00 03 28 03 00 00 2A 04 00 03 28 05 00 01 2A")
    #expect(tester.ask("04 05 00 FF FF") == "05 01 05 00 01 2A 10 00 00 28 11 00 03 28 12 00 19 2A 13 00 02 29")
    // A response has one format: a 128-bit type ends it, and is alone in the next.
    #expect(tester.ask("04 21 00 FF FF") == "05 01 21 00 03 28")
    #expect(tester.ask("04 22 00 FF FF") == "05 02 22 00 " + customOctets(0x21))
    // A range without attributes, between two services and after the last.
    #expect(tester.ask("04 15 00 1F 00") == "01 04 15 00 0A")
    #expect(tester.ask("04 49 00 FF FF") == "01 04 49 00 0A")
    #expect(tester.ask("04 00 00 FF FF") == "01 04 00 00 01")
    #expect(tester.ask("04 05 00 04 00") == "01 04 05 00 01")
  }

  /// Vol 3, Part F, §3.4.3.3, §3.4.3.4; Vol 3, Part G, §4.4.2.
  @Test func findByTypeValue() {
    #expect(tester.ask("06 01 00 FF FF 00 28 0F 18") == "07 10 00 1F 00")
    #expect(tester.ask("06 01 00 FF FF 00 28 " + customOctets(0)) == "07 30 00 48 00")
    #expect(tester.ask("06 11 00 FF FF 00 28 0F 18") == "01 06 11 00 0A")
    #expect(tester.ask("06 01 00 0F 00 00 28 0F 18") == "01 06 01 00 0A")
    // A secondary service is no primary service.
    #expect(tester.ask("06 01 00 FF FF 00 28 " + customOctets(0x20)) == "01 06 01 00 0A")
    #expect(tester.ask("06 01 00 FF FF 01 28 " + customOctets(0x20)) == "07 20 00 22 00")
    // §3.4.3.3: values are compared by length and octets, so that the 128-bit form of a UUID is another value.
    #expect(
      tester.ask("06 01 00 FF FF 00 28 FB 34 9B 5F 80 00 00 80 00 10 00 00 0F 18 00 00") == "01 06 01 00 0A")
    // Any type; only a grouping type has a group end.
    #expect(tester.ask("06 01 00 FF FF 01 29 6C 65 76 65 6C") == "07 14 00 14 00")
    #expect(tester.ask("06 01 00 FF FF 03 28 12 12 00 19 2A") == "07 11 00 1F 00")
    #expect(tester.ask("06 01 00 FF FF 02 29 00 00") == "07 13 00 13 00 43 00 43 00 46 00 46 00")
    #expect(tester.ask("06 01 00 FF FF 00 28 0F") == "01 06 01 00 0A")
    #expect(tester.ask("06 00 00 FF FF 00 28 0F 18") == "01 06 00 00 01")
    #expect(tester.ask("06 02 00 01 00 00 28 0F 18") == "01 06 02 00 01")
  }

  /// Vol 3, Part F, §3.4.4.1, §3.4.4.2.
  @Test func readByType() {
    #expect(
      tester.ask("08 01 00 FF FF 03 28") == "09 07 02 00 02 03 00 00 2A 04 00 02 05 00 01 2A 11 00 12 12 00 19 2A")
    // A longer entry ends the list, and is a list of its own.
    #expect(tester.ask("08 11 00 FF FF 03 28") == "09 07 11 00 12 12 00 19 2A")
    #expect(tester.ask("08 12 00 FF FF 03 28") == "09 15 21 00 02 22 00 " + customOctets(0x21))
    #expect(tester.ask("08 01 00 FF FF 00 2A") == "09 0A 03 00 42 69 6E 64 72 75 6E 65")
    #expect(
      tester.ask("08 01 00 FF FF FB 34 9B 5F 80 00 00 80 00 10 00 00 00 2A 00 00")
        == "09 0A 03 00 42 69 6E 64 72 75 6E 65")
    // Includes: 8 octets with a 16-bit UUID, 6 without. Vol 3, Part G, §3.2.
    #expect(tester.ask("08 30 00 48 00 02 28") == "09 08 31 00 10 00 1F 00 0F 18")
    #expect(tester.ask("08 32 00 48 00 02 28") == "09 06 32 00 20 00 22 00")
    // Cut to the MTU: 19 octets of 512.
    #expect(
      tester.ask("08 01 00 FF FF " + customOctets(6))
        == "09 15 3E 00 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F 10 11 12")
    // Each client's own configuration.
    #expect(tester.ask("08 01 00 FF FF 02 29") == "09 04 13 00 00 00 43 00 00 00 46 00 00 00")
    #expect(tester.ask("08 01 00 FF FF 99 2A") == "01 08 01 00 0A")
    #expect(tester.ask("08 01 00 02 00 00 2A") == "01 08 01 00 0A")
    #expect(tester.ask("08 00 00 02 00 00 2A") == "01 08 00 00 01")
    #expect(tester.ask("08 03 00 02 00 00 2A") == "01 08 03 00 01")
    // The first attribute's error is the answer: not readable, not without encryption.
    #expect(tester.ask("08 01 00 FF FF " + customOctets(12)) == "01 08 3C 00 02")
    #expect(tester.ask("08 01 00 FF FF " + customOctets(7)) == "01 08 36 00 05")
    // A length octet is at most 255.
    tester.mtu = 517
    let response = octets(tester.ask("08 01 00 FF FF " + customOctets(6)))
    #expect(response.count == 257 && response[1] == 255 && response.last == 252)
  }

  /// Vol 3, Part F, §3.4.4.3 … §3.4.4.6.
  @Test func readAndReadBlob() {
    #expect(tester.ask("0A 03 00") == "0B 42 69 6E 64 72 75 6E 65")
    #expect(tester.ask("0A 05 00") == "0B 41 03")
    #expect(tester.ask("0A 01 00") == "0B 00 18")
    #expect(tester.ask("0A 13 00") == "0B 00 00")
    #expect(tester.ask("0C 13 00 01 00") == "0D 00")
    #expect(tester.ask("0A 3E 00") == "0B " + hex((0..<22).map { UInt8($0) }))
    #expect(tester.ask("0C 3E 00 16 00") == "0D " + hex((22..<44).map { UInt8($0) }))
    #expect(tester.ask("0C 3E 00 FE 01") == "0D FE FF")
    #expect(tester.ask("0C 3E 00 00 02") == "0D")
    #expect(tester.ask("0C 3E 00 01 02") == "01 0C 3E 00 07")
    #expect(tester.ask("0C 03 00 09 00") == "01 0C 03 00 07")
    #expect(tester.ask("0A 00 00") == "01 0A 00 00 01")
    #expect(tester.ask("0A 06 00") == "01 0A 06 00 01")
    #expect(tester.ask("0A FF FF") == "01 0A FF FF 01")
    #expect(tester.ask("0C 15 00 00 00") == "01 0C 15 00 01")
    #expect(tester.ask("0A 3C 00") == "01 0A 3C 00 02")
    #expect(tester.ask("0C 3C 00 FF FF") == "01 0C 3C 00 02")
    #expect(tester.ask("0A") == "01 0A 00 00 04")
    #expect(tester.ask("0A 03 00 00") == "01 0A 00 00 04")
  }

  /// Vol 3, Part C, §10.3.1: the error asks for pairing without a key, for encryption with one, and for better pairing
  /// if that is insufficient.
  @Test func security() {
    for (security, encrypted, authenticated) in [
      (BearerSecurity.none, "01 0A 36 00 05", "01 0A 38 00 05"),
      (.keysAvailable, "01 0A 36 00 0F", "01 0A 38 00 0F"),
      (.encrypted, "0B 73 65 63 72 65 74", "01 0A 38 00 05"),
      (.authenticated, "0B 73 65 63 72 65 74", "0B 6D 69 74 6D 2D 73 65 63 72 65 74"),
    ] {
      tester.server.setSecurity(security, of: tester.bearer)
      #expect(tester.ask("0A 36 00") == encrypted)
      #expect(tester.ask("0A 38 00") == authenticated)
    }
    tester.server.setSecurity(.none, of: tester.bearer)
    #expect(tester.ask("12 36 00 01") == "01 12 36 00 05")
    #expect(tester.ask("16 36 00 00 00 01") == "01 16 36 00 05")
    tester.command("52 36 00 01")
    #expect(tester.server.database.value(handle(0x36)) == Array("secret".utf8))
    // A comparison must not reveal a value that may not be read.
    #expect(tester.ask("06 01 00 FF FF 00 2A 73 65 63 72 65 74") == "01 06 01 00 0A")
    // Writable but not readable: if both fail, the read permission comes first.
    #expect(tester.ask("0A 3C 00") == "01 0A 3C 00 02")
    #expect(tester.ask("12 38 00 01") == "01 12 38 00 03")
  }

  /// Vol 3, Part F, §3.4.4.7 … §3.4.4.12.
  @Test func readMultiple() {
    #expect(tester.ask("0E 05 00 01 00 13 00") == "0F 41 03 00 18 00 00")
    #expect(tester.ask("0E 03 00 3E 00") == "0F 42 69 6E 64 72 75 6E 65 " + hex((0..<14).map { UInt8($0) }))
    #expect(tester.ask("0E 05 00 3C 00 06 00") == "01 0E 3C 00 02")
    #expect(tester.ask("0E 05 00 06 00") == "01 0E 06 00 01")
    #expect(tester.ask("0E 3E 00 36 00") == "01 0E 36 00 05")
    #expect(tester.ask("0E 05 00") == "01 0E 00 00 04")
    #expect(tester.ask("20 05 00 01 00 42 00") == "01 20 42 00 02")
    #expect(tester.ask("20 05 00 13 00 01 00") == "21 02 00 41 03 02 00 00 00 02 00 00 18")
    // Cut at ATT_MTU − 1; the length is that of the whole value.
    #expect(tester.ask("20 03 00 3E 00") == "21 08 00 42 69 6E 64 72 75 6E 65 00 02 " + hex((0..<10).map { UInt8($0) }))
    #expect(tester.ask("20 3E 00 3E 00") == "21 00 02 " + hex((0..<20).map { UInt8($0) }))
    #expect(tester.ask("20 05 00 06 00") == "01 20 06 00 01")
  }

  /// Vol 3, Part F, §3.4.4.9, §3.4.4.10.
  @Test func readByGroupType() {
    #expect(tester.ask("10 01 00 FF FF 00 28") == "11 06 01 00 05 00 00 18 10 00 1F 00 0F 18")
    #expect(tester.ask("10 11 00 FF FF 00 28") == "11 14 30 00 48 00 " + customOctets(0))
    #expect(tester.ask("10 01 00 FF FF 01 28") == "11 14 20 00 22 00 " + customOctets(0x20))
    #expect(tester.ask("10 31 00 FF FF 00 28") == "01 10 31 00 0A")
    #expect(tester.ask("10 01 00 FF FF 03 28") == "01 10 01 00 10")
    #expect(tester.ask("10 01 00 FF FF 99 2A") == "01 10 01 00 10")
    #expect(tester.ask("10 01 00 FF FF FB 34 9B 5F 80 00 00 80 00 10 00 00 00 28 00 00").hasPrefix("11 06"))
    #expect(tester.ask("10 00 00 FF FF 00 28") == "01 10 00 00 01")
    #expect(tester.ask("10 02 00 01 00 03 28") == "01 10 02 00 01")
  }

  /// Vol 3, Part F, §3.4.5.
  @Test func write() {
    #expect(tester.ask("12 34 00 0A 0B 0C 0D") == "13")
    #expect(tester.ask("0A 34 00") == "0B 0A 0B 0C 0D")
    #expect(tester.ask("12 34 00") == "13")
    #expect(tester.ask("0A 34 00") == "0B")
    #expect(tester.effectTexts() == ["1 wrote 0x0034+0: 0A 0B 0C 0D", "1 wrote 0x0034+0: "])
    // A fixed length: fewer octets change the first ones, more are an error.
    #expect(tester.ask("12 40 00 01 02") == "13")
    #expect(tester.ask("0A 40 00") == "0B 01 02 09 09")
    #expect(tester.ask("12 40 00 01 02 03 04 05") == "01 12 40 00 0D")
    tester.mtu = 64
    #expect(tester.ask("12 34 00 " + hex(Array(repeating: 7, count: 21))) == "01 12 34 00 0D")
    #expect(tester.ask("12 34 00 " + hex(Array(repeating: 7, count: 20))) == "13")
    #expect(tester.ask("12 06 00 01") == "01 12 06 00 01")
    #expect(tester.ask("12 03 00 01") == "01 12 03 00 03")
    #expect(tester.ask("12 01 00 00 18") == "01 12 01 00 03")
    #expect(tester.ask("12 34") == "01 12 00 00 04")
    #expect(tester.effectTexts().count == 2)
    tester.command("52 34 00 EE")
    tester.command("52 34 00 " + hex(Array(repeating: 7, count: 21)))
    tester.command("52 03 00 EE")
    tester.command("52 FF 00 EE")
    tester.command("D2 34 00 DD 01 02 03 04 05 06 07 08 09 0A 0B 0C")
    #expect(tester.effectTexts() == ["1 wrote 0x0034+0: EE", "1 signed 0x0034: noKey"])
    #expect(tester.server.database.value(handle(0x34)) == [0xEE])
  }

  /// Requests that this server does not support: 0x06.
  @Test func otherPDUs() {
    #expect(tester.ask("02 17 00") == "01 02 00 00 06")
    #expect(tester.ask("0B 17 00") == "01 0B 00 00 06")
    tester.bearer = BearerID(rawValue: 9)
    #expect(tester.ask("0A 03 00") == "01 0A 00 00 0E")
    tester.command("52 34 00 EE")
    #expect(tester.effectTexts() == [])
  }

  @Test func valuesOfTheApplication() {
    #expect(tester.setValue(0x12, [0x50]))
    #expect(tester.ask("0A 12 00") == "0B 50")
    #expect(!tester.setValue(0x34, Array(repeating: 0, count: 21)))
    #expect(!tester.setValue(0x40, [1, 2, 3]))
    #expect(tester.setValue(0x40, [1, 2, 3, 4]))
    #expect(!tester.setValue(0x3A, [1]))
    #expect(!tester.setValue(0x06, [1]))
    // A value that grows leaves the others intact.
    for length in [1, 20, 3, 512, 100, 0] {
      let value = (0..<length).map { UInt8(truncatingIfNeeded: $0 + length) }
      #expect(tester.setValue(0x42, value))
      #expect(tester.server.database.value(handle(0x42)) == value)
      #expect(tester.ask("0A 40 00") == "0B 01 02 03 04")
    }
  }
}
