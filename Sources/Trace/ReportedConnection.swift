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
    case .unknownLE(0x29, _) where bytes.count >= 34:
      guard let event = try? WireDecoder.decode(LEEnhancedConnectionComplete.self, bytes, from: 4, to: 34) else {
        return nil
      }
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
