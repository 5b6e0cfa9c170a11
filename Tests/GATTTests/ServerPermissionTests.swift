import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// The order of errors (`Server`), on every path that reads or writes. Vol 3, Part F, §3.4.4, §3.4.5; Vol 3, Part C,
/// §10.3.1.
@Suite struct ServerPermissionTests {
  /// A client's security, and its error for a value that requires everything: an authenticated key of 16 octets and
  /// authorization. `nil`: it gets the value.
  struct Client: Sendable, CustomStringConvertible {
    var security: BearerSecurity
    var keySize = 16
    var isAuthorized = true
    var error: UInt8?
    var description: String { "\(security), \(keySize) octets, authorized: \(isAuthorized)" }
  }
  static let clients = [
    Client(security: .none, isAuthorized: false, error: 0x08),
    Client(security: .authenticated, keySize: 7, isAuthorized: false, error: 0x08),
    Client(security: .none, error: 0x05), Client(security: .keysAvailable, error: 0x0F),
    Client(security: .keysAvailable, keySize: 7, error: 0x0F),
    Client(security: .encrypted, error: 0x05), Client(security: .encrypted, keySize: 7, error: 0x05),
    Client(security: .authenticated, keySize: 15, error: 0x0C), Client(security: .authenticated),
  ]
  static let all = AttributePermissions.Access.authenticated.withKey(of: 16).withAuthorization

  /// 0003: protected in both directions; 0005: dynamic, the same; 0007: nothing permitted; 0008: a protected
  /// configuration.
  private func tester(_ client: Client) throws -> ServerUnderTest {
    var builder = DatabaseBuilder()
    builder.service("AA00") { service in
      let permissions = AttributePermissions(read: Self.all, write: Self.all)
      service.characteristic("AA01", [.read, .write], value: .fixed([7]), permissions: permissions)
      service.characteristic("AA02", [.read, .write], value: .dynamic, permissions: permissions)
      service.characteristic("AA03", .notify, value: .fixed([7]), configuring: Self.all)
    }
    let tester = ServerUnderTest(try builder.build())
    tester.server.setSecurity(client.security, keySize: client.keySize, of: tester.bearer)
    tester.server.setAuthorized(client.isAuthorized, of: tester.bearer)
    return tester
  }

  @Test(arguments: clients) func everyPath(_ client: Client) throws {
    let tester = try tester(client)
    // Request, response to an authorized client, handle in error.
    for (request, response, handle) in [
      ("0A 03 00", "0B 07", "03 00"), ("0C 03 00 00 00", "0D 07", "03 00"),
      ("0E 02 00 03 00", "0F 0A 03 00 01 AA 07", "03 00"),
      ("20 03 00 01 00", "21 01 00 07 02 00 00 AA", "03 00"), ("08 01 00 FF FF 01 AA", "09 03 03 00 07", "03 00"),
      ("12 03 00 07", "13", "03 00"), ("16 03 00 00 00 07", "17 03 00 00 00 07", "03 00"), ("0A 05 00", later, "05 00"),
      ("0E 02 00 05 00", later, "05 00"), ("08 01 00 FF FF 02 AA", later, "05 00"), ("12 05 00 01", later, "05 00"),
      ("12 08 00 01 00", "13", "08 00"),
    ] {
      let expected = client.error.map { "01 \(request.prefix(2)) \(handle) \(hex([$0]))" } ?? response
      #expect(tester.ask(request) == expected, "\(request)")
    }
    // A value that may not be read is not compared, and causes no error: §3.4.3.3.
    #expect(tester.ask("06 01 00 FF FF 01 AA 07") == (client.error == nil ? "07 03 00 03 00" : "01 06 01 00 0A"))
    // Types need no permission: §3.4.3.1.
    #expect(tester.ask("04 03 00 03 00") == "05 01 03 00 01 AA")
    _ = tester.effectTexts()
    tester.command("52 03 00 09")
    #expect((tester.effectTexts() == ["1 wrote 0x0003+0: 09"]) == (client.error == nil))
    tester.command("52 05 00 09")
    #expect((tester.effectTexts() == ["1 wrote 0x0005+0: 09"]) == (client.error == nil))
  }

