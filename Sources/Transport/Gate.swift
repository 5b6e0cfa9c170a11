import NIOCore

/// # Gate
/// **Overview**: orders deliveries from a transport to its receiver. The receiver gets packets in order and then the
/// end, once; it gets nothing before `start`, during a call that it makes, or after `close`.
///
/// **Phases**: waiting until `start`; open; waiting again whenever a delivery must not happen in the current call,
/// until the event loop's next turn; ended, when the receiver has got the end or has closed the transport.
enum Gate {
  /// Deliveries must wait.
  case waiting(Early)
  case open(any HCIReceiver)
  case ended

  /// Waiting deliveries.
  struct Early {
    /// Nil before `start`.
    var receiver: (any HCIReceiver)?
    /// In the order of reading.
    var packets: [ByteBuffer] = []
    var octets = 0
    /// Delivered after the packets.
    var end: TransportError?
  }

  init() { self = .waiting(Early()) }

  /// No end has been delivered or is waiting.
  var isLive: Bool {
    switch self {
    case .waiting(let early): early.end == nil
    case .open: true
    case .ended: false
    }
  }
  /// The receiver, until it has got the end. Deliveries to it may have to wait.
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
  /// Closes an open gate until `reopen`, and returns true. False if it was closed: the caller that closed it reopens
  /// it.
  mutating func hold() -> Bool {
    guard case .open(let receiver) = self else { return false }
    self = .waiting(Early(receiver: receiver))
    return true
  }
  /// Opens the gate if nothing waits. False if the caller must deliver what waits, on the event loop's next turn.
  mutating func reopen() -> Bool {
    guard case .waiting(let early) = self, let receiver = early.receiver else { return true }
    guard early.packets.isEmpty, early.end == nil else { return false }
    self = .open(receiver)
    return true
  }

  /// Appends a waiting packet, and returns the octets of all waiting packets.
  mutating func keep(_ packet: ByteBuffer) -> Int {
    guard case .waiting(var early) = self else { return 0 }
    self = .ended  // so that the packets are not copied
    early.packets.append(packet)
    early.octets += packet.readableBytes
    self = .waiting(early)
    return early.octets
  }
  /// Sets the end, after the waiting packets. The first reason prevails, except over one that `isNearer` to the cause.
  mutating func end(_ error: TransportError, isNearer: Bool = false) {
    guard case .waiting(var early) = self, early.end == nil || isNearer else { return }
    early.end = error
    self = .waiting(early)
  }

  /// Removes the waiting packets, for the caller to deliver. The gate stays closed.
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
