import BindruneSimulator
import BindruneTransport
import BindruneWire
import Logging
import NIOCore

/// Virtual controllers on one virtual radio, in real time, on one event loop. `sim` uses it, and `bindrune controllers`
/// offers it to any stack that speaks H4.
///
///     let radio = SimulatedRadio(on: loop)
///     let a = radio.controller(), b = radio.controller()             // for hosts in this process
///     let server = try await radio.listen(on: .tcp(host: "127.0.0.1", port: 0))    // one controller per connection
///
/// Drives the `Air` that it owns: it passes the time and the packets, and sets a timer for `air.deadline`. A controller
/// exists as long as its transport. Afterwards it sends nothing, and its peers see their links time out.
public final class SimulatedRadio: @unchecked Sendable {
  // Sendable: everything but `controller` and `listen` runs on the event loop, which each call checks.
  public let eventLoop: any EventLoop
  private let logger: Logger
  private let start: NIODeadline
  /// Of the controllers that are added without a configuration of their own.
  private let controllers: ControllerConfiguration
  // Release builds skip the exclusivity checks of these properties: 300 instructions for each value. Accesses cannot
  // overlap: the air makes no callbacks, and a transport never calls back from inside a call.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var air: Air
  private var ports: [Port] = []
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var packet = PacketBuffer(capacity: 260)
  private var packetCapacity = 260
  private var isClosed = false
  /// Arrival time of the packets being received: the clock is read once for all that come together.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var arrival: Instant?
  /// The only timer, and when it fires.
  private var timer: Scheduled<Void>?
  private var armed = Instant.zero

  /// The same `seed` and the same calls at the same times would repeat a run; in real time, the times never repeat.
  /// `controllers`: what its controllers are unless they get a configuration of their own.
  public init(
    on eventLoop: any EventLoop, seed: UInt64 = 0, configuration: AirConfiguration = .realistic,
    controllers: ControllerConfiguration = ControllerConfiguration(), logger: Logger = Logger(label: "bindrune.radio")
  ) {
    self.eventLoop = eventLoop
    self.logger = logger
    self.controllers = controllers
    start = eventLoop.now
    air = Air(seed: seed, configuration: configuration)
  }

  // MARK: Controllers

  /// Adds a controller for a host in this process. Callable from any thread.
  ///
  /// The default is as the radio's `controllers`, with a public address of its own.
  public func controller(_ configuration: ControllerConfiguration? = nil) -> any HCITransport {
    let (host, controller) = MemoryTransport.pair(on: eventLoop)
    if eventLoop.inEventLoop {
      attach(controller, configuration)
    } else {
      eventLoop.execute { self.attach(controller, configuration) }
    }
    return host
  }

  /// Listens for hosts at `tcp:HOST:PORT` or `unix:PATH` and gives each a new controller. Closing the server ends the
  /// listening; `close` ends the controllers.
  public func listen(
    on spec: TransportSpec, configuration: ControllerConfiguration? = nil
  ) async throws(TransportError) -> H4Server {
    try await H4Server.listen(on: spec, loop: eventLoop) { stream in
      let id = self.attach(stream, configuration)
      self.logger.debug("a host connected", metadata: ["controller": "\(id.number)"])
    }
  }

  /// Adds a controller behind `transport`, the controller's end of the connection, which must not have been started.
  @discardableResult
  public func attach(_ transport: any HCITransport, _ configuration: ControllerConfiguration? = nil) -> ControllerID {
    eventLoop.preconditionInEventLoop()
    var configuration = configuration ?? controllers
    if configuration.address == DeviceAddress() { configuration.address = freeAddress() }
    if Int(configuration.aclDataLength) + 5 > packetCapacity {
      packetCapacity = Int(configuration.aclDataLength) + 5
      packet = PacketBuffer(capacity: packetCapacity)
    }
    let port = Port(self, air.addController(configuration), configuration.address, transport)
    if isClosed {
      transport.close()
    } else {
      ports.append(port)
      transport.start(port)
    }
    return port.id
  }

