import Bindrune
import Glibc

import class Foundation.Thread

/// Executes commands from standard input, one a line, for `../gap.py`, and prints the results, one JSON object a line.
///
///     InteropGAP tcp:127.0.0.1:9000 TRACE [private=IRK]
///
///     advertise [set=N] [name=N] [services=U,…] [manufacturer=HEX] [kind=K] [interval=MS] [duration=MS] [events=N] [once]
///     data [set=N] [name=N] [services=U,…] [manufacturer=HEX]
///     stop-advertising [set=N]
///     scan [passive] [services=U,…]                           stop-scan
///     connect ADDRESS[,ADDRESS]… [interval=MS] [timeout=MS]   cancel ADDRESS
///     parameters ADDRESS interval=MS                          disconnect ADDRESS
///     quality ADDRESS                                         identity ADDRESS irk=HEX
///
/// Each line is answered by {"event":"done"} or {"event":"refused"}; a connection is reported when it is up. An IRK is
/// spelled as the Specification prints it; with one of our own the address is private, and changes every second.
@main
struct InteropGAP {
  static func main() async {
    let arguments = CommandLine.arguments.dropFirst()
    guard let spec = arguments.first, let trace = arguments.dropFirst().first else {
      print("usage: InteropGAP tcp:HOST:PORT TRACE [private=IRK]")
      exit(2)
    }
    do {
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "InteropGAP")
      var configuration = HostConfiguration()
      if let options = Order("options \(arguments.dropFirst(2).joined(separator: " "))"),
        let irk = options.key("private")
      {
        configuration.addressPolicy = .resolvable(irk, rotation: .seconds(1))
      }
      let host = try await BluetoothHost.open(
        spec, configuration: configuration, database: try builder.build(), trace: trace)
      let driver = Driver(host: host), events = await host.events
      Task { try await driver.report(events) }
      say("ready", ["address": "\(await host.ownAddress)", "identity": "\(await host.identityAddress)"])
      for await line in lines() {
        guard let order = Order(line) else { continue }
        do {
          try await driver.obey(order)
          say("done", ["order": order.verb])
        } catch {
          say("refused", ["order": order.verb, "why": "\(error)"])
        }
      }
      await host.close()
    } catch {
      say("failed", ["why": "\(error)"])
      exit(1)
    }
  }

  /// Standard input, which blocks, on a thread of its own.
  private static func lines() -> AsyncStream<String> {
    AsyncStream { lines in
      Thread.detachNewThread {
        while let line = readLine() { lines.yield(line) }
        lines.finish()
      }
    }
  }
}

/// A line: a verb, addresses perhaps, and values by their names.
struct Order {
  let verb: String
  private(set) var addresses: [PeerAddress] = []
  private var values: [String: String] = [:]
  private var flags: Set<String> = []

  init?(_ line: String) {
    let words = line.split(separator: " ").map(String.init)
    guard let verb = words.first else { return nil }
    self.verb = verb
    for word in words.dropFirst() {
      let parts = word.split(separator: "=", maxSplits: 1).map(String.init)
      let peers = word.split(separator: ",").compactMap { PeerAddress(String($0)) }
      if parts.count == 2 {
        values[parts[0]] = parts[1]
      } else if peers.isEmpty {
        flags.insert(word)
      } else {
        addresses += peers
      }
    }
  }
  subscript(name: String) -> String? { values[name] }
  func has(_ flag: String) -> Bool { flags.contains(flag) }
  func milliseconds(_ name: String) -> Duration? { values[name].flatMap(Int.init).map { .milliseconds($0) } }
  func key(_ name: String) -> IdentityResolvingKey? {
    values[name].flatMap { UInt128($0, radix: 16) }.map(IdentityResolvingKey.init)
  }
  var set: AdvertisingSetID { values["set"].flatMap(UInt32.init).map(AdvertisingSetID.init(rawValue:)) ?? .first }
  var services: [BluetoothUUID] {
    (values["services"] ?? "").split(separator: ",").compactMap { BluetoothUUID(String($0)) }
  }
}

