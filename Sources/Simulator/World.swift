import BasicContainers
import BindruneWire
import HCI

/// A Bluetooth host, as a controller sees it: packets in, packets out, and a time at which it wants to be asked again.
public protocol HCIHost: ~Copyable {
  /// One HCI packet from the controller, H4 packet type octet first.
  mutating func receive(_ packet: Span<UInt8>, now: Instant)
  /// Writes the next HCI packet for the controller, H4 packet type octet first; false when there is none.
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool
  var deadline: Instant? { get }
  mutating func expire(now: Instant)
}

/// Hosts, each on a controller of its own, on one air, in virtual time: nothing waits, and a minute passes in a moment.
///
/// Function: packets go to and fro until all are quiet; then time jumps to the next deadline. Every run is bounded by a
/// time and by a number of steps, so that no test can hang.
///
///     var world = World<MyHost>(seed: 1)
///     let central = world.add(MyHost(), ControllerConfiguration(address: DeviceAddress(0xC0_0000_000001)))
///     world.withHost(central) { $0.scan(now: $1) }
///     world.run(for: .seconds(1))
public struct World<BluetoothHost: HCIHost & ~Copyable>: ~Copyable {
  public var air: Air
  // Everything that a packet passes through can be inlined: a module that runs hosts of its own has a `World` made for them.
  @usableFromInline var hosts = UniqueArray<BluetoothHost>()
  @usableFromInline var controllers: [ControllerID] = []
  @usableFromInline var packet: PacketBuffer
  @usableFromInline var time = Instant.zero
  @inlinable public var now: Instant { time }
  /// Packets and deadlines that one run handles at most.
  public var stepLimit = 5_000_000

  /// How a run ended.
  public enum Outcome: Sendable {
    /// The condition no longer holds.
    case conditionMet
    /// The time is over.
    case timeOver
    /// Nothing will ever happen again.
    case idle
    /// `stepLimit` was reached: somebody talks without end at one instant.
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
  /// Talks to a host; what it has to say then goes out with the next run.
  @inlinable public mutating func withHost<Result, Failure: Error>(
    _ host: Int, _ body: (inout BluetoothHost, Instant) throws(Failure) -> Result
  ) throws(Failure) -> Result { try body(&hosts[host], now) }
  /// Looks at a host.
  @inlinable public func readHost<Result, Failure: Error>(
    _ host: Int, _ body: (borrowing BluetoothHost) throws(Failure) -> Result
  ) throws(Failure) -> Result { try body(hosts[host]) }

  // MARK: Accidents

  /// Puts two hosts out of each other's reach; links end by their supervision time-out.
  public mutating func separate(_ a: Int, _ b: Int) { air.separate(controllers[a], controllers[b]) }
  public mutating func reunite(_ a: Int, _ b: Int) { air.reunite(controllers[a], controllers[b]) }
  /// Takes a host's controller away, or puts one of the same kind in its place, as after power on.
  public mutating func removeController(of host: Int) { air.removeController(controllers[host]) }
  public mutating func replaceController(of host: Int, _ configuration: ControllerConfiguration) {
    air.removeController(controllers[host])
    controllers[host] = air.addController(configuration)
  }

  // MARK: Time

  /// Runs for a length of virtual time.
  @discardableResult @inlinable
  public mutating func run(for duration: Duration) -> Outcome { run(until: now + duration) }
  /// Runs until `deadline`; all that is due then has been done.
  @discardableResult @inlinable
  public mutating func run(until deadline: Instant) -> Outcome { run(until: deadline, while: { _ in true }) }
  /// Runs while the condition holds, `duration` at most.
  @discardableResult @inlinable
  public mutating func run(for duration: Duration, while condition: (borrowing World) -> Bool) -> Outcome {
    run(until: now + duration, while: condition)
  }
  /// Runs while the condition holds, until `deadline` at most. The condition is looked at between two instants.
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
  /// When something happens next by itself; never before `now`.
  @inlinable var nextDeadline: Instant? {
    var next = air.deadline
    for index in 0..<hosts.count { next = .earliest(next, hosts[index].deadline) }
    return next.map { max($0, now) }
  }
  /// Carries packets until no host and no controller has one. Time stands still.
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
