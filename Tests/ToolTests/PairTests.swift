import BindruneWire
import Foundation
import BindruneGAP
import BindruneGATT
import BindruneSMP
import Synchronization
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneTool

/// A person who sees the other device: accepts everything, and notes the digits.
private final class Person: PairingAgent {
  let ioCapability: IOCapability
  let digits: AsyncStream<String>
  private let shown: AsyncStream<String>.Continuation
  init(_ ioCapability: IOCapability) {
    self.ioCapability = ioCapability
    (digits, shown) = AsyncStream.makeStream()
  }
  func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
    switch question {
    case .consent: return .consent
    case .compare(let number):
      shown.yield(PairingDigits(number).text)
      return .numbersMatch
    case .display(let number):
      shown.yield(PairingDigits(number).text)
      return nil
    case .enterPasskey, .keypress: return .refuse
    }
  }
  func next() async -> String? {
    for await text in digits { return text }
    return nil
  }
}

/// `bindrune pair`, and the verbs that pair by themselves, with a device of the test.
@Suite("Tool: pairing", .realTime, .hang) struct PairTests {
  /// A device whose FFE1 needs an encrypted link. `body` gets the first arguments that reach it.
  private func withDevice(
    _ ioCapability: IOCapability, _ configuration: HostConfiguration = HostConfiguration(),
    _ body: (_ device: [String], _ person: Person, _ host: BluetoothHost) async throws -> Void
  ) async throws {
    let air = try await Air()
    let (host, person) = try await device(on: air, ioCapability, configuration)
    try await body(["--hci", air.spec, "--name", "Lock"], person, host)
    await host.close()
    try await air.close()
  }
  private func device(
    on air: Air, _ ioCapability: IOCapability, _ configuration: HostConfiguration
  ) async throws -> (BluetoothHost, Person) {
    let person = Person(ioCapability)
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Lock")
    builder.service("FFE0") {
      $0.characteristic("FFE1", .read, value: [0x2A], permissions: AttributePermissions(read: .encrypted))
    }
    let host = BluetoothHost(
      air.radio.controller(), configuration: configuration, database: try builder.build(), agent: person)
    try await host.start()
    try await host.advertise(AdvertisingData(localName: "Lock"))
    return (host, person)
  }

