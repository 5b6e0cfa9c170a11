import Bindrune
import BindruneAdapters
import BindruneSimulator
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import Logging
import NIOCore
import NIOPosix

/// A started host on the controller that the options select and, on `sim`, a sensor on the same radio, unless the verb
/// passes its own radio.
struct OpenHost {
  let host: BluetoothHost
  /// Without what observes it.
  private let transport: any HCITransport
  private let sensor: (host: BluetoothHost, task: Task<Void, any Error>)?

  static func open(
    _ options: HostOptions, configuration: HostConfiguration = HostConfiguration(), database: Database = Database(),
    agent: any PairingAgent = JustWorksAgent(), bondStore: (any BondStore)? = nil, radio: SimulatedRadio? = nil,
    observer: PacketObserver? = nil
  ) async throws -> OpenHost {
    let logger = options.common.logger, choice = try options.choice()
    let loop = radio?.eventLoop ?? EventLoops.next()
    var configuration = configuration
    configuration.enhancedBearers = options.enhancedBearers
    var sensor: (host: BluetoothHost, task: Task<Void, any Error>)?, radio = radio
    if choice.spec == .sim, radio == nil {
      let air = SimulatedRadio(on: loop, seed: 1, configuration: .quiet())
      let belt = HeartRateSensor(name: "Virtual Heart Rate")
      let host = BluetoothHost(air.controller(), database: belt.database, logger: logger)
      try await host.start()
      sensor = (host, Task { try await belt.run(on: host, name: "Virtual Heart Rate", period: .seconds(1)) })
      radio = air
    }
    do {
      let transport = try await choice.spec.open(
        on: loop, radio: radio, takesDown: choice.takesDown, trace: choice.trace, tracesCalls: choice.tracesCalls,
        logger: logger)
      let open = OpenHost(
        host: BluetoothHost(
          observer.map { ObservedTransport(transport, $0) } ?? transport, configuration: configuration,
          database: database, agent: agent, bondStore: bondStore, logger: logger),
        transport: transport, sensor: sensor)
      do throws(BluetoothError) { try await open.host.start() } catch {
        await open.close()  // an adapter that was taken down is brought up before the process ends
        var named = error
        named.operation = "open \(choice.spec)"
        throw named
      }
      return open
    } catch {
      try Task.checkCancellation()
      if case .adapter(let error) = error as? TransportError { throw UnopenedAdapter(error: error) }
      throw error
    }
  }

  func close() async {
    await host.close()
    await transport.warnOfTrace()
    sensor?.task.cancel()
    await sensor?.host.close()
  }
}

extension AdapterError {
  /// What to do, in terms of this tool's options.
  var cureOfTool: String { cure(takingDown: "add --take-down") }
}
private struct UnopenedAdapter: Error, CustomStringConvertible {
  let error: AdapterError
  var description: String { "\(error.cause): \(error.cureOfTool)." }
}

extension AirConfiguration {
  /// A room that loses the share `loss`, 0 … 1, of the packets.
  static func quiet(loss: Double = 0) -> AirConfiguration {
    var air = AirConfiguration.realistic
    air.loss = loss
    return air
  }
}

extension HCITransport {
  /// Warns if the trace is incomplete.
  func warnOfTrace() async {
    guard let tracing = self as? TracingTransport else { return }
    let failure = try? await eventLoop.submit { tracing.traceFailure }.get()
    if let failure { Console.warn(failure.description) }
  }
}

extension BluetoothHost {
  /// Runs `body` and closes the host, even if it throws.
  static func using<Result>(
    _ options: HostOptions, configuration: HostConfiguration = HostConfiguration(), database: Database = Database(),
    agent: any PairingAgent = JustWorksAgent(), bondStore: (any BondStore)? = nil, radio: SimulatedRadio? = nil,
    observer: PacketObserver? = nil, _ body: (BluetoothHost) async throws -> Result
  ) async throws -> Result {
    let open = try await OpenHost.open(
      options, configuration: configuration, database: database, agent: agent, bondStore: bondStore, radio: radio,
      observer: observer)
    do {
      let result = try await body(open.host)
      await open.close()
      return result
    } catch {
      await open.close()
      throw error
    }
  }
}

/// Receives every packet of a host's transport, on its event loop.
typealias PacketObserver = @Sendable (Span<UInt8>, HCIDirection) -> Void

/// Any transport; passes every packet to a function on its event loop.
final class ObservedTransport: ForwardingTransport, @unchecked Sendable {
  private let observe: PacketObserver

  init(_ inner: any HCITransport, _ observe: @escaping PacketObserver) {
    self.observe = observe
    super.init(inner)
  }
  override func send(_ packet: Span<UInt8>) {
    observe(packet, .fromHost)
    super.send(packet)
  }
  override func received(_ packet: Span<UInt8>) {
    observe(packet, .fromController)
    super.received(packet)
  }
}
