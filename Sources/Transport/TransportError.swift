import BindruneAdapters

/// Why a transport failed to open, or ended. `description` is one sentence: the cause and the cure.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum TransportError: Error, Sendable, Equatable, CustomStringConvertible {
  /// The text is not a `TransportSpec`; the sentence gives the reason.
  case specification(String)
  /// The transport does not support this operation.
  case unsuitable(TransportSpec, String)
  /// Nothing is listening there.
  case refused(TransportSpec)
  /// The path of a Unix socket or a serial port does not exist.
  case notFound(TransportSpec)
  case permissionDenied(TransportSpec)
  /// No process runs the virtual radio of this name: nothing is listening at the path.
  case noRadio(name: String, path: String)
  /// The host's name or address cannot be resolved.
  case unresolved(TransportSpec)
  /// No answer to the connection attempt within this many seconds, rounded up.
  case timedOut(TransportSpec, seconds: Int)
  /// Another process is listening there.
  case addressInUse(TransportSpec)
  /// The other side closed.
  case closed
  /// The adapter is gone.
  case unplugged(TransportSpec)
  /// A packet exceeded the kernel's longest, and its end is lost.
  case packetTooLong(limit: Int)
  /// The octets are not an H4 stream, or no longer one.
  case framing(FramingError)
  /// The sender ignored `isWritable`: this many octets were waiting.
  case overflow(Int)
  /// An error of an adapter of this machine.
  case adapter(AdapterError)
  /// A trace file: its path and the system's message.
  case trace(path: String, String)
  /// Any other error, with the system's message.
  case system(TransportSpec, String)

  public var description: String {
    switch self {
    case .specification(let sentence): sentence + "."
    case .unsuitable(let spec, let why): "The transport \(spec) is unsuitable: \(why)."
    case .refused(let spec): "Nothing is listening at \(spec): start the controller there, or correct the address."
    case .notFound(let spec) where spec.isSerial:
      "There is no device at \(spec): plug it in, or correct the path."
    case .notFound(let spec): "There is no socket at \(spec): start the controller there, or correct the path."
    case .noRadio(let name, let path):
      #"No process runs the radio sim:\#(name) (at \#(path)): start it with "bindrune controllers --name \#(name)"."#
    case .permissionDenied(let spec) where spec.isSerial:
      "No permission for \(spec): become a member of the group that owns it (on Debian dialout), and log in again."
    case .permissionDenied(let spec):
      "No permission for \(spec): ask its owner for access, or run as a user that has it."
    case .unresolved(let spec): "The host of \(spec) has no address: correct its name, or write a numeric address."
    case .timedOut(let spec, let seconds):
      "No answer from \(spec) in \(seconds) s: check that the host is up and that no firewall drops the port."
    case .addressInUse(.radio(let name)):
      "The radio sim:\(name) is already running: join it, stop the process that runs it, or choose another name."
    case .addressInUse(let spec): "Another process is listening at \(spec): stop it, or choose another address."
    case .closed: "The other side closed the connection: look at its log, and start it again."
    case .unplugged(let spec): "\(spec) is unplugged: plug it in again, and open it again."
    case .packetTooLong(let limit):
      "A packet had more than \(limit) octets, and its end is lost: open the controller again, and report it as a bug."
    case .framing(let error): "\(error)"
    case .overflow(let octets): "The peer accepts no packets and \(octets) octets wait for it: it has stopped reading."
    case .adapter(let error): error.description
    case .trace(let path, let words): "The trace file \(path) failed: \(words)."
    case .system(let spec, let words): "\(spec) failed: \(words)."
    }
  }
}

/// Loss of framing: H4 has no mark at which the next packet could be found, so the rest is ignored. Vol 4, Part A, §4:
/// the host resets and synchronises on the answer.
public struct FramingError: Error, Sendable, Equatable, CustomStringConvertible {
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Reason: Sendable, Equatable {
    /// An octet that starts no packet in this direction.
    case packetType
    /// A packet announces more octets than its type can have.
    case length(Int)
    /// This many octets arrived without the answer to HCI_Reset.
    case noResetAnswer(Int)
  }
  public var reason: Reason
  /// The octet's position in the stream, from 0.
  public var offset: UInt64
  /// The octet found there: the packet's type.
  public var octet: UInt8

  public init(_ reason: Reason, offset: UInt64, octet: UInt8) {
    self.reason = reason
    self.offset = offset
    self.octet = octet
  }

  public var description: String {
    let hex = String(octet, radix: 16, uppercase: true)
    let found = "0x" + (octet < 16 ? "0" : "") + hex + " at octet \(offset)"
    return switch reason {
    case .packetType:
      "The peer does not speak H4: \(found) is not a packet type; check that an HCI controller is at that address."
    case .length(let length):
      "The peer does not speak H4: the packet of type \(found) announces \(length) octets; check what is at that address."
    case .noResetAnswer(let octets):
      "No answer to HCI_Reset among \(octets) octets: check that an HCI controller is at that address."
    }
  }
}
