// B9: the path up: an ACL packet with a notification of 244 octets, from the transport's `received` to the
// `HostObserver` of a whole `BluetoothHost`, for 1, 8 and 32 links. Each link in turn receives one; `receivedAll`
// follows every 8 packets.
//
// The controller is scripted: a virtual one answers the commands of the start, events alone make the links. The
// measured work runs on the host's event loop, in one turn.
import Bindrune
import BindruneSimulator
import BindruneWire
import BindruneGATT
import BindruneHCI
import NIOCore
import NIOPosix

func receive(_ id: String, _ repetitions: Int, _ batches: Int) {
  guard let links = Int(id.dropFirst(3)), (1...32).contains(links) else { fail("no row \(id)") }
  let loop = MultiThreadedEventLoopGroup.singleton.next()
  let transport = PaperTransport(loop), observer = Summing()
  let host = BluetoothHost(transport, observer: observer)
  do {
    try loop.makeFutureWithTask { try await host.start() }.wait()
    try loop.submit {
      for link in 1...links { transport.connect(UInt8(link)) }
      guard observer.links == links else { fail("\(observer.links) links") }
      _ = receive(links, 1, transport, observer)
      measure(id, items: Rounds.count * links, repetitions: repetitions, batches: batches) {
        receive(links, $0, transport, observer)
      }
    }.wait()
  } catch { fail("\(error)") }
  withExtendedLifetime(host) {}
}

enum Rounds {
  static let count = 1000, perBatch = 8, length = 244
}

@inline(never)
func receive(_ links: Int, _ repetitions: Int, _ transport: PaperTransport, _ observer: Summing) -> UInt64 {
  // A notification of the value at 3, in an ACL packet, whose second octet selects the link.
  let count = UInt8(Rounds.length)
  var packet: [UInt8] =
    [0x02, 0x00, 0x20, count + 7, 0x00, count + 3, 0x00, 0x04, 0x00, 0x1B, 0x03, 0x00]
    + Array(repeating: 7, count: Rounds.length)
  guard let receiver = transport.receiver else { fail("not started") }
  let before = observer.sum
  for _ in 0..<repetitions {
    var together = 0
    for _ in 0..<Rounds.count {
      for link in 1...links {
        packet[1] = UInt8(truncatingIfNeeded: link)
        receiver.received(packet.span)
        together &+= 1
        if together == Rounds.perBatch {
          receiver.receivedAll()
          together = 0
        }
      }
    }
    receiver.receivedAll()
  }
  return observer.sum &- before
}

/// An observer that adds up what it receives: values, their octets, the last octet of each, and the numbers of their
/// links and handles.
final class Summing: HostObserver, @unchecked Sendable {
  // Sendable: everything runs on the event loop.
  var sum: UInt64 = 0, links = 0

  func host(_ host: isolated BluetoothHost, did event: HostEvent) {
    if case .server(.connected) = event { links += 1 }
  }
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID
  ) {
    sum &+= 1 &+ UInt64(value.count) &+ UInt64(value[value.count &- 1])
    sum &+= UInt64(link.rawValue) &+ UInt64(handle.rawValue)
  }
}

/// The host's transport, which stands in for a controller.
final class PaperTransport: HCITransport, @unchecked Sendable {
  // Sendable: everything runs on the event loop.
  let eventLoop: any EventLoop
  private(set) var receiver: (any HCIReceiver)?
  /// Answers the commands of the start.
  private var air = Air(configuration: .ideal)
  private let controller: ControllerID
  private var packet = PacketBuffer()
  private var isDue = false

  init(_ loop: any EventLoop) {
    eventLoop = loop
    controller = air.addController(ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
  }
  func start(_ receiver: any HCIReceiver) { self.receiver = receiver }
  func send(_ packet: Span<UInt8>) {
    // Data belong to links that the virtual controller does not have.
    guard packet[0] == HCIPacketType.command.rawValue else { return }
    air.receive(packet, at: controller, now: .zero)
    guard !isDue else { return }
    isDue = true
    eventLoop.execute { self.answer() }
  }
  private func answer() {
    isDue = false
    while packet.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) {
      packet.withBytes { receiver?.received($0) }
    }
    receiver?.receivedAll()
  }
  /// A central connects and asks for an ATT_MTU of 517.
  func connect(_ handle: UInt8) {
    let mtu = 517
    for packet: [UInt8] in [
      [
        0x04, 0x3E, 0x13, 0x01, 0x00, handle, 0x00, 0x01, 0x00, handle, 0x53, 0x00, 0x5E, 0x00, 0x00, 0x06, 0x00, 0x00,
        0x00, 0xF4, 0x01, 0x00,
      ],
      [0x02, handle, 0x20, 7, 0x00, 3, 0x00, 0x04, 0x00, 0x02, UInt8(mtu & 0xFF), UInt8(mtu >> 8)],
      // The response has left the controller.
      [0x04, 0x13, 0x05, 0x01, handle, 0x00, 0x01, 0x00],
    ] {
      receiver?.received(packet.span)
      receiver?.receivedAll()
    }
  }
  func flush() {}
  var isWritable: Bool { true }
  func resynchronise() {}
  func close() { receiver = nil }
  var closeFuture: EventLoopFuture<Void> { eventLoop.makeSucceededVoidFuture() }
}
