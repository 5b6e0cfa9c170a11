import BasicContainers
import BindruneWire
import BindruneHCI

/// A Bluetooth host, as a controller sees it: packets in, packets out, and a deadline.
public protocol HCIHost: ~Copyable {
  /// One HCI packet from the controller, H4 packet type octet first.
  mutating func receive(_ packet: Span<UInt8>, now: Instant)
  /// Writes the next HCI packet for the controller, H4 packet type octet first; false when there is none.
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool
  var deadline: Instant? { get }
  mutating func expire(now: Instant)
}

/// Hosts, each with its own controller, on one air, in virtual time: a minute passes in a moment.
///
/// Function: exchanges packets until all are quiet; then time advances to the next deadline. A time and a number of
/// steps bound every run, so that no test can hang.
///
///     var world = World<MyHost>(seed: 1)
///     let central = world.add(MyHost(), ControllerConfiguration(address: DeviceAddress(0xC0_0000_000001)))
///     world.withHost(central) { $0.scan(now: $1) }
///     world.run(for: .seconds(1))
public struct World<BluetoothHost: HCIHost & ~Copyable>: ~Copyable {
  public var air: Air
  // Everything on the path of a packet can be inlined, so that `World` is specialized in the module of its hosts.
  @usableFromInline var hosts = UniqueArray<BluetoothHost>()
  @usableFromInline var controllers: [ControllerID] = []
  @usableFromInline var packet: PacketBuffer
  @usableFromInline var time = Instant.zero
  @inlinable public var now: Instant { time }
  /// The limit of packets and deadlines in one run.
  public var stepLimit = 5_000_000

  /// How a run ended.
  public enum Outcome: Sendable {
    /// The condition became false.
    case conditionMet
    /// The time has elapsed.
    case timeOver
    /// Nothing is scheduled any more.
    case idle
    /// `stepLimit` was reached: packets are exchanged endlessly at one instant.
    case stepLimit
  }

  @inlinable public init(seed: UInt64 = 0, configuration: AirConfiguration = .realistic, packetCapacity: Int = 1100) {
    air = Air(seed: seed, configuration: configuration)
    packet = PacketBuffer(capacity: packetCapacity)
  }

  // MARK: Hosts

  /// Adds a host on a new controller. Returns the host's number, counted from zero.
  @discardableResult
  public mutating func add(_ host: consuming BluetoothHost, _ configuration: ControllerConfiguration) -> Int {
    controllers.append(air.addController(configuration))
    hosts.append(host)
    return hosts.count - 1
  }
  public var hostCount: Int { hosts.count }
  public func controller(of host: Int) -> ControllerID { controllers[host] }
  /// Calls a host; its packets leave with the next run.
  @inlinable public mutating func withHost<Result, Failure: Error>(
    _ host: Int, _ body: (inout BluetoothHost, Instant) throws(Failure) -> Result
  ) throws(Failure) -> Result { try body(&hosts[host], now) }
  /// Reads a host.
  @inlinable public func readHost<Result, Failure: Error>(
    _ host: Int, _ body: (borrowing BluetoothHost) throws(Failure) -> Result
  ) throws(Failure) -> Result { try body(hosts[host]) }

  // MARK: Faults

  /// Moves two hosts out of each other's reach; links end by their supervision time-out.
  public mutating func separate(_ a: Int, _ b: Int) { air.separate(controllers[a], controllers[b]) }
  public mutating func reunite(_ a: Int, _ b: Int) { air.reunite(controllers[a], controllers[b]) }
  /// Removes a host's controller, or replaces it by one of the same kind, as after power on.
  public mutating func removeController(of host: Int) { air.removeController(controllers[host]) }
  public mutating func replaceController(of host: Int, _ configuration: ControllerConfiguration) {
    air.removeController(controllers[host])
    controllers[host] = air.addController(configuration)
  }

  // MARK: Time

  /// Runs for a duration of virtual time.
  @discardableResult @inlinable
  public mutating func run(for duration: Duration) -> Outcome { run(until: now + duration) }
  /// Runs until `deadline`, including everything due then.
  @discardableResult @inlinable
  public mutating func run(until deadline: Instant) -> Outcome { run(until: deadline, while: { _ in true }) }
  /// Runs while the condition holds, at most for `duration`.
  @discardableResult @inlinable
  public mutating func run(for duration: Duration, while condition: (borrowing World) -> Bool) -> Outcome {
    run(until: now + duration, while: condition)
  }
  /// Runs while the condition holds, at most until `deadline`. The condition is checked between two instants.
  @discardableResult @inlinable
  public mutating func run(until deadline: Instant, while condition: (borrowing World) -> Bool) -> Outcome {
    var steps = stepLimit
    while true {
      exchangePackets(&steps)
      if !condition(self) { return .conditionMet }
      if steps <= 0 { return .stepLimit }
      guard let next = nextDeadline else {
        time = max(now, deadline)
        air.advance(to: now)
        return .idle
      }
      guard next <= deadline else {
        time = max(now, deadline)
        air.advance(to: now)
        return .timeOver
      }
      time = max(now, next)
      air.advance(to: now)
      for index in 0..<hosts.count {
        guard let due = hosts[index].deadline, due <= now else { continue }
        hosts[index].expire(now: now)
        steps -= 1
      }
      steps -= 1
    }
  }
  /// The time of the next event; never before `now`.
  @inlinable var nextDeadline: Instant? {
    var next = air.deadline
    for index in 0..<hosts.count { next = .earliest(next, hosts[index].deadline) }
    return next.map { max($0, now) }
  }
  /// Exchanges packets until no host and no controller has one. Time does not advance.
  @inlinable mutating func exchangePackets(_ steps: inout Int) {
    var isQuiet: Bool
    repeat {
      isQuiet = true
      for index in 0..<hosts.count {
        let controller = controllers[index]
        while steps > 0, packet.fill({ hosts[index].nextPacket(into: &$0, now: time) }) {
          packet.withBytes { air.receive($0, at: controller, now: time) }
          steps -= 1
          isQuiet = false
        }
        while steps > 0, packet.fill({ air.nextPacket(from: controller, into: &$0, now: time) }) {
          packet.withBytes { hosts[index].receive($0, now: time) }
          steps -= 1
          isQuiet = false
        }
      }
    } while !isQuiet && steps > 0
  }
}
