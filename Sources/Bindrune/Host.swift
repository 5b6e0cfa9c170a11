import ATT
import BindruneTransport
import BindruneWire
import GAP
import GATT
import HCI
import Logging
import NIOCore
import NIOPosix

/// A Bluetooth LE host on one adapter: central and peripheral at once.
///
///     let host = try await Host.open("tcp:127.0.0.1:9000")
///     for try await advertisement in host.scan() { print(advertisement) }
///
/// The actor runs on its transport's event loop, so a packet reaches the layers without a hop. Everything that waits ends
/// exactly once: with its answer, with an error, or cancelled with its task.
public actor Host {
  public nonisolated let transport: any HCITransport
  public nonisolated var unownedExecutor: UnownedSerialExecutor {
    unsafe transport.eventLoop.executor.asUnownedSerialExecutor()
  }
  let logger: Logger
  var core: HostCore
  var phase = Phase.stopped
  private var packet = PacketBuffer(capacity: 1100)
  private var timer: (deadline: Instant, scheduled: Scheduled<Void>)?
  private var isPumping = false

  enum Phase { case stopped, starting, running, closed(BluetoothError) }

  // What waits, by what it waits for. `Host+Async.swift` has the code.
  var lastRequest: UInt64 = 0
  var requests: [RequestID: CheckedContinuation<RequestOutcome, Never>] = [:]
  var starting: [CheckedContinuation<BluetoothError?, Never>] = []
  var advertising: [CheckedContinuation<BluetoothError?, Never>] = []
  var scans: [UInt64: Scan] = [:]
  var links: [LinkID: LinkState] = [:]
  var incoming: [Mailbox<ServerEvent>] = []

  /// A host on `transport`; `start` brings it up.
  public init(
    _ transport: any HCITransport, configuration: HostConfiguration = HostConfiguration(),
    database: Database = Database(),
    logger: Logger = Logger(label: "bindrune", factory: { _ in SwiftLogNoOpLogHandler() })
  ) {
    self.transport = transport
    self.logger = logger
    core = HostCore(configuration: configuration, database: database)
  }

  /// Opens the controller that `spec` names (`tcp:HOST:PORT`, `unix:PATH`, or `sim`: alone on a radio of its own) and
  /// starts a host on it.
  /// `trace`: the path of a btsnoop file for every packet.
  public static func open(
    _ spec: String, configuration: HostConfiguration = HostConfiguration(), database: Database = Database(),
    trace: String? = nil, logger: Logger = Logger(label: "bindrune", factory: { _ in SwiftLogNoOpLogHandler() })
  ) async throws(BluetoothError) -> Host {
    let transport: any HCITransport
    do throws(TransportError) {
      let loop = MultiThreadedEventLoopGroup.singleton.next(), spec = try TransportSpec(spec)
      transport = try await spec.open(on: loop, radio: spec == .sim ? SimulatedRadio(on: loop) : nil, trace: trace)
    } catch {
      throw BluetoothError(.transport, error.description)
    }
    let host = Host(transport, configuration: configuration, database: database, logger: logger)
    try await host.start()
    return host
  }

  // MARK: Driving the core

  var now: Instant { Instant(nanoseconds: NIODeadline.now().uptimeNanoseconds) }

  /// Does `change` to the core, then everything that follows from it.
  func perform<Result>(_ change: (inout HostCore, Instant) -> Result) -> Result {
    let result = change(&core, now)
    pump()
    return result
  }

  /// Sends what there is to send, tells what there is to tell, and arms the timer.
  func pump() {
    // An effect may lead back here; the outer call goes on.
    guard !isPumping else { return }
    isPumping = true
    defer { isPumping = false }
    var isQuiet: Bool
    repeat {
      isQuiet = true
      var hasSent = false
      while transport.isWritable, packet.fill({ core.nextPacket(into: &$0, now: now) }) {
        hasSent = true
        packet.withBytes { transport.send($0) }
      }
      if hasSent {
        isQuiet = false
        transport.flush()
      }
      while let effect = core.nextEffect() {
        isQuiet = false
        handle(effect)
      }
    } while !isQuiet
    armTimer()
  }

  private func armTimer() {
    let deadline = core.deadline
    if timer?.deadline == deadline { return }
    timer?.scheduled.cancel()
    timer = nil
    guard let deadline else { return }
    let scheduled = transport.eventLoop.scheduleTask(deadline: .uptimeNanoseconds(deadline.nanoseconds)) {
      [weak self] in
      guard let self else { return }
      self.assumeIsolated { host in
        host.timer = nil
        host.perform { core, now in core.expire(now: now) }
      }
    }
    timer = (deadline, scheduled)
  }

  /// The host is of no more use: everything that waits ends with `error`.
  func fail(_ error: BluetoothError) {
    if case .closed = phase { return }
    phase = .closed(error)
    timer?.scheduled.cancel()
    timer = nil
    transport.close()
    endEverything(error)
  }

  /// Closes the transport, with it every link, and ends everything that waits with `.notStarted`.
  public func close() {
    fail(BluetoothError(.notStarted, "the host has been closed"))
  }
  /// The address that peers see.
  public var ownAddress: PeerAddress { core.ownAddress }
}

/// The transport's end of the host: enters the actor on its own event loop, without a hop.
final class HostReceiver: HCIReceiver {
  // The host owns the transport, and the transport this.
  private weak let host: Host?
  init(_ host: Host) { self.host = host }

  func received(_ packet: Span<UInt8>) {
    guard let host else { return }
    host.assumeIsolated { $0.core.receive(packet, now: $0.now) }
  }
  func receivedAll() { host?.assumeIsolated { $0.pump() } }
  func writable() { host?.assumeIsolated { $0.pump() } }
  func failed(_ error: TransportError) {
    host?.assumeIsolated { $0.fail(BluetoothError(.transport, error.description)) }
  }
}
