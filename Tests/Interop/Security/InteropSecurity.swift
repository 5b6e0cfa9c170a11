import Bindrune
import GATT
import Glibc
import SMP

/// A host that pairs with `../peer_security.py`, in either role.
///
///     InteropSecurity tcp:127.0.0.1:9000 central|peripheral METHOD DIGITS
///
/// METHOD: `jw`, `nc`, `passkey` (the peer displays 123456), `entry` (the peer enters what this host writes into the file
/// DIGITS). As central it prints a line per check, status 0 when all passed; as peripheral it serves until it is killed.
@main
struct InteropSecurity {
  static func main() async {
    let arguments = CommandLine.arguments
    guard arguments.count == 5, let agent = User(arguments[3], digits: arguments[4]) else {
      print("usage: InteropSecurity tcp:HOST:PORT central|peripheral jw|nc|passkey|entry DIGITS")
      exit(2)
    }
    do {
      let host = try await BluetoothHost.open(arguments[1], database: try database(), agent: agent)
      if arguments[2] == "central" {
        let failures = try await central(host, isAuthenticated: arguments[3] != "jw")
        await host.close()
        exit(failures == 0 ? 0 : 1)
      }
      try await host.advertise(AdvertisingData(localName: "InteropPeer", serviceUUIDs: ["180D"]))
      print("ready")
      fflush(nil)
      for try await event in await host.events {
        // The peer connects twice.
        if case .disconnected = event {
          try await host.advertise(AdvertisingData(localName: "InteropPeer", serviceUUIDs: ["180D"]))
        }
      }
    } catch {
      print("FAIL completed: got \(error) want the end")
      exit(1)
    }
  }

  static func uuid(_ number: UInt64) -> BluetoothUUID {
    .long(low: 0x8E5C_6F0E_5F1A_0C00, high: 0xA0B1_0000_1D1D_4BBD | number << 32)
  }
  static func database() throws -> Database {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "InteropPeer")
    builder.service(uuid(0)) { service in
      service.characteristic(
        uuid(7), .read, value: .text("secret"), permissions: AttributePermissions(read: .encrypted))
      service.characteristic(
        uuid(8), .read, value: .text("mitm-secret"), permissions: AttributePermissions(read: .authenticated))
    }
    return try builder.build()
  }

  /// Returns how many checks have failed.
  static func central(_ host: BluetoothHost, isAuthenticated: Bool) async throws -> Int {
    var failures = 0
    func check<Value: Equatable>(_ name: String, _ got: Value, _ want: Value) {
      if got == want { return print("ok  \(name)") }
      failures += 1
      print("FAIL \(name): got \(got) want \(want)")
    }
    var peer: PeerAddress?
    for try await advertisement in host.scan() where advertisement.name == "InteropPeer" {
      peer = advertisement.address
      break
    }
    guard let peer else { throw BluetoothError(.connectionFailed, "The scan has ended.") }
    for round in ["", "bond: "] {
      let link = try await host.connect(to: peer)
      let database = try await link.discoverAll()
      guard let encrypted = database.characteristic(uuid(7)), let authenticated = database.characteristic(uuid(8))
      else {
        throw BluetoothError(.invalidArgument, "The peer has another database.")
      }
      // What needs security gets it, by itself.
      check("\(round)encrypted value", try await link.read(encrypted), Array("secret".utf8))
      let security = await link.security
      check("\(round)security", security.isEncrypted && security.isBonded, true)
      check("\(round)authenticated", security.isAuthenticated, isAuthenticated)
      // Bumble's server gives it to any encrypted link: PEERS.md.
      if isAuthenticated {
        check("\(round)authenticated value", try await link.read(authenticated), Array("mitm-secret".utf8))
      }
      check("\(round)bonds", await host.bonds.count, 1)
      try await link.disconnect()
      try await Task.sleep(for: .milliseconds(300))
    }
    return failures
  }
}

/// Who looks at both devices.
struct User: PairingAgent {
  let ioCapability: IOCapability
  let digits: String
  init?(_ method: String, digits: String) {
    switch method {
    case "jw": ioCapability = .noInputNoOutput
    case "nc": ioCapability = .displayYesNo
    case "passkey": ioCapability = .keyboardOnly
    case "entry": ioCapability = .displayOnly
    default: return nil
    }
    self.digits = digits
  }
  func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
    switch question {
    case .consent: return .consent
    case .enterPasskey: return .passkey(123_456)
    case .compare(let number):
      show(number)
      return .numbersMatch
    case .display(let number): show(number)
    case .keypress: break
    }
    return nil
  }
  private func show(_ number: UInt32) {
    guard let file = unsafe fopen(digits, "w") else { return }
    unsafe fputs("\(number)\n", file)
    unsafe fclose(file)
  }
}
