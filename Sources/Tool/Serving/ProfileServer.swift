import BindruneATT
import Bindrune
import BindruneConformance
import BindruneWire
import BindruneGAP
import BindruneGATT
import Synchronization

/// The services of a database file on a host: `serve --profile`.
///
/// Answers with the delays and errors that the file gives. Notifies current values once per period, and indicates a
/// value once, when a client subscribes. The host's server handles Service Changed.
///
/// Listens for the file's channels, and returns their SDUs or drops them. A peer that does not read the echo has to
/// wait with what it sends.
final class ProfileServer: Sendable {
  let database: Database
  /// Possible mistakes in the file.
  let warnings: [FileError]
  private let services: [BluetoothUUID]
  private let channels: [DatabaseChannel]
  private struct State {
    /// The values that the application answers for.
    var applicationValues: [AttributeHandle: ApplicationValue]
    /// The last writes to the values that the server keeps.
    var written: [AttributeHandle: [UInt8]] = [:]
    var notified: Set<AttributeHandle> = []
  }
  private let state: Mutex<State>

  init(_ path: String, name: String) throws(FileError) {
    let file = try ScriptFile.database(path, genericAccessName: name)
    database = file.database
    services = file.primaryServices
    channels = file.channels
    warnings = file.warnings
    state = Mutex(State(applicationValues: file.applicationValues))
  }

  /// As many services as fit the advertisement beside its flags: 28 octets. Vol 3, Part C, §11.
  func advertisingData(name: String) -> AdvertisingData {
    var advertised: [BluetoothUUID] = []
    func octets(_ count: Int) -> Int { advertised.filter { $0.shortest.count == count }.count * count }
    for uuid in services where uuid != .genericAccess && uuid != .genericAttribute && !advertised.contains(uuid) {
      advertised.append(uuid)
      let sum = [2, 16].map(octets).filter { $0 > 0 }.reduce(0) { $0 + $1 + 2 }
      if sum > 28 { advertised.removeLast() }
    }
    return AdvertisingData(localName: name, serviceUUIDs: advertised)
  }