  /// The first that no controller has, of the public addresses kept for documentation (RFC 7042, §2.1.2): so a host
  /// that is started again gets its address, and thus its bonds, back.
  private func freeAddress() -> DeviceAddress {
    var address = DeviceAddress(0x00_00_5E_00_53_01)
    while ports.contains(where: { $0.address == address }) { address = DeviceAddress(address.value + 1) }
    return address
  }

  /// Calls `body` with the air: to move controllers, to separate them, to change the loss.
  public func withAir<Result>(_ body: (inout Air) -> Result) -> Result {
    eventLoop.preconditionInEventLoop()
    arrival = nil
    let result = body(&air)
    pump()
    return result
  }

  /// Controllers that have a host.
  public var controllerCount: Int {
    eventLoop.preconditionInEventLoop()
    return ports.count
  }

  /// Closes every controller's transport and stops the radio.
  public func close() {
    eventLoop.preconditionInEventLoop()
    isClosed = true
    timer?.cancel()
    timer = nil
    for port in ports {
      air.removeController(port.id)
      port.transport.close()
    }
    ports = []
  }

  // MARK: Driving

  /// A controller and its host.
  private final class Port: HCIReceiver, @unchecked Sendable {
    // Sendable: only the transport calls it, on its event loop.
    let radio: SimulatedRadio
    let id: ControllerID
    let address: DeviceAddress
    let transport: any HCITransport
    init(_ radio: SimulatedRadio, _ id: ControllerID, _ address: DeviceAddress, _ transport: any HCITransport) {
      self.radio = radio
      self.id = id
      self.address = address
      self.transport = transport
    }
    func received(_ packet: Span<UInt8>) { radio.receive(packet, at: id) }
    func receivedAll() { radio.pump() }
    func writable() { radio.pump() }
    func failed(_ error: TransportError) { radio.ended(self, error) }
  }

  /// Since the radio began.
  private var now: Instant { Instant(nanoseconds: UInt64((eventLoop.now - start).nanoseconds)) }

  private func receive(_ packet: Span<UInt8>, at id: ControllerID) {
    let now = arrival ?? now
    arrival = now
    air.receive(packet, at: id, now: now)
  }
  private func ended(_ port: Port, _ error: TransportError) {
    logger.debug("a host went away", metadata: ["controller": "\(port.id.number)", "reason": "\(error)"])
    ports.removeAll { $0 === port }
    air.removeController(port.id)
    pump()
  }

  /// Advances the air to the present, sends the controllers' packets to their hosts, and arms the timer.
  private func pump() {
    guard !isClosed else { return }
    arrival = nil
    let now = now
    air.advance(to: now)
    // A packet taken from one controller can make room for a peer's: repeats until none has a packet that its host
    // accepts.
    var isQuiet = false
    while !isQuiet {
      isQuiet = true
      for port in ports where air.hasPacket(from: port.id, now: now) {
        if Self.sendPackets(of: &air, in: &packet, to: port, now: now) { isQuiet = false }
        port.transport.flush()
      }
    }
    rearm()
  }

  /// Sends what the controller's host accepts now, with one access to the air and to the packet for all; false if
  /// nothing.
  private static func sendPackets(
    of air: inout Air, in packet: inout PacketBuffer, to port: Port, now: Instant
  ) -> Bool {
    var isAny = false
    while port.transport.isWritable, packet.fill({ air.nextPacket(from: port.id, into: &$0, now: now) }) {
      packet.withBytes { port.transport.send($0) }
      isAny = true
    }
    return isAny
  }

  /// Arms the timer. It may fire too early, which costs less than a new one for every packet.
  private func rearm() {
    guard let deadline = air.deadline else { return }
    if let timer {
      if armed <= deadline { return }
      timer.cancel()
    }
    armed = min(deadline, now + .seconds(3600))  // a deadline that never comes stays within the clock's range
    timer = eventLoop.scheduleTask(deadline: start + .nanoseconds(Int64(armed.nanoseconds))) { [weak self] in
      self?.timer = nil
      self?.pump()
    }
  }
}
