import BindruneSimulator
import BindruneTransport
import BindruneWire
import Logging
import NIOCore

/// Virtual controllers on one virtual radio, in real time, on one event loop: what is behind `sim`, and what
/// `bindrune controllers` gives to any stack that speaks H4.
///
///     let radio = SimulatedRadio(on: loop)
///     let a = radio.controller(), b = radio.controller()             // for hosts in this process
///     let server = try await radio.listen(on: .tcp(host: "127.0.0.1", port: 0))    // one controller per connection
///
/// Owns an `Air` and is its driver: it tells it the time, hands packets to and fro, and sleeps until `air.deadline`.
/// A controller lives as long as its transport. When that ends it falls silent, and its peers see the link time out.
public final class SimulatedRadio: @unchecked Sendable {
  // Sendable because everything but `controller` and `listen` happens on the event loop, which is checked.
  public let eventLoop: any EventLoop
  private let logger: Logger
  private let start: NIODeadline
  // Release builds do not check that no two accesses to one of these overlap (300 instructions for each value): the air calls
  // nobody, and a transport never calls from inside a call that it gets.
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
  /// When the packets came that are being received: one look at the clock for all that come together.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var arrival: Instant?
  /// The one timer, and when it goes off.
  private var timer: Scheduled<Void>?
  private var armed = Instant.zero

  /// `seed` and the same calls at the same times give the same radio; real time sees to it that they never are.
  public init(
    on eventLoop: any EventLoop, seed: UInt64 = 0, configuration: AirConfiguration = .realistic,
    logger: Logger = Logger(label: "bindrune.radio")
  ) {
    self.eventLoop = eventLoop
    self.logger = logger
    start = eventLoop.now
    air = Air(seed: seed, configuration: configuration)
  }

  // MARK: Controllers

  /// A fresh controller for a host in this process. From any thread.
  ///
  /// Without a configuration it is a Bluetooth 5.4 controller with a public address of its own.
  public func controller(_ configuration: ControllerConfiguration? = nil) -> any HCITransport {
    let (host, controller) = MemoryTransport.pair(on: eventLoop)
    if eventLoop.inEventLoop {
      attach(controller, configuration)
    } else {
      eventLoop.execute { self.attach(controller, configuration) }
    }
    return host
  }

  /// Listens for hosts at `tcp:HOST:PORT` or `unix:PATH` and gives each a fresh controller. Closing the server ends the
  /// listening, `close` the controllers.
  public func listen(
    on spec: TransportSpec, configuration: ControllerConfiguration? = nil
  ) async throws(TransportError) -> H4Server {
    try await H4Server.listen(on: spec, loop: eventLoop) { stream in
      let id = self.attach(stream, configuration)
      self.logger.debug("a host connected", metadata: ["controller": "\(id.number)"])
    }
  }

  /// Puts a fresh controller behind `transport`, which is seen from the controller's side and not started yet.
  @discardableResult
  public func attach(_ transport: any HCITransport, _ configuration: ControllerConfiguration? = nil) -> ControllerID {
    eventLoop.preconditionInEventLoop()
    var configuration = configuration ?? ControllerConfiguration()
    if configuration.address == DeviceAddress() { configuration.address = nextAddress() }
    if Int(configuration.aclDataLength) + 5 > packetCapacity {
      packetCapacity = Int(configuration.aclDataLength) + 5
      packet = PacketBuffer(capacity: packetCapacity)
    }
    let port = Port(self, air.addController(configuration), transport)
    if isClosed {
      transport.close()
    } else {
      ports.append(port)
      transport.start(port)
    }
    return port.id
  }

  /// Public addresses from the block kept for documentation. RFC 7042, §2.1.2.
  private func nextAddress() -> DeviceAddress { DeviceAddress(0x00_00_5E_00_53_01 + UInt64(air.controllersAdded)) }

  /// Lends the air: to move controllers, to separate them, to change the loss.
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

  /// Ends every controller's transport and the radio.
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
    // Sendable because the transport calls it on its event loop, and nobody else does.
    let radio: SimulatedRadio
    let id: ControllerID
    let transport: any HCITransport
    init(_ radio: SimulatedRadio, _ id: ControllerID, _ transport: any HCITransport) {
      self.radio = radio
      self.id = id
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

  /// Lets happen what is due, hands out what the controllers have to say, and sleeps until something happens by itself.
  private func pump() {
    guard !isClosed else { return }
    arrival = nil
    let now = now
    air.advance(to: now)
    // A packet taken from one controller can make room for a peer's: until all are quiet or their hosts are slow.
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

  /// What a controller's host takes now, with one access to the air and to the packet for all; false when that was nothing.
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

  /// A timer that goes off too early costs less than one that is cancelled for every packet.
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
