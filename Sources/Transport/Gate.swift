import NIOCore

/// # Gate
/// **Overview**: between a transport and its receiver. Packets reach the receiver in order and then the end reaches it, once;
/// nothing does before `start`, during a call that the receiver makes, or after `close`.
///
/// **Phases**: waiting until `start`; open; waiting again whenever something must not be delivered from where it is noticed,
/// until the event loop's next turn; ended, when the receiver has had the end or has closed the transport.
enum Gate {
  /// Nothing may be delivered now.
  case waiting(Early)
  case open(any HCIReceiver)
  case ended

  /// What came before it may be delivered.
  struct Early {
    /// Nil before `start`.
    var receiver: (any HCIReceiver)?
    /// As they were read.
    var packets: [ByteBuffer] = []
    var octets = 0
    /// Follows the packets.
    var end: TransportError?
  }

  init() { self = .waiting(Early()) }

  /// No end has been reached, nor is one waiting.
  var isLive: Bool {
    switch self {
    case .waiting(let early): early.end == nil
    case .open: true
    case .ended: false
    }
  }
  /// The receiver, while it has not had the end. What it gets may have to wait.
  var receiver: (any HCIReceiver)? {
    switch self {
    case .waiting(let early): early.receiver
    case .open(let receiver): receiver
    case .ended: nil
    }
  }

  /// Sets the receiver. Deliveries wait until `reopen`.
  mutating func start(_ receiver: any HCIReceiver) {
    switch self {
    case .waiting(var early):
      precondition(early.receiver == nil, "a transport is started once")
      early.receiver = receiver
      self = .waiting(early)
    case .open: preconditionFailure("a transport is started once")
    case .ended: break
    }
  }
  /// Closes an open gate until `reopen`, and returns true. False: it was closed before, and the caller that closed it reopens it.
  mutating func hold() -> Bool {
    guard case .open(let receiver) = self else { return false }
    self = .waiting(Early(receiver: receiver))
    return true
  }
  /// Opens the gate if nothing waits. False: the caller must deliver what waits, on the event loop's next turn.
  mutating func reopen() -> Bool {
    guard case .waiting(let early) = self, let receiver = early.receiver else { return true }
    guard early.packets.isEmpty, early.end == nil else { return false }
    self = .open(receiver)
    return true
  }

  /// Puts a packet behind those that wait, and returns their octets.
  mutating func keep(_ packet: ByteBuffer) -> Int {
    guard case .waiting(var early) = self else { return 0 }
    self = .ended  // so that the packets are not copied
    early.packets.append(packet)
    early.octets += packet.readableBytes
    self = .waiting(early)
    return early.octets
  }
  /// The end, behind what waits. The first reason counts, except where `isNearer` to the cause than one that waits.
  mutating func end(_ error: TransportError, isNearer: Bool = false) {
    guard case .waiting(var early) = self, early.end == nil || isNearer else { return }
    early.end = error
    self = .waiting(early)
  }

  /// Removes the packets that wait, for the caller to deliver. The gate stays closed.
  mutating func takePackets() -> [ByteBuffer] {
    guard case .waiting(var early) = self, early.receiver != nil else { return [] }
    let packets = early.packets
    (early.packets, early.octets) = ([], 0)
    self = .waiting(early)
    return packets
  }
  /// Removes the end, for the caller to deliver, and ends the gate; nil while packets wait before it.
  mutating func takeEnd() -> (receiver: any HCIReceiver, error: TransportError)? {
    guard case .waiting(let early) = self, early.packets.isEmpty, let receiver = early.receiver, let error = early.end
    else { return nil }
    self = .ended
    return (receiver, error)
  }
}