  @Test func digitsAreComparedInAPipe() async throws {
    try await withDevice(.displayYesNo) { device, person, host in
      try await withFolder { folder in
        let path = folder.path + "/state/bonds"
        let arguments = device + ["--io", "yesno", "--mitm", "--sc-only", "--bonds", path]
        let end = try await Tool.shell(
          "echo yes | bindrune pair \(arguments.map { "'\($0)'" }.joined(separator: " "))"
        ).end()
        let digits = try #require(await person.next())
        #expect(end.status == 0 && end.errors == "", "\(end)")
        #expect(end.lines.first?.hasSuffix(" shows: \(digits)") == true, "\(end)")
        #expect(end.output.contains("Secure Connections, authenticated, 16 octets"))
        #expect(end.output.contains(path) && end.output.contains("`bindrune bonds remove "))
        let entries = try await BondFile(path: path).all().entries
        #expect(entries.map(\.bond.address) == [await host.ownAddress])
        #expect(entries.first?.bond.strength.isAuthenticated == true)
      }
    }
  }
  @Test func anotherAnswerThanYesRefuses() async throws {
    try await withDevice(.displayYesNo) { device, _, host in
      try await withFolder { folder in
        let arguments = device + ["--io", "yesno", "--bonds", folder.path + "/bonds"]
        let words = arguments.map { "'\($0)'" }.joined(separator: " ")
        // The end of the input is no consent.
        for input in ["echo no", "true", "echo maybe"] {
          let end = try await Tool.shell("\(input) | bindrune pair \(words)").end()
          #expect(end.status == 1 && end.errors.hasPrefix("Error: Could not pair with "), "\(end)")
          try await host.advertise(AdvertisingData(localName: "Lock"))
        }
        #expect(await host.bonds.isEmpty)
        #expect(try await BondFile(path: folder.path + "/bonds").all().entries.isEmpty)
      }
    }
  }
  @Test func thePasskeyIsTypedOnATerminal() async throws {
    try await withDevice(.displayOnly) { device, person, _ in
      try await withFolder { folder in
        let terminal = try Terminal(
          "pair", device[0], device[1], device[2], device[3], "--bonds", folder.path + "/bonds", columns: 100, rows: 24,
          isTyped: true)
        let digits = try #require(await person.next())
        _ = try await terminal.screen { $0.lines.last == "The digits:" }
        terminal.type("12\n")
        _ = try await terminal.screen { $0.lines.contains("Enter all six digits, or nothing to refuse.") }
        terminal.type("\(digits.prefix(3)) \(digits.suffix(3))\n")
        let end = await terminal.end()
        #expect(end.status == 0, "\(end.screen.lines)")
        #expect(end.screen.lines.contains { $0.hasSuffix(": Secure Connections, authenticated, 16 octets.") })
      }
    }
  }
  @Test func theDigitsAreLargeOnATerminal() async throws {
    try await withDevice(.displayYesNo) { device, person, _ in
      let terminal = try Terminal(
        "pair", device[0], device[1], device[2], device[3], "--no-bond", columns: 100, rows: 24, isTyped: true)
      let digits = try #require(await person.next())
      let number = try #require(PairingDigits(digits))
      let screen = try await terminal.screen { $0.lines.last == "Are they the same? yes or no:" }
      #expect(screen.lines.contains("  " + number.spaced), "\(screen.lines)")
      for line in number.picture { #expect(screen.lines.contains("  \(line)".withoutEnd), "\(line)") }
      terminal.type("yes\n")
      let end = await terminal.end()
      #expect(end.status == 0 && end.screen.lines.last == "No bond is stored: the keys end with this link.")
    }
  }
  private func text(_ data: PeersOutOfBandData) -> String {
    data.structures.flatMap(\.octets).map { hexDigits(UInt64($0), 2) }.joined(separator: " ")
  }
  /// The device's data from its tag: both methods, and data of another device. Vol 3, Part H, §2.3.5.4, §2.3.5.6.4.
  @Test func theDeviceHasATag() async throws {
    var chance = SplitMix64(seed: 1)
    let own = OwnOutOfBandData(using: &chance), other = OwnOutOfBandData(using: &chance)
    let key = PeersOutOfBandData.legacy(.random(using: &chance))
    var modern = HostConfiguration(), legacy = HostConfiguration()
    modern.pairing.ownData = own
    legacy.pairing.secureConnections = .off
    legacy.pairing.peersData = key
    for (configuration, data, status, words) in [
      (modern, own.forPeer, 0, "Secure Connections, authenticated, 16 octets"),
      (modern, other.forPeer, 1, "Could not pair with "), (legacy, key, 0, "legacy, authenticated, 16 octets"),
      (HostConfiguration(), key, 1, "Could not pair with "),
    ] as [(HostConfiguration, PeersOutOfBandData, Int32, String)] {
      try await withDevice(.noInputNoOutput, configuration) { device, _, host in
        try await withFolder { folder in
          let path = folder.path + "/tag.txt"
          try text(data).write(toFile: path, atomically: true, encoding: .utf8)
          let end = try await Tool.run(["pair"] + device + ["--oob", path, "--no-bond"])
          #expect(end.status == status && (end.output + end.errors).contains(words), "\(end)")
        }
      }
    }
  }
  /// A device with a private address reveals its identity address without a key that proves it: its bond has another
  /// address than the link, and is stored.
  @Test func anIdentityAddressWithoutAKey() async throws {
    var configuration = HostConfiguration()
    configuration.addressPolicy = .resolvable(IdentityResolvingKey(0))
    try await withDevice(.noInputNoOutput, configuration) { device, _, host in
      try await withFolder { folder in
        let path = folder.path + "/bonds"
        let end = try await Tool.run(["pair"] + device + ["--bonds", path])
        #expect(end.status == 0, "\(end)")
        let identity = await host.identityAddress
        #expect(end.output.contains("\(identity)"), "\(end)")
        #expect(try await BondFile(path: path).all().entries.map(\.bond.address) == [identity])
      }
    }
  }
  /// Our data for the device: it gets them while the tool waits.
  @Test func theToolHasData() async throws {
    let air = try await Air()
    try await withFolder { folder in
      let path = folder.path + "/own.txt"
      let terminal = try Terminal(
        "pair", "--hci", air.spec, "--name", "Lock", "--no-bond", "--oob-own", path, columns: 100, rows: 24,
        isTyped: true)
      _ = try await terminal.screen { $0.lines.contains { $0.hasSuffix("press Return.") } }
      let octets = try #require(HexOctets(argument: try String(contentsOfFile: path, encoding: .utf8))).octets
      let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
      #expect(mode == 0o600)
      var configuration = HostConfiguration()
      configuration.pairing.peersData = PeersOutOfBandData(AdvertisingData(decoding: octets.span))
      #expect(configuration.pairing.peersData != nil)
      let (host, _) = try await device(on: air, .noInputNoOutput, configuration)
      terminal.type("\n")
      let end = await terminal.end()
      #expect(end.status == 0, "\(end.screen.lines)")
      #expect(end.screen.lines.contains { $0.hasSuffix(": Secure Connections, authenticated, 16 octets.") })
      await host.close()
      // The name is taken now.
      expectSentence(try await Tool.run(["pair", "--hci", "sim", "--name", "x", "--oob-own", path]), "File exists")
    }
    try await air.close()
  }
  @Test func badOutOfBandData() async throws {
    try await withFolder { folder in
      let path = folder.path + "/tag.txt"
      func run() async throws -> Tool.End {
        try await Tool.run(["pair", "--hci", "sim", "--name", "Virtual*", "--oob", path])
      }
      expectSentence(try await run(), "cannot be read")
      for text in [
        "", "hello", "10 10 \(String(repeating: "00", count: 14))", "11 22 \(String(repeating: "00", count: 16))",
      ] {
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        expectSentence(try await run(), "has no out of band data")
      }
    }
  }
  @Test func theShellAsksAtItsPrompt() async throws {
    try await withDevice(.displayYesNo) { device, person, _ in
      try await withFolder { folder in
        let terminal = try Terminal(
          "shell", device[0], device[1], device[2], device[3], "--bonds", folder.path + "/bonds", columns: 100,
          rows: 24,
          isTyped: true)
        _ = try await terminal.screen { $0.lines.last == "Lock>" && $0.marksPastes }
        terminal.type("read FFE1\r")
        let digits = try #require(await person.next())
        let screen = try await terminal.screen { $0.lines.last == "Are they the same? yes or no:" }
        #expect(screen.lines.contains("  \(digits.prefix(3)) \(digits.suffix(3))"), "\(screen.lines)")
        terminal.type("yes\r")
        _ = try await terminal.screen {
          $0.lines.contains("2A") || $0.lines.contains("\"*\"") || $0.lines.contains("*")
        }
        terminal.type("\u{4}")
        #expect(await terminal.end().status == 0)
      }
    }
  }
  @Test func readPairsByItsAgent() async throws {
    try await withDevice(.displayYesNo) { device, person, host in
      try await withFolder { folder in
        func read(_ agent: String) async throws -> Tool.End {
          let end = try await Tool.run(
            ["read"] + device + ["--format", "hex", "--agent", agent, "--bonds", folder.path + "/bonds", "FFE1"])
          // The next program has the same address: without a bond it pairs again.
          for bond in await host.bonds { await host.removeBond(with: bond.peer) }
          try? FileManager.default.removeItem(atPath: folder.path + "/bonds")
          try await host.advertise(AdvertisingData(localName: "Lock"))
          return end
        }
        expectSentence(try await read("refuse"), "Insufficient", status: 4)
        #expect(try await read("accept").lines == ["2A"])
        let asked = folder.path + "/asked"
        let compared = try await read(
          "echo \"$BINDRUNE_QUESTION $BINDRUNE_DIGITS\" >>'\(asked)'; test $BINDRUNE_QUESTION = compare && echo yes")
        #expect(compared.lines == ["2A"], "\(compared)")
        let digits = try #require(await person.next())
        #expect(try String(contentsOfFile: asked, encoding: .utf8).hasPrefix("compare \(digits)\n"))
        let failed = try await read("echo yes; exit 7")
        #expect(failed.status == 4 && failed.errors.contains("it ended with status 7"), "\(failed)")
      }
    }
  }
  @Test func contradictions() async throws {
    for arguments in [
      ["--mitm"], ["--io", "none", "--mitm"], ["--io", "yesno", "--agent", "accept"], ["--no-bond", "--bonds", "x"],
    ] {
      let end = try await Tool.run(["pair", "--hci", "sim", "--name", "Virtual*"] + arguments)
      #expect(end.status == 64 && end.output == "", "\(arguments): \(end)")
    }
    let just = try await Tool.run(["pair", "--hci", "sim", "--name", "Virtual*", "--json"])
    let object = try #require(try just.objects().last)
    #expect(object["encrypted"] as? Bool == true && object["authenticated"] as? Bool == false)
    #expect(object["keySize"] as? Int == 16 && object["bonds"] is NSNull)
  }

  @Test(arguments: [("012345", 12345), ("000 000", 0), (" 999999 ", 999_999)])
  func digits(text: String, number: UInt32) throws {
    #expect(try #require(PairingDigits(text)).number == number)
  }
  @Test(arguments: ["", "12345", "1234567", "12345x", "-12345", "１２３４５６"]) func noDigits(text: String) {
    #expect(PairingDigits(text) == nil)
  }
  @Test func digitsHaveTheirShapes() {
    let picture = PairingDigits(170_000).picture
    #expect(picture.first == "  ██    ██████  ██████     ██████  ██████  ██████")
    #expect(picture.last == "██████      ██  ██████     ██████  ██████  ██████")
    #expect(picture.allSatisfy { $0.count == 49 } && PairingDigits(7).spaced == "000 007")
  }
}
extension String {
  /// As a screen has it, without blanks at the right.
  fileprivate var withoutEnd: String { String(reversed().drop { $0 == " " }.reversed()) }
}