/// The running operations.
actor Driver {
  private let host: BluetoothHost
  private var links: [PeerAddress: Link] = [:]
  private var attempts: [PeerAddress: Task<Void, Never>] = [:]
  private var scan: Task<Void, Never>?

  init(host: BluetoothHost) { self.host = host }

  struct Misuse: Error { let why: String }

  func obey(_ order: Order) async throws {
    switch order.verb {
    case "advertise": try await host.advertise(data(of: order), try parameters(of: order), as: order.set)
    case "data": try await host.setAdvertisingData(data(of: order), of: order.set)
    case "stop-advertising": await host.stopAdvertising(order.set)
    case "scan": beginScan(order)
    case "stop-scan":
      scan?.cancel()
      await scan?.value
    case "connect": connect(order)
    case "cancel": attempts[try address(of: order)]?.cancel()
    case "parameters": try await (try link(of: order)).updateParameters(connectionParameters(of: order))
    case "quality":
      let link = try link(of: order), phys = try await link.setPHYs(PHYPreferences(transmit: .le2M, receive: .le2M))
      say(
        "quality",
        ["rssi": "\(try await link.readRSSI() ?? 127)", "phys": "\(phys.transmit.rawValue),\(phys.receive.rawValue)"])
    case "identity":
      guard let irk = order.key("irk") else { throw Misuse(why: "no key") }
      try await host.addIdentity(try address(of: order), irk: irk)
    case "disconnect": try await (try link(of: order)).disconnect()
    default: throw Misuse(why: "no such order")
    }
  }

  /// Prints events.
  func report(_ events: ServerEventSequence) async throws {
    for try await event in events {
      switch event {
      case .connected(let link):
        links[link.peer.firstAddress] = link
        say("connected", ["peer": link.peer.description, "role": "\(link.role)"])
      case .disconnected(let id, let reason):
        guard let peer = links.first(where: { $0.value.id == id })?.key else { continue }
        links[peer] = nil
        say("disconnected", ["peer": peer.description, "reason": "\(reason.rawValue)"])
      case .advertisingStopped(let set, let end): say("stopped", ["set": "\(set.rawValue)", "end": "\(end)"])
      default: break
      }
    }
  }

  private func data(of order: Order) -> AdvertisingData {
    var data = AdvertisingData(localName: order["name"], serviceUUIDs: order.services)
    if let hex = order["manufacturer"] { data.manufacturerData = octets(hex) }
    return data
  }
  private func parameters(of order: Order) throws -> AdvertisingParameters {
    var parameters = AdvertisingParameters(duration: order.milliseconds("duration"))
    parameters.maximumEvents = order["events"].flatMap(UInt8.init)
    parameters.restartsAfterConnection = !order.has("once")
    if let interval = order.milliseconds("interval") {
      parameters.interval = .every(interval)
    }
    parameters.kind =
      switch order["kind"] {
      case nil, "connectable": .connectable
      case "scannable": .scannable
      case "nonconnectable": .nonconnectable
      case let other?: throw Misuse(why: "kind \(other)")
      }
    parameters.policy = .everything
    return parameters
  }

  private func beginScan(_ order: Order) {
    scan?.cancel()
    scan = Task { [host] in
      do {
        let found = host.scan(ScanParameters(isActive: !order.has("passive")), services: order.services)
        for try await advertisement in found { say(advertisement) }
      } catch {
        say("scan-failed", ["why": "\(error)"])
      }
    }
  }

  private func connect(_ order: Order) {
    let parameters = connectionParameters(of: order)
    let attempt = Task { [host] in
      do throws(BluetoothError) {
        let link = try await host.connect(to: order.addresses, parameters, timeout: order.milliseconds("timeout"))
        say("linked", ["peer": link.peer.description])
      } catch {
        say("unlinked", ["peer": order.addresses.map(\.description).joined(separator: ","), "code": "\(error.code)"])
      }
    }
    for peer in order.addresses { attempts[peer] = attempt }
  }
  private func connectionParameters(of order: Order) -> ConnectionParameters {
    ConnectionParameters(
      interval: ConnectionInterval(order.milliseconds("interval") ?? .milliseconds(30)),
      supervisionTimeout: SupervisionTimeout(.seconds(5)))
  }
  private func address(of order: Order) throws -> PeerAddress {
    guard let address = order.addresses.first else { throw Misuse(why: "no address") }
    return address
  }
  private func link(of order: Order) throws -> Link {
    guard let link = links[try address(of: order)] else { throw Misuse(why: "no link") }
    return link
  }
}

/// One JSON object a line; the values are words, which need no escapes but Swift's.
func say(_ event: String, _ values: [String: String] = [:]) {
  let pairs = [("event", event)] + values.sorted { $0.key < $1.key }
  var line = "{" + pairs.map { "\"\($0)\":\($1.debugDescription)" }.joined(separator: ",") + "}\n"
  // Not print and fflush(nil), which waits for the lock that readLine holds.
  _ = line.withUTF8 { unsafe write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

func say(_ advertisement: Advertisement) {
  let data = advertisement.data
  say(
    "advertisement",
    [
      "peer": advertisement.peer.description, "name": advertisement.name ?? "",
      "services": data.serviceUUIDs.map(\.description).joined(separator: ","),
      "manufacturer": hex(data.manufacturerData ?? []),
      "connectable": "\(advertisement.isConnectable)",
      "overflow": advertisement.matchedOverflow.map(\.description).joined(separator: ","),
      "truncated": "\(advertisement.isTruncated)",
    ])
}

func hex(_ octets: [UInt8]) -> String {
  octets.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined()
}
func octets(_ hex: String) -> [UInt8] {
  let digits = hex.compactMap(\.hexDigitValue)
  return stride(from: 0, to: digits.count - 1, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
}

extension PeerAddress {
  /// `F0:F1:F2:F3:F4:F5/random`.
  init?(_ text: String) {
    let parts = text.split(separator: "/"),
      octets = (parts.first ?? "").split(separator: ":").compactMap { UInt8($0, radix: 16) }
    guard parts.count == 2, octets.count == 6, ["public", "random"].contains(parts[1]) else { return nil }
    let value = octets.reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    self.init(DeviceAddress(value), parts[1] == "random" ? .random : .public)
  }
}
