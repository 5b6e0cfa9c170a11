import NIOCore

/// # Gate
/// **Overview**: between a transport and its receiver. Packets reach the receiver in order and then the end reaches it, once;
/// nothing does before `start`, from inside a call that the receiver makes, or after `close`.
///
/// **Phases**: waiting until `start`; open; waiting again whenever something must not be delivered from where it is noticed,
/// until the event loop's next turn; ended, when the receiver knows of the end or asked for it.
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
  /// Who may be told something, though perhaps not now.
  var receiver: (any HCIReceiver)? {
    switch self {
    case .waiting(let early): early.receiver
    case .open(let receiver): receiver
    case .ended: nil
    }
  }

  /// The receiver is known; what is to be delivered waits until `reopen`.
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
  /// Nothing may be delivered until `reopen`. False: so it was already, and whoever closed the gate opens it.
  mutating func hold() -> Bool {
    guard case .open(let receiver) = self else { return false }
    self = .waiting(Early(receiver: receiver))
    return true
  }
  /// Opens what was held. False: something waits, and is to be delivered on the event loop's next turn.
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

  /// The packets that waited; they are to be delivered, and the gate stays closed meanwhile.
  mutating func takePackets() -> [ByteBuffer] {
    guard case .waiting(var early) = self, early.receiver != nil else { return [] }
    let packets = early.packets
    (early.packets, early.octets) = ([], 0)
    self = .waiting(early)
    return packets
  }
  /// The end, where nothing is left to deliver before it: the receiver is to be told.
  mutating func takeEnd() -> (receiver: any HCIReceiver, error: TransportError)? {
    guard case .waiting(let early) = self, early.packets.isEmpty, let receiver = early.receiver, let error = early.end
    else { return nil }
    self = .ended
    return (receiver, error)
  }
}
