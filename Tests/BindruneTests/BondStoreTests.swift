import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneSMP
import TestSupport
import Testing

@testable import Bindrune

/// The order of bonds, their number, and their text.
@Suite struct BondStoreTests {
  static let adapter = PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random)
  static let other = PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .public)
  static func bond(_ number: UInt64, counter: UInt32 = 0, isAuthenticated: Bool = true) -> Bond {
    let address = PeerAddress(DeviceAddress(0xF000_0000_0000 | number), .random)
    var bond = Bond(
      peer: PeerID(address), address: address,
      strength: KeyStrength(isAuthenticated: isAuthenticated, isSecureConnections: true), ours: DistributedKeys(),
      peers: DistributedKeys())
    bond.ourSignCounter = counter
    return bond
  }

  @Test func theLongestUnusedIsForgotten() async throws {
    let store: any BondStore = MemoryBondStore(capacity: 3)
    for number: UInt64 in 0..<3 {
      #expect(try await store.save(Self.bond(number), of: Self.adapter) == [])
      #expect(try await store.save(Self.bond(number), of: Self.other) == [])
    }
    // A bond that is stored again is used again.
    #expect(try await store.save(Self.bond(0, counter: 9), of: Self.adapter) == [])
    #expect(try await store.save(Self.bond(3), of: Self.adapter) == [Self.bond(1).peer])
    var bonds = try await store.bonds(of: Self.adapter)
    #expect(bonds == [Self.bond(2), Self.bond(0, counter: 9), Self.bond(3)])
    try await store.remove(Self.bond(2).peer, of: Self.adapter)
    try await store.remove(Self.bond(7).peer, of: Self.adapter)
    bonds = try await store.bonds(of: Self.adapter)
    #expect(bonds == [Self.bond(0, counter: 9), Self.bond(3)])
    // The other adapter's are its own.
    bonds = try await store.bonds(of: Self.other)
    #expect(bonds == [Self.bond(0), Self.bond(1), Self.bond(2)])
  }

  /// Bonds without authentication go first, whatever their place; one of them never takes the place of one with it.
  @Test func authenticatedBondsStay() async throws {
    let store: any BondStore = MemoryBondStore(capacity: 3)
    for (number, isAuthenticated) in [true, false, true].enumerated() {
      let bond = Self.bond(UInt64(number), isAuthenticated: isAuthenticated)
      #expect(try await store.save(bond, of: Self.adapter) == [])
    }
    #expect(try await store.save(Self.bond(3, isAuthenticated: false), of: Self.adapter) == [Self.bond(1).peer])
    #expect(try await store.save(Self.bond(4), of: Self.adapter) == [Self.bond(3).peer])
    // The new one itself.
    #expect(try await store.save(Self.bond(5, isAuthenticated: false), of: Self.adapter) == [Self.bond(5).peer])
    #expect(try await store.save(Self.bond(6), of: Self.adapter) == [Self.bond(0).peer])
    let bonds = try await store.bonds(of: Self.adapter)
    #expect(bonds == [Self.bond(2), Self.bond(4), Self.bond(6)])
  }

  // MARK: The text

  private func randomList(_ count: Int, _ chance: inout SplitMix64) -> BondList {
    var list = BondList()
    for number in 0..<count {
      _ = list.change(
        BondChange(number.isMultiple(of: 2) ? Self.adapter : Self.other, .random(using: &chance)), capacity: 128)
    }
    return list
  }

  /// RFC 1952's check sum of "123456789", as zlib's crc32 computes it.
  @Test func theCheckSum() { #expect(crc32("123456789".utf8) == 0xCBF4_3926) }

  /// Stored files must be readable for ever. The check sum is Python's zlib.crc32 of the lines before it.
  @Test func theTextStays() throws {
    var list = BondList()
    _ = list.change(BondChange(Self.adapter, Self.bond(1, counter: 2)), capacity: 128)
    let record = "010100000000F0010100000000F001010110020000000000000000"
    let text = """
      bindrune-bonds 1
      C0:FF:EE:00:00:01/random F0:00:00:00:00:01/random \(record)
      crc32 D8B10E5C

      """
    #expect(String(decoding: list.text, as: UTF8.self) == text)
    #expect(try BondList(text: Array(text.utf8)) == list)
    #expect(try BondList(text: BondList().text) == BondList())
  }

  @Test func randomListsComeBack() throws {
    var chance = SplitMix64(seed: Fuzz.seed)
    for count in 0..<12 {
      let list = randomList(count, &chance)
      #expect(try BondList(text: list.text) == list)
    }
  }

  /// A flipped bit at any place, any part from the beginning, and an added octet are noticed.
  @Test func damageIsNoticed() {
    var chance = SplitMix64(seed: Fuzz.seed)
    var bond = Bond.random(using: &chance), list = BondList()
    bond.client = [1, 2, 3]
    _ = list.change(BondChange(Self.adapter, bond), capacity: 128)
    let text = list.text
    for index in text.indices {
      var flipped = text
      flipped[index] ^= 1 << UInt8.random(in: 0...7, using: &chance)
      #expect(throws: BondTextError.self, "flipped at \(index)") { _ = try BondList(text: flipped) }
      let part = Array(text[..<index])
      #expect(throws: errorOfPart(part)) { _ = try BondList(text: part) }
    }
    #expect(throws: BondTextError.self) { _ = try BondList(text: text + [UInt8(ascii: "\n")]) }
    #expect(throws: BondTextError.self) { _ = try BondList(text: text + text) }
  }
  private func errorOfPart(_ part: [UInt8]) -> BondTextError {
    switch part.count {
    case 0: .damaged("it is empty")
    case 1..<"bindrune-bonds ".utf8.count: .foreign
    default: .damaged("it is cut short")
    }
  }

  /// Lines that do not fit, with a right check sum.
  @Test(arguments: [
    ("C0:FF:EE:00:00:01/random F0:00:00:00:00:01/random", "line 2 has not three parts"),
    ("C0:FF:EE:00:00:1/random F0:00:00:00:00:01/random 00", "line 2 does not begin with an address"),
    ("C0:FF:EE:00:00:01 F0:00:00:00:00:01/random 00", "line 2 does not begin with an address"),
    ("C0:FF:EE:00:00:01/random F0:00:00:00:00:01/random 0", "line 2 does not end with octets"),
    ("C0:FF:EE:00:00:01/random F0:00:00:00:00:01/random 0g", "line 2 does not end with octets"),
    ("C0:FF:EE:00:00:01/random F0:00:00:00:00:01/random 02", "line 2 has a bad record (unknown \"Format\": 0x02)"),
    ("C0:FF:EE:00:00:01/random F0:00:00:00:00:02/random RECORD", "line 2 names another peer than its record"),
    ("LINE\nLINE", "line 3 is a second bond with that peer"), ("LINE\n", "line 3 has not three parts"),
  ]) func aWrongLineIsNamed(lines: String, words: String) throws {
    let record = Self.bond(1).octets.map { hexDigits(UInt64($0), 2) }.joined()
    let lines =
      lines.replacing("LINE", with: "C0:FF:EE:00:00:01/random F0:00:00:00:00:01/random RECORD")
      .replacing("RECORD", with: record)
    let text = "bindrune-bonds 1\n\(lines)\n"
    let whole = Array("\(text)crc32 \(hexDigits(UInt64(crc32(text.utf8)), 8))\n".utf8)
    #expect(throws: BondTextError.damaged("its " + words)) { _ = try BondList(text: whole) }
  }

  @Test(
    arguments: [
      ("bindrune-bonds 2", .damaged("it is cut short")), ("bindrune-bonds 2\nanything", .otherFormat("2")),
      ("bindrune-bonds x\n", .damaged("its first line has no number")),
      ("bindrune-bonds 1\n", .damaged("it is cut short")), ("\0\0\0\0", .damaged("it is empty")),
      ("alias ll='ls -l'\n", .foreign), ("bindrune-gatt 1\n", .foreign),
    ] as [(String, BondTextError)]) func otherTexts(text: String, error: BondTextError)
  {
    #expect(throws: error) { _ = try BondList(text: Array(text.utf8)) }
  }

  @Test func theDefaultPath() throws {
    func path(_ isRoot: Bool, _ variables: [String: String]) throws(BluetoothError) -> String {
      try BondFile.defaultPath(isRoot: isRoot) { variables[$0] }
    }
    let home = ["HOME": "/home/x"], state = ["HOME": "/home/x", "XDG_STATE_HOME": "/state"]
    #expect(try path(false, home) == "/home/x/.local/state/bindrune/bonds")
    #expect(try path(false, state) == "/state/bindrune/bonds")
    #expect(try path(false, ["HOME": "/home/x", "XDG_STATE_HOME": "state"]) == "/home/x/.local/state/bindrune/bonds")
    #expect(try path(true, state) == "/var/lib/bindrune/bonds")
    #expect(try path(true, ["BINDRUNE_BONDS": "here", "HOME": "/root"]) == "here")
    #expect(try path(false, ["BINDRUNE_BONDS": "", "HOME": "/home/x"]) == "/home/x/.local/state/bindrune/bonds")
    let error = #expect(throws: BluetoothError.self) { _ = try path(false, [:]) }
    #expect(error?.code == .storage && error?.description.contains("BINDRUNE_BONDS") == true)
  }
}