  /// An invalid handle comes first, then "not permitted", then errors that the client could remedy; offset and length
  /// come last.
  @Test(arguments: clients) func orderOfErrors(_ client: Client) throws {
    let tester = try tester(client), error = client.error
    #expect(tester.ask("0A 07 00") == "01 0A 07 00 02" && tester.ask("12 07 00 01") == "01 12 07 00 03")
    #expect(tester.ask("0A 09 00") == "01 0A 09 00 01")
    #expect(tester.ask("0C 03 00 02 00") == "01 0C 03 00 " + hex([error ?? 0x07]))
    #expect(tester.ask("12 03 00 01 02") == "01 12 03 00 " + hex([error ?? 0x0D]))
    #expect(tester.ask("12 08 00 02 00") == "01 12 08 00 " + hex([error ?? 0xFD]))
    #expect(tester.ask("12 08 00 02 00 00") == "01 12 08 00 " + hex([error ?? 0x0D]))
    #expect(tester.ask("0A 03") == "01 0A 00 00 04")
    if error != nil { return }
    // Both offset and length are wrong: offset first.
    #expect(tester.ask("16 03 00 02 00 01") == "17 03 00 02 00 01" && tester.ask("18 01") == "01 18 03 00 07")
    #expect(tester.ask("16 03 00 01 00 01") == "17 03 00 01 00 01" && tester.ask("18 01") == "01 18 03 00 0D")
  }

  /// Writes prepared while the link was protected are not executed when it no longer is.
  @Test func securityLostBetweenPrepareAndExecute() throws {
    let tester = try tester(Client(security: .authenticated))
    #expect(tester.ask("16 03 00 00 00 09") == "17 03 00 00 00 09")
    tester.server.setSecurity(.keysAvailable, of: tester.bearer)
    #expect(tester.ask("18 01") == "01 18 03 00 0F")
    #expect(tester.server.database.value(handle(3)) == [7])
    tester.server.setSecurity(.authenticated, of: tester.bearer)
    #expect(tester.ask("18 01") == "19" && tester.server.database.value(handle(3)) == [7])
  }

  @Test func access() {
    let access = AttributePermissions.Access.open.withKey(of: 12)
    #expect(access == .encrypted.withKey(of: 12) && access.leastKeySize == 12 && !access.needsAuthorization)
    #expect(AttributePermissions.Access.encrypted.leastKeySize == 1)
    #expect(Self.all.needsAuthentication && Self.all.needsEncryption && Self.all.leastKeySize == 16)
    #expect(AttributePermissions.Access.open.withAuthorization.needsAuthorization)
    #expect(!AttributePermissions.Access.none.withAuthorization.isPermitted)
    let kinds: [AttributePermissions.Access] = [.none, .open, .encrypted, .authenticated]
    #expect(kinds.map(\.isPermitted) == [false, true, true, true])
    #expect(kinds.map(\.needsEncryption) == [false, false, true, true])
    #expect(kinds.map(\.needsAuthentication) == [false, false, false, true])
  }

  /// S131: the service can be discovered, and every value and descriptor of it answers with 0x0E, whatever the client
  /// may do.
  @Test(arguments: clients) func aDisabledService(_ client: Client) throws {
    let tester = try tester(client)
    let before = (tester.server.database.hash, tester.ask("08 01 00 FF FF 03 28"), tester.ask("04 01 00 FF FF"))
    let answers = ["0A 03 00", "0A 07 00", "12 08 00 01 00", "12 03 00 07"].map { tester.ask($0) }
    tester.server.setEnabled(false, service: handle(1))
    for request in [
      "0A 03 00", "0A 05 00", "0A 07 00", "0A 08 00", "0C 03 00 00 00", "12 03 00 07", "12 05 00 01", "12 08 00 01 00",
      "16 03 00 00 00 07", "08 01 00 FF FF 01 AA",
    ] {
      // 0x0E names no attribute: §3.3.
      #expect(tester.ask(request) == "01 \(request.prefix(2)) 00 00 0E", "\(request)")
    }
    let after = (tester.server.database.hash, tester.ask("08 01 00 FF FF 03 28"), tester.ask("04 01 00 FF FF"))
    #expect(before == after)
    // Twice changes nothing; a removed service leaves nothing behind.
    tester.server.setEnabled(false, service: handle(1))
    tester.server.setEnabled(true, service: handle(1))
    #expect(["0A 03 00", "0A 07 00", "12 08 00 01 00", "12 03 00 07"].map { tester.ask($0) } == answers)
    tester.server.setEnabled(false, service: handle(2))
    #expect(tester.ask("0A 07 00") == answers[1])
  }
}
