import BindruneWire
import BindruneHCI

/// What all events that report an LE connection have. Vol 4, Part E, §7.7.65.1 and §7.7.65.10.
struct ReportedConnection {
  var status: HCIStatus
  var handle: ConnectionHandle
  var role: LinkRole
  var peerType: AddressType
  var peer: DeviceAddress
  var interval: ConnectionInterval
  var latency: UInt16
  var timeout: SupervisionTimeout

  /// Nil for other events. Version 2 of LE Enhanced Connection Complete, which the host does not have, begins as
  /// version 1: 30 octets behind the subevent code.
  init?(_ event: HCIEvent, _ bytes: Span<UInt8>) {
    switch event {
    case .leConnectionComplete(let event): self.init(event)
    case .leEnhancedConnectionComplete(let event): self.init(event)
    case .unknownLE(0x29, _):
      guard let event = LEEnhancedConnectionComplete(bytes, at: 4..<34) else { return nil }
      self.init(event)
    default: return nil
    }
  }
  private init(_ event: LEConnectionComplete) {
    (status, handle, role) = (event.status, event.connectionHandle, event.role)
    (peerType, peer) = (event.peerAddressType, event.peerAddress)
    (interval, latency, timeout) = (event.connectionInterval, event.peripheralLatency, event.supervisionTimeout)
  }
  private init(_ event: LEEnhancedConnectionComplete) {
    (status, handle, role) = (event.status, event.connectionHandle, event.role)
    (peerType, peer) = (event.peerAddressType, event.peerAddress)
    (interval, latency, timeout) = (event.connectionInterval, event.peripheralLatency, event.supervisionTimeout)
  }
}

/// Connection Complete, of BR/EDR. Vol 4, Part E, §7.7.3. The host does not have it.
package struct ClassicConnectionComplete: WireRecord {
  package static var code: UInt8 { 0x03 }
  package var status = HCIStatus()
  package var connectionHandle = ConnectionHandle()
  package var bdADDR = DeviceAddress()
  package var linkType: UInt8 = 0
  package var encryptionEnabled: UInt8 = 0
  package init() {}
  package mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("BD_ADDR", &bdADDR)
    try visit.value("Link_Type", &linkType)
    try visit.value("Encryption_Enabled", &encryptionEnabled)
  }
  /// Nil for other events, and for one of another length.
  package init?(_ event: HCIEvent, _ bytes: Span<UInt8>) {
    guard case .unknown(Self.code, let parameters) = event else { return nil }
    self.init(bytes, at: parameters.range)
  }
}
