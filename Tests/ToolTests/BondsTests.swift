import Bindrune
import BindruneToolbox
import BindruneWire
import Foundation
import BindruneGAP
import BindruneSMP
import TestSupport
import Testing

/// `bindrune bonds`: what is shown of stored bonds, and that no key is.
@Suite("Tool: bonds", .realTime, .hang) struct BondsTests {
  private static let adapter = PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random)
  private static let device = PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .random)
  private static let other = PeerAddress(DeviceAddress(0x0011_2233_4455), .public)

  /// A file with two bonds, whose keys are A7 A7 …
  private func withBonds(_ body: (_ file: BondFile) async throws -> Void) async throws {
    try await withFolder { folder in
      let file = BondFile(path: folder.path + "/state/bonds")
      var keys = DistributedKeys()
      let secret = SecurityKey((0..<16).reduce(0) { sum, _ in sum << 8 | 0xA7 })
      (keys.longTermKey, keys.irk, keys.csrk) = (LongTermKey(key: secret), secret, secret)
      for (address, isAuthenticated) in [(Self.other, false), (Self.device, true)] {
        let strength = KeyStrength(isAuthenticated: isAuthenticated, isSecureConnections: isAuthenticated)
        let bond = Bond(
          peer: PeerID(address), address: address, strength: strength, ours: keys, peers: DistributedKeys())
        try await file.save(bond, of: Self.adapter)
      }
      try await body(file)
    }
  }

  @Test func theListAndTheDetails() async throws {
    try await withBonds { file in
      let list = try await Tool("bonds", "list", "--bonds", file.path).end()
      #expect(list.status == 0 && list.errors == "", "\(list.errors)")
      #expect(
        list.lines == [
          "adapter C0:FF:EE:00:00:01/random", "  00:11:22:33:44:55/public  legacy, unauthenticated, 16 octets",
          "  F0:F1:F2:F3:F4:F5/random  Secure Connections, authenticated, 16 octets",
        ])
      let show = try await Tool("bonds", "show", "F0:F1:F2:F3:F4:F5", "--bonds", file.path).end()
      #expect(show.status == 0 && show.lines.first == "F0:F1:F2:F3:F4:F5/random", "\(show)")
      #expect(show.lines.contains("  our keys        Long Term Key, Identity Resolving Key, Signature Key"))
      #expect(show.lines.contains("  its keys        none"))
      let json = try await Tool("bonds", "list", "--json", "--bonds", file.path).end()
      let objects = try json.objects()
      #expect(objects.map { $0["address"] as? String } == ["00:11:22:33:44:55/public", "F0:F1:F2:F3:F4:F5/random"])
      #expect(objects.last?["secureConnections"] as? Bool == true && objects.last?["keySize"] as? Int == 16)
      for text in [list.output, show.output, json.output] { #expect(!text.uppercased().contains("A7A7")) }
    }
  }

  @Test func oneIsRemoved() async throws {
    try await withBonds { file in
      let missing = try await Tool("bonds", "remove", "F0:F1:F2:F3:F4:F5/public", "--bonds", file.path).end()
      expectSentence(missing, "There is no bond with F0:F1:F2:F3:F4:F5 in \(file.path)")
      let removed = try await Tool("bonds", "remove", "f0:f1:f2:f3:f4:f5/random", "--bonds", file.path).end()
      #expect(removed.status == 0 && removed.lines == ["removed \(Self.device) of adapter \(Self.adapter)"])
      #expect(try await BondFile(path: file.path).bonds(of: Self.adapter).map(\.address) == [Self.other])
    }
  }

  @Test func aCopyComesBack() async throws {
    try await withBonds { file in
      let copy = file.path + "-copy", next = file.path + "-next"
      expectSentence(
        try await Tool("bonds", "export", file.path + "/none/copy", "--bonds", file.path).end(), "cannot be written")
      let refused = try await Tool("bonds", "export", "--bonds", file.path).end()
      #expect(refused.status == 64 && refused.output == "" && refused.errors.contains("--with-keys"))
      let made = try await Tool("bonds", "export", copy, "--bonds", file.path).end()
      #expect(made.status == 0 && made.lines == ["2 bonds and their keys are in \(copy)"])
      #expect(try FileManager.default.attributesOfItem(atPath: copy)[.posixPermissions] as? Int == 0o600)
      expectSentence(
        try await Tool("bonds", "export", copy, "--bonds", file.path).end(), "cannot be written, File exists")
      let printed = try await Tool("bonds", "export", "--with-keys", "--bonds", file.path).end()
      #expect(try printed.output == String(contentsOfFile: copy, encoding: .utf8))
      let back = try await Tool("bonds", "import", copy, "--bonds", next).end()
      #expect(back.status == 0 && back.lines.count == 2, "\(back)")
      let bonds = try await file.bonds(of: Self.adapter)
      #expect(try await BondFile(path: next).bonds(of: Self.adapter) == bonds)
      // Nothing is stored of a file with one wrong digit.
      let damaged = printed.output.replacing("A7", with: "A6", maxReplacements: 1)
      try Data(damaged.utf8).write(to: URL(filePath: copy))
      let wrong = try await Tool("bonds", "import", copy, "--bonds", next + "2").end()
      expectSentence(wrong, "is damaged: its checksum is wrong: nothing was stored")
      #expect(!FileManager.default.fileExists(atPath: next + "2"))
    }
  }

  @Test func whatIsWrongIsSaid() async throws {
    try await withBonds { file in
      try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: file.path)
      let open = try await Tool.shell("BINDRUNE_BONDS='\(file.path)' bindrune bonds list").end()
      #expect(open.status == 0 && open.lines.count == 3)
      #expect(open.errors.contains("Warning: Other users may read the keys in \(file.path)"), "\(open.errors)")
      try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file.path)
      try Data("bindrune-bonds 2\n".utf8).write(to: URL(filePath: file.path))
      let newer = try await Tool("bonds", "list", "--bonds", file.path).end()
      expectSentence(newer, "format 2. It is now \(file.path).damaged-1")
      let none = try await Tool("bonds", "list", "--bonds", file.path).end()
      #expect(none.status == 0 && none.lines == ["There are no bonds in \(file.path)."])
    }
  }
}
