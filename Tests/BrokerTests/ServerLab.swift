import BindruneControl
import BindruneTransport
import BindruneWire
import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// An app of the daemon, in this process.
final class SocketApp {
  let session: RemoteSession
  private let stream = EventStream()
  private var iterator: AsyncStream<BrokerEvent>.Iterator
  private(set) var log: [BrokerEvent] = []
  private var last: UInt64 = 0

  init(
    _ lab: ServerLab, _ manifest: AppManifest, _ identity: ManagerIdentity? = nil,
    versions: MessageVersions = .ofThisProgram, reconnectsAfter wait: TimeAmount = .milliseconds(1)
  ) {
    var hello = AppMessage.Hello(manifest: manifest, manager: identity)
    hello.versions = versions
    session = RemoteSession(
      to: lab.path, hello, events: stream.queue, on: lab.loop, RemotePatience(first: wait, longest: wait))
    iterator = stream.events.makeAsyncIterator()
  }
  /// Takes events until `pick` returns a value.
  @discardableResult
  func wait<Value>(_ pick: (BrokerEvent) -> Value?) async throws -> Value {
    while let event = await iterator.next() {
      log.append(event)
      if let value = pick(event) { return value }
    }
    throw CancellationError()
  }
  func state(_ state: AdapterState) async throws {
    try await wait { if case .adapter(state) = $0 { true } else { nil } }
  }
  func ask(_ request: (OperationID) -> BrokerRequest.Central) async throws -> BrokerAnswer {
    try await answer { .central(request($0)) }
  }
  func ask(_ request: (OperationID) -> BrokerRequest.Peripheral) async throws -> BrokerAnswer {
    try await answer { .peripheral(request($0)) }
  }
  private func answer(_ request: (OperationID) -> BrokerRequest) async throws -> BrokerAnswer {
    last += 1
    let id = OperationID(rawValue: last)
    session.send(request(id))
    return try await wait { if case .completed(id, let result) = $0 { result } else { nil } }.get()
  }
}

/// A daemon on a simulated radio, and what it does with processes.
final class ServerLab: Sendable {
  let path = "/tmp/bindrune-\(UInt64.random(in: 0 ... .max)).socket"
  let loop: any EventLoop
  let radio: SimulatedRadio
  let adapter: BindruneBroker.Adapter
  let server: AppServer
  private let deeds = NIOLockedValueBox<[String]>([])
  var did: [String] { deeds.withLockedValue { $0 } }

  /// `radio` nil: a new one.
  init(
    radio: SimulatedRadio? = nil, limits: AppServer.Limits = .init(), policy: AppServer.Policy = .init(),
    store: AppStore? = nil,
    launch: @escaping @Sendable () throws(FrameError) -> Void = {}
  ) async throws {
    loop = MultiThreadedEventLoopGroup.singleton.next()
    let radio = radio ?? SimulatedRadio(on: MultiThreadedEventLoopGroup.singleton.next(), configuration: .ideal)
    let adapter = BindruneBroker.Adapter(on: radio.eventLoop, logger: .silent) { _ async throws(TransportError) in
      radio.controller()
    }
    (self.radio, self.adapter) = (radio, adapter)
    // A test's task greets, and a busy machine may keep it waiting for longer than apps may wait.
    var limits = limits
    limits.greeting = .seconds(Int64(Hang.seconds))
    let deeds = deeds, path = path
    @Sendable func note(_ text: String) { deeds.withLockedValue { $0.append(text) } }
    server = AppServer(
      on: loop, adapters: [AppServer.NamedAdapter(name: "sim", adapter: adapter)],
      processes: AppProcesses(
        stop: { _ in note("stop") }, resume: { _ in note("resume") }, kill: { _ in note("kill") },
        launch: { manifest, _, place, _ throws(FrameError) in
          #expect(place == AppProcesses.Place(socket: path, adapter: "sim"))
          note("launch \(manifest.identifier)")
          try launch()
        }), limits: limits, policy: policy, store: store, logger: .silent)
    try await server.listen(at: path)
  }
  func close() async throws {
    await server.close()
    try await radio.eventLoop.submit { [radio] in radio.close() }.get()
    try? FileManager.default.removeItem(atPath: path)
  }
  func host(_ database: Database) async throws -> BluetoothHost {
    let host = BluetoothHost(radio.controller(), database: database)
    try await host.start()
    return host
  }
  func move(_ app: String, to life: AppLife) async throws {
    try await loop.submit { [server] in server.move(AppServer.Key(user: getuid(), identifier: app), to: life) }.get()
  }
  func life(of app: String) async throws -> AppLife? {
    try await loop.submit { [server] in server.life(of: AppServer.Key(user: getuid(), identifier: app)) }.get()
  }
  /// Closes all sockets as the kernel does for processes that end.
  func breakConnections() async throws {
    try await loop.submit { [server] in
      for app in server.apps.values { for connection in app.connections.values { connection.close() } }
    }.get()
  }
  /// The answer to a control, on a thread of its own.
  func lines(_ control: DaemonControl) async throws -> [String] {
    try await NIOThreadPool.singleton.runIfActive { [path] in
      var lines: [String] = []
      try control.ask(at: path, within: Int(Hang.seconds)) { lines.append($0) }
      return lines
    }
  }
  /// What `bindrune apps log` prints from now on.
  func log() async throws -> ServerLog {
    let log = ServerLog(), path = path
    Thread.detachNewThread { try? DaemonControl.log.ask(at: path, within: nil) { log.add($0) } }
    try await eventually { [self] in try await !loop.submit { [server] in server.listeners.isEmpty }.get() }
    return log
  }
  func until(_ deed: String) async throws {
    try await eventually { [self] in did.contains(deed) }
  }
}

final class ServerLog: Sendable {
  private let box = NIOLockedValueBox<[String]>([])
  var lines: [String] { box.withLockedValue { $0 } }
  func add(_ line: String) { box.withLockedValue { $0.append(line) } }
}
