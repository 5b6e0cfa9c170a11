import BindruneWire
import BindruneHCI

/// Flow control of data towards the host. Vol 4, Part E, §4.2.
///
/// Function: while it is on, the controller sends a data packet only if the host has a buffer for it. The host returns
/// buffers with Host Number Of Completed Packets; the end of a link returns all of that link's. Waiting data is kept
/// here, so that later events can pass.
struct HostFlow: ~Copyable {
  private(set) var isOn = false
  /// The values from Host Buffer Size: octets in one data packet, and packets.
  private(set) var packetLength = Int(UInt16.max), buffers = Int(UInt16.max)
  /// Data for which the host has no buffer yet, in order.
  var waiting = PacketQueue()
  /// Packets that the host has not completed, by link.
  private var inUse: [(handle: UInt16, count: Int)] = []

  private var isFull: Bool { inUse.reduce(0) { $0 + $1.count } >= buffers }
  /// Data waits, and the host has a buffer for it.
  var canDeliver: Bool { !waiting.isEmpty && !isFull }

  mutating func setSize(_ length: UInt16, _ count: UInt16) { (packetLength, buffers) = (Int(length), Int(count)) }
  /// There is no link, so waiting data is obsolete.
  mutating func set(isOn: Bool) {
    self.isOn = isOn
    waiting.removeAll()
    inUse.removeAll()
  }

  /// Whether a packet may be sent now: an event always, data if there is a buffer and none waits before it.
  func admits(_ packet: Span<UInt8>) -> Bool { Self.handle(ofData: packet) == nil || (waiting.isEmpty && !isFull) }
  /// Records a packet that is sent to the host.
  mutating func note(_ packet: Span<UInt8>) {
    if let handle = Self.handle(ofData: packet) {
      take(handle)
    } else if packet.count >= 6, packet[0] == HCIPacketType.event.rawValue, packet[1] == DisconnectionComplete.code {
      forget(UInt16(packet[4]) | UInt16(packet[5]) << 8)
    }
  }
  /// Writes the first waiting packet.
  mutating func deliver(into output: inout OutputRawSpan) {
    if let handle = waiting.withFront({ Self.handle(ofData: $0) }) { take(handle) }
    waiting.withFront { output.append(contentsOf: $0) }
    waiting.removeFirst()
  }
  /// The host has completed packets of a link; false if it never had that many.
  mutating func complete(_ handle: UInt16, _ count: Int) -> Bool {
    guard let index = inUse.firstIndex(where: { $0.handle == handle }) else { return count == 0 }
    guard count <= inUse[index].count else { return false }
    inUse[index].count -= count
    return true
  }

  private mutating func take(_ handle: UInt16) {
    if let index = inUse.firstIndex(where: { $0.handle == handle }) {
      inUse[index].count += 1
    } else {
      inUse.append((handle, 1))
    }
  }
  /// The link has ended, and the host knows it: its buffers are free without a command. Vol 4, Part E, §4.3.
  private mutating func forget(_ handle: UInt16) {
    inUse.removeAll { $0.handle == handle }
    var others = PacketQueue()
    while !waiting.isEmpty {
      waiting.withFront { if Self.handle(ofData: $0) != handle { others.append($0, Span()) } }
      waiting.removeFirst()
    }
    waiting = others
  }
  private static func handle(ofData packet: Span<UInt8>) -> UInt16? {
    guard packet.count >= ACLPacket.headerCount, packet[0] == HCIPacketType.acl.rawValue else { return nil }
    return UInt16(packet[1]) | UInt16(packet[2] & 0x0F) << 8
  }
}

// MARK: Commands

extension SetControllerToHostFlowControl: Executable {
  /// There is only ACL data: parameters for synchronous data have no effect.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    if !controller.connections.isEmpty { return Return(.commandDisallowed) }
    controller.hostFlow.set(isOn: flowControlEnable == .acl || flowControlEnable == .both)
    return Return(.success)
  }
}
extension HostBufferSize: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    if !controller.connections.isEmpty { return Return(.commandDisallowed) }
    guard hostACLDataPacketLength > 0, hostTotalNumACLDataPackets > 0 else {
      return Return(.invalidHCICommandParameters)
    }
    controller.hostFlow.setSize(hostACLDataPacketLength, hostTotalNumACLDataPackets)
    return Return(.success)
  }
}
extension HostNumberOfCompletedPackets: Simulated {
  /// The only command without a credit, and answered only if it is wrong. Vol 4, Part E, §7.3.40.
  func run(on controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) {
    var cursor = handles.cursor, isRight = true
    while let entry = cursor.next(in: packet) {
      // A link that ended while the command was in transit has nothing left to complete.
      guard controller.connection(entry.connectionHandle) != nil else { continue }
      let count = Int(entry.hostNumCompletedPackets)
      if !controller.hostFlow.complete(entry.connectionHandle.rawValue, count) { isRight = false }
    }
    if isRight || !controller.hostFlow.isOn { return }
    controller.outstandingCommands += 1
    controller.complete(Self.opcode, .invalidHCICommandParameters, now: medium.now)
  }
}
