import BindruneWire
import BindruneHCI

/// What can be set only while a set is off: the parameters of one command, legacy or extended. Vol 4, Part E, §7.8.5,
/// §7.8.53.
struct AdvertisingSettings: BitwiseCopyable, Equatable {
  var properties: AdvertisingProperties
  /// Legacy commands use the same units and fewer bits.
  var intervalMin: PrimaryAdvertisingInterval, intervalMax: PrimaryAdvertisingInterval
  var ownAddressType: OwnAddressType
  var peer: PeerAddress?
  /// In dBm.
  var txPower: Int8?

  init(_ parameters: AdvertisingParameters, usesLegacyPDUs: Bool, ownAddressType: OwnAddressType) {
    properties = AdvertisingProperties(parameters.kind, usesLegacyPDUs: usesLegacyPDUs)
    let range = parameters.interval.range(parameters.kind)
    (intervalMin, intervalMax) = (
      PrimaryAdvertisingInterval(range.lowerBound), PrimaryAdvertisingInterval(range.upperBound)
    )
    self.ownAddressType = ownAddressType
    peer = parameters.kind.peer
    txPower = parameters.txPower
  }
}

/// Advertising_Event_Properties: the type of a set's PDUs. Vol 4, Part E, §7.8.53.
struct AdvertisingProperties: BitwiseCopyable, Equatable {
  var isConnectable = false, isScannable = false, isDirected = false, isHighDutyCycle = false
  var usesLegacyPDUs: Bool

  init(_ kind: AdvertisingParameters.Kind, usesLegacyPDUs: Bool) {
    self.usesLegacyPDUs = usesLegacyPDUs
    switch kind {
    case .connectable:
      isConnectable = true
      // Extended PDUs cannot be connectable and scannable at once.
      isScannable = usesLegacyPDUs
    case .scannable: isScannable = true
    case .nonconnectable: break
    case .directed, .directedHighDutyCycle:
      isConnectable = true
      isDirected = true
      isHighDutyCycle = kind.isHighDutyCycle
    }
  }
  /// Whether a set may hold advertising data.
  var takesData: Bool { usesLegacyPDUs ? !isDirected : !isScannable }
  var takesScanResponse: Bool { isScannable }
}

extension AdvertisingParameters.Kind {
  var isHighDutyCycle: Bool { if case .directedHighDutyCycle = self { true } else { false } }
  var isConnectable: Bool { self == .connectable || peer != nil }
  /// The only device that may connect.
  var peer: PeerAddress? {
    switch self {
    case .directed(let peer), .directedHighDutyCycle(let peer): peer
    case .connectable, .scannable, .nonconnectable: nil
    }
  }
}
extension LESetAdvertisingParameters {
  init(_ settings: AdvertisingSettings) {
    self.init()
    // High duty cycle advertising ignores them.
    advertisingIntervalMin = AdvertisingInterval(settings.intervalMin.duration)
    advertisingIntervalMax = AdvertisingInterval(settings.intervalMax.duration)
    let properties = settings.properties
    advertisingType =
      if properties.isDirected {
        properties.isHighDutyCycle ? .connectableDirectedHighDutyCycle : .connectableDirectedLowDutyCycle
      } else if properties.isConnectable {
        .connectableScannableUndirected
      } else {
        properties.isScannable ? .scannableUndirected : .nonConnectableUndirected
      }
    ownAddressType = settings.ownAddressType
    if let peer = settings.peer {
      peerAddressType = peer.isRandom ? .random : .public
      peerAddress = peer.address
    }
  }
}
extension LESetExtendedAdvertisingParameters {
  init(_ settings: AdvertisingSettings, handle: UInt8) {
    self.init()
    advertisingHandle = AdvertisingHandle(handle)
    connectable = settings.properties.isConnectable
    scannable = settings.properties.isScannable
    directed = settings.properties.isDirected
    highDutyCycle = settings.properties.isHighDutyCycle
    legacy = settings.properties.usesLegacyPDUs
    primaryAdvertisingIntervalMin = settings.intervalMin
    primaryAdvertisingIntervalMax = settings.intervalMax
    ownAddressType = settings.ownAddressType
    if let peer = settings.peer {
      peerAddressType = peer.isRandom ? .random : .public
      peerAddress = peer.address
    }
    advertisingTxPower = settings.txPower ?? 127
    advertisingSID = handle
  }
}
