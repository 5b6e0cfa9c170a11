import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport

/// A raw host: it sends the test's packets, and records those received.
struct RawHost: HCIHost {
  var outgoing: [[UInt8]] = []
  var received: [[UInt8]] = []
  mutating func receive(_ packet: Span<UInt8>, now: Instant) { received.append(packet.indices.map { packet[$0] }) }
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    if outgoing.isEmpty { return false }
    let packet = outgoing.removeFirst()
    output.append(contentsOf: packet.span)
    return true
  }
  var deadline: Instant? { nil }
  mutating func expire(now: Instant) {}
}

/// Raw hosts on one air, controlled by packets.
struct Lab: ~Copyable {
  var world: World<RawHost>

  /// Hosts with the public addresses 01, 02, … of our own test block, all events on.
  init(seed: UInt64 = 1, _ air: AirConfiguration = .ideal, _ controllers: [ControllerConfiguration]) {
    world = World(seed: seed, configuration: air)
    for controller in controllers { world.add(RawHost(), controller) }
    for host in controllers.indices {
      command(host, SetEventMask())
      var mask = LESetEventMask()
      mask.leEventMask = LEEventMask(rawValue: 0x400_001F_FFFF)
      command(host, mask)
      world.run(for: .milliseconds(2))
      _ = packets(host)
    }
  }
  init(seed: UInt64 = 1, _ air: AirConfiguration = .ideal, hosts: Int) {
    self.init(seed: seed, air, (0..<hosts).map { ControllerConfiguration(address: Self.address($0)) })
  }
  static func address(_ host: Int) -> DeviceAddress { DeviceAddress(0x00_1122_3344_00 + UInt64(host) + 1) }

  mutating func send(_ host: Int, _ packet: [UInt8]) {
    world.withHost(host) { host, _ in host.outgoing.append(packet) }
  }
  mutating func send(_ host: Int, _ text: String) { send(host, octets(text)) }
  mutating func command<C: HCICommand>(_ host: Int, _ command: C, from source: [UInt8] = []) {
    var packet = PacketBuffer()
    do throws(WireError) {
      _ = try packet.fill { (output) throws(WireError) in
        try command.writePacket(into: &output, from: source.span)
        return true
      }
    } catch { preconditionFailure("\(error)") }
    send(host, packet.bytes)
  }
  /// An ACL packet from a host.
  mutating func data(_ host: Int, _ handle: UInt16, _ data: [UInt8], flag: UInt8 = 0) {
    let word = handle | UInt16(flag) << 12
    send(
      host,
      [0x02, UInt8(word & 0xFF), UInt8(word >> 8), UInt8(data.count & 0xFF), UInt8(data.count >> 8)] + data)
  }
  mutating func run(_ milliseconds: Int = 10) { world.run(for: .milliseconds(milliseconds)) }

  /// The packets received by a host since the last call.
  mutating func packets(_ host: Int) -> [[UInt8]] {
    world.withHost(host) { host, _ in
      defer { host.received = [] }
      return host.received
    }
  }
  /// The same as hex.
  mutating func hexes(_ host: Int) -> [String] { packets(host).map { hex($0) } }
  /// The same as text: `Disconnection_Complete Status: …`; data packets as hex.
  mutating func texts(_ host: Int) -> [String] { packets(host).map { Self.text($0) } }
  static func text(_ packet: [UInt8]) -> String {
    guard packet.first == 4 else { return hex(packet) }
    do throws(WireError) {
      let event = try HCIEvent(packet.span)
      return "\(event.name)".dropFirst(4) + " " + event.describe(in: packet.span)
    } catch { return "\(hex(packet)) \(error)" }
  }
  /// Sends a command, and returns the status octet of its answer; `nil` when there was none.
  mutating func status<C: HCICommand>(_ host: Int, _ command: C, from source: [UInt8] = []) -> UInt8? {
    _ = packets(host)
    self.command(host, command, from: source)
    run(1)
    for packet in packets(host) {
      if packet[1] == 0x0F, packet[5] == UInt8(C.opcode.rawValue & 0xFF) { return packet[3] }
      if packet[1] == 0x0E, packet[4] == UInt8(C.opcode.rawValue & 0xFF) { return packet[6] }
    }
    return nil
  }

  // MARK: Common actions

  mutating func advertise(
    _ host: Int, _ type: AdvertisingType = .connectableScannableUndirected, interval: UInt16 = 0x20,
    data: [UInt8] = [2, 1, 6], response: [UInt8] = [3, 9, 0x41, 0x42],
    _ change: (inout LESetAdvertisingParameters) -> Void = { _ in }
  ) {
    var parameters = LESetAdvertisingParameters()
    parameters.advertisingIntervalMin = AdvertisingInterval(rawValue: interval)
    parameters.advertisingIntervalMax = AdvertisingInterval(rawValue: interval)
    parameters.advertisingType = type
    change(&parameters)
    command(host, parameters)
    var arena: [UInt8] = []
    let advertising = LESetAdvertisingData(data, in: &arena)
    command(host, advertising, from: arena)
    var answer: [UInt8] = []
    let scanResponse = LESetScanResponseData(response, in: &answer)
    command(host, scanResponse, from: answer)
    enableAdvertising(host)
  }
  mutating func enableAdvertising(_ host: Int, _ on: Bool = true) {
    let enable = LESetAdvertisingEnable.with { $0.advertisingEnable = on }
    command(host, enable)
  }
  mutating func scan(
    _ host: Int, active: Bool = false, filter: Bool = false, interval: UInt16 = 16, window: UInt16 = 16
  ) {
    let parameters = LESetScanParameters.with {
      $0.leScanType = active ? .active : .passive
      $0.leScanInterval = ScanInterval(rawValue: interval)
      $0.leScanWindow = ScanInterval(rawValue: window)
    }
    command(host, parameters)
    let enable = LESetScanEnable.with {
      $0.leScanEnable = true
      $0.filterDuplicates = filter
    }
    command(host, enable)
  }
  static func creation(
    to peer: DeviceAddress, interval: UInt16 = 6, timeout: UInt16 = 100
  ) -> LECreateConnection {
    var create = LECreateConnection()
    create.peerAddress = peer
    create.leScanInterval = ScanInterval(rawValue: 16)
    create.leScanWindow = ScanInterval(rawValue: 16)
    create.connectionIntervalMin = ConnectionInterval(rawValue: interval)
    create.connectionIntervalMax = ConnectionInterval(rawValue: interval)
    create.supervisionTimeout = SupervisionTimeout(rawValue: timeout)
    return create
  }
  /// Connects `central` to `peripheral` and returns both handles.
  mutating func connect(_ central: Int, _ peripheral: Int, interval: UInt16 = 6, timeout: UInt16 = 100) -> (
    UInt16, UInt16
  ) {
    advertise(peripheral)
    command(central, Self.creation(to: Self.address(peripheral), interval: interval, timeout: timeout))
    run(500)
    return (Self.handle(packets(central)), Self.handle(packets(peripheral)))
  }
  static func handle(_ packets: [[UInt8]]) -> UInt16 {
    for packet in packets where packet.count > 6 && packet[1] == 0x3E && (packet[3] == 0x0A || packet[3] == 0x01) {
      return UInt16(packet[5]) | UInt16(packet[6]) << 8
    }
    return 0xFFFF
  }
}
