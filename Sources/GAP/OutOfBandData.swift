import BindruneToolbox
import BindruneWire
import BindruneSMP

// What devices that pair tell each other out of band, as AD structures: an NFC tag or a printed code has them. Core
// Specification Supplement, Part A; Vol 3, Part H, §2.3.5.4, §2.3.5.6.4.
extension PeersOutOfBandData {
  /// The peer's values for LE Secure Connections, otherwise its temporary key for legacy pairing; nil: it has neither.
  public init?(_ data: AdvertisingData) {
    func key(_ type: ADType) -> SecurityKey? {
      guard let octets = data.data(of: type), octets.count == 16 else { return nil }
      return SecurityKey(leastSignificantFirst: octets.span)
    }
    if let confirm = key(.leSecureConnectionsConfirmationValue), let random = key(.leSecureConnectionsRandomValue) {
      self = .secureConnections(confirm: confirm.number, random: random)
    } else if let key = key(.securityManagerTKValue) {
      self = .legacy(key)
    } else {
      return nil
    }
  }
  /// The structures. They contain secrets.
  public var structures: [AdvertisingData.Structure] {
    func structure(_ type: ADType, _ number: UInt128) -> AdvertisingData.Structure {
      let octets = number.leastSignificantFirst
      return AdvertisingData.Structure(type: type, data: octets.indices.map { octets[$0] })
    }
    return switch self {
    case .legacy(let key): [structure(.securityManagerTKValue, key.number)]
    case .secureConnections(let confirm, let random):
      [
        structure(.leSecureConnectionsConfirmationValue, confirm),
        structure(.leSecureConnectionsRandomValue, random.number),
      ]
    }
  }
}
