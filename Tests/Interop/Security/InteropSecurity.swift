import Bindrune
import BindruneGATT
import Glibc
import BindruneSMP
import Synchronization

/// A host that pairs with `../peer_security.py`, in either role.
///
///     InteropSecurity tcp:127.0.0.1:9000 central|peripheral METHOD DIGITS [private | bearers]
///
/// METHOD: `jw`, `nc`, `passkey` (the peer displays 123456), `entry` (the peer enters what this host writes into the
/// file DIGITS). As central it prints a line per check, status 0 when all passed; as peripheral it serves until it is
/// killed. `private`: the peer uses a resolvable private address, another one for each of its two links, and
/// distributes its IRK; as peripheral the host then checks who connects, and ends. `bearers`, as central: pairs with
/// `../peer_channels.py`, and reads over enhanced bearers.
@main
struct InteropSecurity {
  static func main() async {
    let arguments = CommandLine.arguments
    guard 5...6 ~= arguments.count, let agent = User(arguments[3], digits: arguments[4]) else {
      print("usage: InteropSecurity tcp:HOST:PORT central|peripheral jw|nc|passkey|entry DIGITS [private|bearers]")
      exit(2)
    }
    // The identity addresses of the peers in peer_security.py.
    let number: UInt64 = arguments[2] == "central" ? 0xF0F1_F2F3_F4F5 : 0xE0E1_E2E3_E4E5
    let identity = arguments.last == "private" ? PeerAddress(DeviceAddress(number), .random) : nil
    var checks = Checks()
    do {
      // Tests/Interop/run names the file.
      let trace = unsafe getenv("BINDRUNE_TRACE").map { unsafe String(cString: $0) }
      var configuration = HostConfiguration()
      if arguments.last == "bearers" { configuration.enhancedBearers = 3 }
      let host = try await BluetoothHost.open(
        arguments[1], configuration: configuration, database: try database(), agent: agent, trace: trace)
      if arguments.last == "bearers" {
        try await bearers(host, &checks)
        await host.close()
        exit(checks.failures == 0 ? 0 : 1)
      }
      if arguments[2] == "central" {
        try await central(host, isAuthenticated: arguments[3] != "jw", identity, agent, &checks)
        await host.close()
        exit(checks.failures == 0 ? 0 : 1)
      }
      try await host.advertise(AdvertisingData(localName: "InteropPeer", serviceUUIDs: ["180D"]))
      print("ready")
      fflush(nil)
      var links: [Task<[LinkEvent], Never>] = [], peers: [PeerID] = []
      for try await event in await host.events {
        switch event {
        case .connected(let link):
          peers.append(link.peer)
          links.append(Task { await events(of: link) })
        // The peer connects twice.
        case .disconnected where links.count == 2 && identity != nil:
          let events = [await links[0].value, await links[1].value]
          await checkPeer(identity, peers, events, host, agent, &checks)
          await host.close()
          exit(checks.failures == 0 ? 0 : 1)
        case .disconnected:
          try await host.advertise(AdvertisingData(localName: "InteropPeer", serviceUUIDs: ["180D"]))
        default: break
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

  /// Until the link goes down, which ends the sequence with the reason.
  static func events(of link: Link) async -> [LinkEvent] {
    var all: [LinkEvent] = []
    do throws(BluetoothError) { for try await event in await link.events { all.append(event) } } catch { return all }
    return all
  }
  /// The links of one peer with private addresses: it has paired on the first one only.
  static func checkPeer(
    _ identity: PeerAddress?, _ peers: [PeerID], _ links: [[LinkEvent]], _ host: BluetoothHost, _ agent: User,
    _ checks: inout Checks
  ) async {
    var identified: [PeerAddress] = [], security: [LinkSecurity] = []
    for event in links[0] { if case .peerIdentified(let address) = event { identified.append(address) } }
    for event in links[1] { if case .securityChanged(let now) = event { security.append(now) } }
    checks("identified", identified, identity.map { [$0] } ?? [])
    checks("bond: the same peer", peers, [peers[0], peers[0]])
    checks("bond: encrypted", security.map { $0.isEncrypted && $0.isBonded }, [true])
    checks("pairings", agent.pairings, 1)
    checks("bonds", await host.bonds.map(\.address), identified)
  }

  /// The host opens the bearers when the link is encrypted. Bumble lets many values be read at once.
  static func bearers(_ host: BluetoothHost, _ check: inout Checks) async throws {
    let link = try await host.connect(to: try await find(host).address), events = await link.events
    let database = try await link.discoverAll()
    guard let encrypted = database.characteristic(uuid(7)) else {
      throw BluetoothError(.invalidArgument, "The peer has another database.")
    }
    check("encrypted value", try await link.read(encrypted), Array("secret".utf8))
    var counts: [Int] = []
    for try await event in events {
      if case .bearersChanged(let count) = event { counts.append(count) }
      if counts.count == 3 { break }
    }
    check("bearers", counts, [1, 2, 3])
    let values = await withTaskGroup(of: [UInt8]?.self, returning: [[UInt8]?].self) { group in
      for _ in 0..<60 { group.addTask { try? await link.read(encrypted) } }
      return await group.reduce(into: []) { $0.append($1) }
    }
    check("values read at once", values, Array(repeating: Array("secret".utf8), count: 60))
    // In parts, on all bearers.
    let again = try await link.discoverAll()
    check("the same database", again.characteristics, database.characteristics)
    try await link.disconnect()
  }

  static func find(_ host: BluetoothHost) async throws -> Advertisement {
    for try await advertisement in host.scan() where advertisement.name == "InteropPeer" { return advertisement }
    throw BluetoothError(.connectionFailed, "The scan has ended.")
  }
  static func central(
    _ host: BluetoothHost, isAuthenticated: Bool, _ identity: PeerAddress?, _ agent: User, _ check: inout Checks
  ) async throws {
    var found = try await find(host), peer: PeerID?
    if identity != nil { check("a private address", found.address.address.randomKind, .resolvablePrivate) }
    for round in ["", "bond: "] {
      if peer != nil, let identity {
        found = try await find(host)
        check("\(round)resolved", found.address, identity)
        check("\(round)the peer heard", found.peer, peer)
      }
      let link = try await host.connect(to: found.address)
      check("\(round)the peer connected", link.peer, peer ?? link.peer)
      peer = link.peer
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
      check("\(round)pairings", agent.pairings, 1)
      if let identity {
        check("\(round)identity", [await link.address] + (await host.bonds.map(\.address)), [identity, identity])
      }
      try await link.disconnect()
      try await Task.sleep(for: .milliseconds(300))
    }
  }
}

/// A line for each check.
struct Checks {
  private(set) var failures = 0

  mutating func callAsFunction<Value: Equatable>(_ name: String, _ got: Value, _ want: Value) {
    if got == want { return print("ok  \(name)") }
    failures += 1
    print("FAIL \(name): got \(got) want \(want)")
  }
}

/// Who looks at both devices.
final class User: PairingAgent {
  private let ended = Atomic(0)
  /// How many have succeeded.
  var pairings: Int { ended.load(ordering: .relaxed) }
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
  func pairingEnded(on link: Link, _ error: BluetoothError?) async {
    if error == nil { ended.add(1, ordering: .relaxed) }
  }
  private func show(_ number: UInt32) {
    guard let file = unsafe fopen(digits, "w") else { return }
    unsafe fputs("\(number)\n", file)
    unsafe fclose(file)
  }
}
