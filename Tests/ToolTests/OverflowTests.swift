import TestSupport
import Testing

/// Expected masks and bits are observations of others, named in Fixtures/Vectors/overflow.txt.
@Suite("Tool: overflow", .realTime, .hang) struct OverflowTests {
  private static let whole = (
    """
    4382 4F02 DDC3 77EA B5BB 8AE4 2A9C DBB5 1135 6B07 20F8 AB5D 2B63 E29E 21C2 19BB D0EB 4021 3D92 885C 89C4 1FBB CE5C \
    712F 2412 26FE 9770 A9D8 9AF2 4ADF 6FB4 E852 6619
    """.split(separator: " ").map(String.init), mask: "0807060504030201100f0e0d0c0b0a09"
  )

  @Test func mask() async throws {
    for (uuids, mask) in [
      Self.whole, (Array(Self.whole.0.dropFirst(13)), "0000000000000000100f0e0d0c0b0a09"),
      (
        ["b82ab3fc-1595-4f6a-80f0-fe094cc218f9", "17E033D3490E4BC99FE82F567643F4D3"], "01008000000000000000000000000000"
      ),
    ] {
      let end = try await Tool.run(["overflow", "--json"] + uuids)
      #expect(end.status == 0 && end.errors == "")
      let object = try #require(try end.objects().first)
      #expect(Set(object.keys) == ["mask", "bits"] && object["mask"] as? String == mask)
    }
    // In the order given, in canonical form, without duplicates.
    let end = try await Tool(
      "overflow", "c007", "1001", "3333", "C007", "0000c008-0000-1000-8000-00805f9b34fb", "--json"
    )
    .end()
    #expect(
      end.lines == [
        #"{"mask":"000000001000000a0000000000000000","bits":{"C007":36,"1001":57,"3333":57,"C008":59}}"#
      ])
  }

  @Test func drawing() async throws {
    let end = try await Tool("overflow", "C007", "1001", "3333", "2A9C").end()
    #expect(end.status == 0 && end.errors == "")
    #expect(
      end.lines == [
        "octet  0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15",
        "mask  00 00 00 04 10 00 00 02 00 00 00 00 00 00 00 00",
        "bit 7  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·",
        "bit 6  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·",
        "bit 5  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·",
        "bit 4  ·  ·  ·  ·  ●  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·",
        "bit 3  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·",
        "bit 2  ·  ·  ·  ●  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·",
        "bit 1  ·  ·  ·  ·  ·  ·  ·  ●  ·  ·  ·  ·  ·  ·  ·  ·",
        "bit 0  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·",
        "C007  bit  36  octet  4, 10",
        "1001  bit  57  octet  7, 02  shared with 3333",
        "3333  bit  57  octet  7, 02  shared with 1001",
        "2A9C  bit  26  octet  3, 04  Body Composition Measurement",
        "mask 00000004100000020000000000000000",
      ])
  }

  @Test func decode() async throws {
    let mask = "00000000100000020000000000000000"
    for spelling in [mask, "4C0001" + mask, "14ff4c0001" + mask, "02011A14FF4C0001" + mask, "4C 00 01 " + mask] {
      let end = try await Tool("overflow", "--decode", spelling, "c007", "C008", "3333", "--json").end()
      #expect(end.status == 0 && end.errors == "", "\(spelling)")
      let object = try #require(try end.objects().first)
      #expect(object["matches"] as? [String] == ["C007", "3333"] && object["mask"] as? String == mask)
    }
    let end = try await Tool("overflow", "--decode", mask, "C007", "C008").end()
    #expect(end.lines.contains { $0.hasPrefix("C007") && $0.contains("may be there") })
    #expect(end.lines.contains { $0.hasPrefix("C008") && $0.contains("not there") })
    #expect(end.lines.last == "2 of 128 bits are set; 1 of 2 match" && end.output.contains("○"))
    #expect(try await Tool("overflow", "--decode", mask).end().lines.last == "2 of 128 bits are set")
  }

  @Test(arguments: [
    ("xyz", "\"xyz\" is not hexadecimal"), ("123", "\"123\" is not hexadecimal"),
    ("", "0 octets are not an overflow area"), ("00", "1 octet is not an overflow area"),
    ("4C000100", "4 octets are not an overflow area"),
    ("4C000200000000100000020000000000000000", "19 octets are not an overflow area"),
    ("14FF4C000100000000100000020000000000", "18 octets are not an overflow area"),
  ])
  func wrongHex(hex: String, words: String) async throws {
    let end = try await Tool("overflow", "--decode", hex, "C007").end()
    #expect(end.status == 1 && end.output == "")
    #expect(end.errors.hasPrefix("Error: \(words): give --decode ") && end.errors.hasSuffix(".\n"), "\(end.errors)")
    #expect(end.errors.split(separator: "\n").count == 1)
  }

  @Test func usage() async throws {
    for (arguments, words) in [
      ([], "No service is given: write for example bindrune overflow 180D."),
      (["180"], "\"180\" is not a UUID: write 180D, or 128 bits as 12345678-9ABC-DEF0-1234-56789ABCDEF0."),
    ] {
      let end = try await Tool.run(["overflow"] + arguments)
      #expect(end.status == 64 && end.errors.hasPrefix("Error: ") && end.errors.contains(words), "\(end.errors)")
    }
    let help = try await Tool("overflow", "--help").end()
    #expect(
      help.status == 0 && help.output.contains("USAGE: bindrune overflow") && help.output.contains("--decode <hex>"))
  }
}