  /// Advertises as `name` and serves until cancelled or the host fails. Calls `begun` when clients can connect.
  func run(
    on host: BluetoothHost, name: String, period: Duration, begun: @Sendable () async -> Void,
    _ report: @escaping @Sendable (String) -> Void
  ) async throws {
    let events = await host.events  // before it advertises: a client may connect at once
    // Those with a PSM first: the host would choose one of them for another.
    var listeners: [(DatabaseChannel, ChannelListener)] = []
    for channel in channels.filter({ $0.psm != nil }) + channels.filter({ $0.psm == nil }) {
      listeners.append((channel, try await host.listen(psm: channel.psm, security: channel.security, mtu: Self.mtu)))
    }
    try await host.advertise(advertisingData(name: name))
    await begun()
    for (channel, listener) in listeners { report("PSM \(listener.psm.text): \(channel.action.rawValue)") }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for (offer, listener) in listeners {
        group.addTask { [self] in
          try await withThrowingDiscardingTaskGroup { group in
            for try await channel in listener {
              group.addTask { [self] in await serve(channel, offer.action, report) }
            }
          }
        }
      }
      group.addTask { [self] in
        // A delayed answer does not hold up the next event.
        try await withThrowingDiscardingTaskGroup { answers in
          for try await event in events {
            if let line = text(event) { report(line) }
            if case .advertisingStopped(_, let end) = event { try end.check() }
            note(event)
            answers.addTask { [self] in try await answer(event, on: host) }
          }
        }
      }
      group.addTask { [self] in
        while true {
          try await Task.sleep(for: period)
          for handle in state.withLock({ $0.notified }).sorted(by: { $0.rawValue < $1.rawValue }) {
            await host.notify(value(handle), of: handle)
          }
        }
      }
      try await group.next()
      group.cancelAll()
    }
  }

  /// The longest SDU of a channel.
  private static let mtu = 4096

  /// Until the channel ends.
  private func serve(
    _ channel: LinkChannel, _ action: DatabaseChannel.Action, _ report: @Sendable (String) -> Void
  ) async {
    var octets = 0
    report("channel opened: PSM \(channel.psm.text), \(channel.link.peer)")
    do {
      for try await sdu in channel.received {
        octets += sdu.count
        guard action == .echo else { continue }
        // The peer may accept shorter SDUs than it sends.
        var rest = sdu[...]
        repeat {
          let part = Array(rest.prefix(channel.longestSDU))
          try await channel.send(part)
          rest = rest.dropFirst(part.count)
        } while !rest.isEmpty
      }
    } catch {}  // the channel has ended
    report("channel closed: PSM \(channel.psm.text), \(AirText.count(octets, "octet")) received")
  }

  private func value(_ handle: AttributeHandle) -> [UInt8] {
    state.withLock { $0.applicationValues[handle]?.value ?? $0.written[handle] } ?? database.value(handle) ?? []
  }

  /// Records subscriptions and writes, in the order of the events.
  private func note(_ event: ServerEvent) {
    switch event {
    case .subscriptionChanged(_, let handle, let configuration):
      if configuration.contains(.notification), handle != database.serviceChanged {
        _ = state.withLock { $0.notified.insert(handle) }
      }
    case .written(_, let handle, let part, let offset):
      let whole = value(handle)
      state.withLock { state in
        if state.applicationValues[handle] == nil {
          state.written[handle] = whole.prefix(offset) + part
        } else {
          // A write command has no response: ignore the error.
          _ = state.applicationValues[handle]?.write(part, at: offset)
        }
      }
    default: break
    }
  }

  /// Answers; a client that has disconnected needs no answer.
  private func answer(_ event: ServerEvent, on host: BluetoothHost) async throws {
    switch event {
    case .subscriptionChanged(let link, let handle, let configuration):
      // The server itself indicates Service Changed, and only after a change. Vol 3, Part G, §7.1.
      guard configuration.contains(.indication), handle != database.serviceChanged else { return }
      // Ignore a client that disconnects or does not confirm.
      try? await host.indicate(value(handle), of: handle, on: link)
    case .readRequested(let request):
      guard let value = state.withLock({ $0.applicationValues[request.handle] }) else {
        try? await request.reject(.unlikelyError)
        return
      }
      try await Task.sleep(for: value.delay)
      switch value.read(at: request.offset) {
      case .value: try? await request.respond(value.value)
      case .error(let error): try? await request.reject(error)
      }
    case .writeRequested(let request):
      guard let delay = state.withLock({ $0.applicationValues[request.handle]?.delay }) else {
        try? await request.reject(.unlikelyError)
        return
      }
      try await Task.sleep(for: delay)
      // All or none: Vol 3, Part F, §3.4.6.3.
      let refusal = state.withLock { state -> (ATTError, AttributeHandle)? in
        var written = state.applicationValues
        for write in request.writes {
          if let error = written[write.handle]?.write(write.value, at: write.offset) { return (error, write.handle) }
        }
        state.applicationValues = written
        return nil
      }
      if let (error, handle) = refusal {
        try? await request.reject(error, about: handle)
      } else {
        try? await request.accept()
      }
    default: break
    }
  }

  private func text(_ event: ServerEvent) -> String? {
    switch event {
    case .connected(let link): "connected: \(link.peer)"
    case .disconnected(_, let reason): "disconnected: \(reason)"
    case .subscriptionChanged(_, let handle, let configuration):
      "attribute \(handle.text): \(configuration.isEmpty ? "unsubscribed" : "subscribed")"
    case .written(_, let handle, let value, _): "attribute \(handle.text) written: \(hexText(value, separator: " "))"
    case .readRequested(let request): "attribute \(request.handle.text) read"
    case .writeRequested(let request):
      "attribute \(request.handle.text) written: \(hexText(request.value, separator: " "))"
    default: nil
    }
  }
}
