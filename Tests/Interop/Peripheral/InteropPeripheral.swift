import Bindrune
import Glibc

/// A peripheral with the database of `../database.py`, for `../peer_central.py`.
///
///     InteropPeripheral tcp:127.0.0.1:9000
///
/// Serves until its controller is lost. `../peer_peripheral.py` describes the control point at its head.
@main
struct InteropPeripheral {
  static func main() async {
    guard CommandLine.arguments.count == 2 else {
      print("usage: InteropPeripheral tcp:HOST:PORT")
      return
    }
    do {
      let served = try InteropDatabase()
      // InteropSecurity pairs; the checks of this program's peer begin without keys.
      var configuration = HostConfiguration()
      configuration.pairing.acceptsPairing = false
      // Tests/Interop/run names the file.
      let trace = unsafe getenv("BINDRUNE_TRACE").map { unsafe String(cString: $0) }
      let host = try await BluetoothHost.open(
        CommandLine.arguments[1], configuration: configuration, database: served.database, trace: trace)
      var peripheral = InteropPeripheral(host: host, served: served)
      try await peripheral.serve()
    } catch {
      print("\(error)")
    }
  }

  let host: BluetoothHost
  let served: InteropDatabase
  private var links: [LinkID: Link] = [:]
  private var heartRates: [LinkID: Task<Void, Never>] = [:]
  private var commands = (count: UInt32(0), octets: UInt32(0))

  init(host: BluetoothHost, served: InteropDatabase) {
    self.host = host
    self.served = served
  }

  mutating func serve() async throws {
    let events = await host.events
    try await host.advertise(
      AdvertisingData(localName: InteropDatabase.name, serviceUUIDs: ["180D", "180F"]))
    print(#"{"event": "ready", "attributes": \#(served.database.count)}"#)
    fflush(nil)
    for try await event in events {
      switch event {
      case .connected(let link): links[link.id] = link
      case .disconnected(let id, _):
        links[id] = nil
        heartRates.removeValue(forKey: id)?.cancel()
      case .subscriptionChanged(let id, served.heartRate, let configuration):
        heartRates.removeValue(forKey: id)?.cancel()
        if configuration.contains(.notification), let link = links[id] { heartRates[id] = notifyHeartRates(link) }
      case .readRequested(let request) where request.handle == served.commands:
        try? await request.respond(littleEndian(commands.count) + littleEndian(commands.octets))
      case .readRequested(let request): try? await request.reject(ATTError(rawValue: 0x80))
      case .writeRequested(let request): await write(request)
      case .written(_, served.commands, let value, offset: _):
        commands.count += 1
        commands.octets += UInt32(value.count)
      case .subscriptionChanged, .written, .requestUnanswered, .advertisingStopped: break
      }
    }
  }

  private mutating func write(_ request: ServerWriteRequest) async {
    switch request.handle {
    case served.heartRateControl where request.value == [1]: try? await request.accept()
    case served.heartRateControl: try? await request.reject(ATTError(rawValue: 0x80))
    case served.control:
      try? await request.accept()
      if let link = links[request.link] { control(link, request.value) }
    default: try? await request.reject(ATTError(rawValue: 0x81))
    }
  }

  /// Each on a task of its own: the events continue meanwhile.
  private func control(_ link: Link, _ value: [UInt8]) {
    Task { [host, served] in
      do {
        switch value.first {
        case 1 where value.count == 5:
          let length = Int(value[3]) | Int(value[4]) << 8
          let port = try await link.sendPort(.notification, to: served.notified)
          for number in 0..<(UInt32(value[1]) | UInt32(value[2]) << 8) {
            let octets = littleEndian(number) + Array(repeating: UInt8(ascii: "n"), count: max(0, length - 4))
            while !port.offer(octets) { try await port.waitUntilReady() }
          }
        case 2 where value.count == 2:
          for number in 0..<UInt32(value[1]) {
            try await host.indicate(littleEndian(number), of: served.indicated, on: link.id)
          }
        case 3:
          try await Task.sleep(for: .milliseconds(50))  // the write's answer goes first
          try await link.disconnect()
        case 4:
          try await link.updateParameters(
            ConnectionParameters(
              interval: ConnectionInterval(.milliseconds(40)), supervisionTimeout: SupervisionTimeout(.seconds(5))))
        default: break
        }
      } catch {
        print("control point: \(error)")
      }
    }
  }

  /// 20 values, 10 ms apart, until the client unsubscribes.
  private func notifyHeartRates(_ link: Link) -> Task<Void, Never> {
    Task { [served] in
      do {
        let port = try await link.sendPort(.notification, to: served.heartRate)
        for number in 0..<UInt8(20) {
          try Task.checkCancellation()
          while !port.offer([0, 60 + number]) { try await port.waitUntilReady() }
          try await Task.sleep(for: .milliseconds(10))
        }
      } catch {}
    }
  }
}

private func littleEndian(_ value: UInt32) -> [UInt8] {
  (0..<4).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
}
