import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # CheckLink
/// **Overview**: what a trace shows about one connection, for ``Checker``. Fields that are nil are not known.
struct CheckLink {
  enum Transport { case le, classic, unknown }
  enum Role { case central, peripheral }

  var handle: UInt16
  var transport: Transport
  /// The trace shows its beginning: nothing happened before.
  var isFromStart: Bool
  /// It is a connection: data of the controller alone may be its manufacturer's.
  var isConfirmed: Bool
  /// An event that could not be read may have been its end.
  var mayHaveEnded = false
  /// The host's.
  var role: Role?
  /// The device at the other end.
  var peer: DeviceAddress?
  var isEncrypted: Bool?
  /// In nanoseconds. Vol 6, Part B, §4.5.2.
  var supervisionTimeout = Self.longestSupervisionTimeout
  private static var longestSupervisionTimeout: Int64 { 32_000_000_000 }

  // ACL packets that the host sent and the controller has not completed.
  var sent: Int? = 0

  // Encryption.
  /// The host has started encryption, or given the key for it.
  var hasEncryptionCause = false
  /// The controller waits for a Long Term Key.
  var keyRequested: Bool? = false

  var signals = CheckSignals()
  var attributes: CheckAttributes
  var pairing = CheckPairing()

  init(_ handle: UInt16, _ transport: Transport, isFromStart: Bool) {
    self.handle = handle
    self.transport = transport
    self.isFromStart = isFromStart
    isConfirmed = isFromStart
    isEncrypted = isFromStart ? false : nil
    attributes = CheckAttributes(isFromStart: isFromStart)
    signals.isFromStart = isFromStart
  }

  /// Who sends Pairing Request: the Central. Vol 3, Part H, §2.4.6.
  func isCentral(_ direction: HCIDirection) -> Bool? { role.map { ($0 == .central) == (direction == .fromHost) } }

  mutating func receive(
    _ frame: TraceFrame, _ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport
  ) {
    guard transport != .classic, isConfirmed else { return }
    if direction == .fromController { isAlive(&report) } else { timePasses(&report) }
    let channel = frame.channel
    if transport == .le {
      signals.timePasses(&report)
      signals.channel(channel.rawValue, direction, &report)
    }
    switch channel {
    case .attribute:
      guard frame.isWhole else { return attributes.lose(on: .attribute) }
      attributes.receive(.attribute, direction, payload, isEncrypted: isEncrypted, &report)
    case .leSignaling:
      guard frame.isWhole else { return signals.lose() }
      let before = signals.hostChannels
      signals.receive(direction, payload, isCentral: isCentral(direction), &report)
      let after = signals.hostChannels
      for channel in before where !after.contains(channel) { attributes.close(channel) }
    case .securityManager:
      guard frame.isWhole else { return pairing.lose() }
      pairing.receive(
        direction, payload, isCentral: isCentral(direction), isEncrypted: isEncrypted, isFromStart: isFromStart, &report
      )
    // Dynamically allocated: Vol 3, Part A, §2.1, Table 2.2.
    case _ where frame.isWhole && (0x0040...0x007F).contains(channel.rawValue):
      signals.data(channel.rawValue, direction, payload, &report)
    default: break
    }
  }

  /// A PDU of an enhanced bearer.
  mutating func enhancedPDU(
    _ frame: TraceFrame, _ direction: HCIDirection, _ pdu: Span<UInt8>, _ report: inout CheckReport
  ) {
    guard isConfirmed, let bearer = frame.bearer else { return }
    guard frame.isWhole else { return attributes.lose(on: bearer) }
    attributes.receive(
      bearer, direction, pdu, mtu: signals.bearerMTU(bearer), isEncrypted: isEncrypted, &report)
  }

  /// A packet of the connection is not known.
  mutating func lose() {
    attributes.lose()
    signals.lose()
    pairing.lose()
  }
  mutating func loseEncryption() {
    isEncrypted = nil
    attributes.isBonded()
    pairing.lose()
  }

  // MARK: Time

  /// The peer is there at this time.
  mutating func isAlive(_ report: inout CheckReport) { attributes.timePasses(lastSeen: report.time, &report) }
  /// It may have vanished since.
  mutating func timePasses(_ report: inout CheckReport) {
    let (connection, peer) = (report.connection, report.peer)
    report.of(self)
    attributes.timePasses(lastSeen: report.time &- supervisionTimeout, &report)
    (report.connection, report.peer) = (connection, peer)
  }

  // MARK: Encryption

  /// The host starts encryption, or gives the key for it.
  mutating func encryptionStarts() {
    hasEncryptionCause = true
    if !pairing.isAfterPhase2 { attributes.isBonded() }
  }
  /// The link's encryption changed.
  mutating func encryptionChanged(_ isOn: Bool) {
    if isOn, !pairing.isAfterPhase2 { attributes.isBonded() }
    isEncrypted = isOn
  }
}

extension CheckReport {
  /// What is judged now is about this connection.
  mutating func of(_ link: CheckLink) { (connection, peer) = (link.handle, link.peer) }
}
