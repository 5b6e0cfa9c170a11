import BindruneWire
import HCI

/// One advertiser: that of the legacy commands, or an advertising set. Vol 6, Part B, §4.4.2.
struct Advertiser {
  /// Advertising_Handle; `nil` for that of the legacy commands.
  var handle: UInt8?
  var isEnabled = false
  /// The number of its last start, so that what was planned for an earlier one is known to be late.
  var generation: UInt32 = 0
  /// Whether it sends legacy PDUs.
  var isLegacy = true
  var isConnectable = true, isScannable = true, isDirected = false, isHighDuty = false
  /// Without its address; with its transmit power.
  var isAnonymous = false, tellsPower = false
  /// In dBm.
  var power: Int8 = 0
  /// Units of 0.625 ms.
  var interval: UInt32 = 0x0800
  var ownAddressType = OwnAddressType()
  var randomAddress: DeviceAddress?
  var peer = AirAddress(isRandom: false, DeviceAddress())
  /// Bit 0 is channel 37.
  var channelMap: UInt8 = 7
  /// Whom it answers: bit 0 scan requests, bit 1 connect requests only from the Filter Accept List.
  var filterPolicy: UInt8 = 0
  var data: [UInt8] = [], scanResponse: [UInt8] = []
  /// Advertising Set ID, and Data ID, which changes with the data.
  var sid: UInt8 = 0, did: UInt16 = 0
  /// Advertising events since the start, and how many there may be; 0: any number.
  var events = 0, maximumEvents = 0

  init(handle: UInt8? = nil) { self.handle = handle }

  /// advInterval; at most 3.75 ms when the duty cycle is high. Vol 6, Part B, §4.4.2.4.3.
  var period: Duration { isHighDuty ? .microseconds(3750) : .microseconds(625 * Int64(interval)) }
  /// Vol 6, Part B, §4.4.2.4.3.
  static var highDutyLimit: Duration { .milliseconds(1280) }
  /// Event_Type of a legacy report. Vol 4, Part E, §7.7.65.2.
  var legacyType: AdvertisingEventType {
    if isDirected { return .connectableDirected }
    if isConnectable { return .connectableScannableUndirected }
    return isScannable ? .scannableUndirected : .nonConnectableUndirected
  }
}

// Extended advertising. Vol 4, Part E, §7.8.52 – §7.8.60.

extension VirtualController {
  static var maximumAdvertisingData: Int { 1650 }
  static var advertisingSets: Int { 8 }
  fileprivate func set(_ handle: UInt8) -> Int? { advertisers.firstIndex { $0.handle == handle } }
}
extension LESetExtendedAdvertisingParameters: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    let existing = controller.set(advertisingHandle)
    if let existing, controller.advertisers[existing].isEnabled { return Return(.commandDisallowed) }
    guard advertisingHandle <= 0xEF, ownAddressType.rawValue <= 3, peerAddressType.rawValue <= 1,
      advertisingFilterPolicy.rawValue <= 3, (1...7).contains(primaryAdvertisingChannelMap), advertisingSID <= 15,
      primaryAdvertisingIntervalMin.value >= 0x20,
      primaryAdvertisingIntervalMin.value <= primaryAdvertisingIntervalMax.value, isPossible
    else { return Return(.invalidHCICommandParameters) }
    guard primaryAdvertisingPHY == .le1M, legacy || secondaryAdvertisingPHY == .le1M else {
      return Return(.unsupportedFeatureOrParameterValue)
    }
    if existing == nil, controller.advertisers.count > VirtualController.advertisingSets {
      return Return(.memoryCapacityExceeded)
    }
    var set = existing.map { controller.advertisers[$0] } ?? Advertiser(handle: advertisingHandle)
    set.isLegacy = legacy
    set.isConnectable = connectable
    set.isScannable = scannable
    set.isDirected = directed
    set.isHighDuty = highDutyCycle
    set.isAnonymous = anonymous
    set.tellsPower = includeTxPower
    set.power = controller.configuration.transmitPower
    set.interval = primaryAdvertisingIntervalMin.value
    set.ownAddressType = ownAddressType
    set.peer = AirAddress(peerAddressType, peerAddress)
    set.channelMap = primaryAdvertisingChannelMap
    set.filterPolicy = advertisingFilterPolicy.rawValue
    set.sid = advertisingSID
    if let existing { controller.advertisers[existing] = set } else { controller.advertisers.append(set) }
    var result = Return(.success)
    result.selectedTXPower = controller.configuration.transmitPower
    return result
  }
  /// Legacy PDUs exist in five kinds; an extended advertisement is not both connectable and scannable.
  private var isPossible: Bool {
    let kind =
      (connectable ? 1 : 0) | (scannable ? 2 : 0) | (directed ? 4 : 0) | (highDutyCycle ? 8 : 0)
    if legacy { return [0b0011, 0b0101, 0b1101, 0b0010, 0b0000].contains(kind) && !anonymous }
    return kind & 0b1011 <= 2 && !(anonymous && kind & 3 != 0)
  }
}
struct LESetAdvertisingSetRandomAddress: Unspoken {
  static var number: UInt16 { 0x2035 }
  var advertisingHandle: UInt8 = 0, randomAddress = DeviceAddress()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
    try visit.value("Random_Address", &randomAddress)
  }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    guard let set = controller.set(advertisingHandle) else { return Return(.unknownAdvertisingIdentifier) }
    if controller.advertisers[set].isEnabled, controller.advertisers[set].isConnectable {
      return Return(.commandDisallowed)
    }
    controller.advertisers[set].randomAddress = randomAddress
    return Return(.success)
  }
}
/// What LE Set Extended Advertising Data and LE Set Extended Scan Response Data have in common.
private struct DataPiece {
  var handle: UInt8 = 0, operation: UInt8 = 0, fragmentPreference: UInt8 = 0, data = Octets()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &handle)
    try visit.value("Operation", &operation)
    try visit.value("Fragment_Preference", &fragmentPreference)
    try visit.octets("Data_Length", UInt8.self, "Data", &data)
  }
  /// 0 a piece in the middle, 1 the first, 2 the last, 3 all, 4 unchanged data under a new DID.
  func put(
    _ part: WritableKeyPath<Advertiser, [UInt8]>, _ controller: inout VirtualController, _ packet: Span<UInt8>
  ) -> HCIStatus {
    guard controller.uses(.extended) else { return .commandDisallowed }
    guard let index = controller.set(handle) else { return .unknownAdvertisingIdentifier }
    var set = controller.advertisers[index]
    guard operation <= 4, operation != 4 || (set.isEnabled && data.isEmpty && !set.isLegacy),
      !set.isLegacy || (operation == 3 && data.count <= 31)
    else { return .invalidHCICommandParameters }
    if set.isEnabled, operation < 3 { return .commandDisallowed }
    if operation == 1 || operation == 3 { set[keyPath: part] = [] }
    guard set[keyPath: part].count + Int(data.count) <= VirtualController.maximumAdvertisingData else {
      return .memoryCapacityExceeded
    }
    for i in 0..<Int(data.count) { set[keyPath: part].append(data.byte(i, in: packet)) }
    set.did &+= 1
    controller.advertisers[index] = set
    return .success
  }
}
struct LESetExtendedAdvertisingData: Unspoken {
  static var number: UInt16 { 0x2037 }
  private var piece = DataPiece()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try piece.fields(&visit) }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    Return(piece.put(\.data, &controller, packet))
  }
}
struct LESetExtendedScanResponseData: Unspoken {
  static var number: UInt16 { 0x2038 }
  private var piece = DataPiece()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try piece.fields(&visit) }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    Return(piece.put(\.scanResponse, &controller, packet))
  }
}
struct LESetExtendedAdvertisingEnable: Unspoken {
  static var number: UInt16 { 0x2039 }
  var enable = false, sets = List<Set>()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Enable", &enable)
    try visit.list("Num_Sets", "Sets", counted: &sets)
  }
  /// Duration in units of 10 ms, 0 for none.
  struct Set: WireRecord {
    var advertisingHandle: UInt8 = 0, duration: UInt16 = 0, maxExtendedAdvertisingEvents: UInt8 = 0
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Advertising_Handle", &advertisingHandle)
      try visit.value("Duration", &duration)
      try visit.value("Max_Extended_Advertising_Events", &maxExtendedAdvertisingEvents)
    }
  }
  /// All sets are looked at before the first one is started.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    var cursor = sets.cursor, chosen: [(index: Int, set: Set)] = []
    while let set = cursor.next(in: packet) {
      guard let index = controller.set(set.advertisingHandle) else { return Return(.unknownAdvertisingIdentifier) }
      if chosen.contains(where: { $0.index == index }) { return Return(.invalidHCICommandParameters) }
      chosen.append((index, set))
      guard enable else { continue }
      let advertiser = controller.advertisers[index]
      if controller.address(of: advertiser) == nil { return Return(.invalidHCICommandParameters) }
      if advertiser.isHighDuty, !(1...128).contains(set.duration) { return Return(.invalidHCICommandParameters) }
      if !advertiser.isLegacy, advertiser.isScannable, advertiser.scanResponse.isEmpty {
        return Return(.commandDisallowed)
      }
      if advertiser.isConnectable, controller.isFull { return Return(.connectionLimitExceeded) }
    }
    if enable, chosen.isEmpty { return Return(.invalidHCICommandParameters) }
    if !enable {
      // No set named: all of them.
      for index in controller.advertisers.indices where chosen.isEmpty || chosen.contains(where: { $0.index == index })
      {
        controller.advertisers[index].isEnabled = false
      }
      return Return(.success)
    }
    for (index, set) in chosen {
      controller.advertisers[index].maximumEvents = Int(set.maxExtendedAdvertisingEvents)
      let duration = set.duration > 0 ? Duration.milliseconds(10 * Int64(set.duration)) : nil
      controller.startAdvertising(index, &medium, duration: duration)
    }
    return Return(.success)
  }
}
struct LEReadMaximumAdvertisingDataLength: Unspoken {
  static var number: UInt16 { 0x203A }
  struct Return: CommandReturn {
    var status = HCIStatus(), maxAdvertisingDataLength: UInt16 = 0
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Max_Advertising_Data_Length", &maxAdvertisingDataLength)
    }
  }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    var result = Return(.success)
    result.maxAdvertisingDataLength = UInt16(VirtualController.maximumAdvertisingData)
    return result
  }
}
struct LEReadNumberOfSupportedAdvertisingSets: Unspoken {
  static var number: UInt16 { 0x203B }
  struct Return: CommandReturn {
    var status = HCIStatus(), numSupportedAdvertisingSets: UInt8 = 0
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Num_Supported_Advertising_Sets", &numSupportedAdvertisingSets)
    }
  }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    var result = Return(.success)
    result.numSupportedAdvertisingSets = UInt8(VirtualController.advertisingSets)
    return result
  }
}
struct LERemoveAdvertisingSet: Unspoken {
  static var number: UInt16 { 0x203C }
  var advertisingHandle: UInt8 = 0
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
  }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    guard let set = controller.set(advertisingHandle) else { return Return(.unknownAdvertisingIdentifier) }
    if controller.advertisers[set].isEnabled { return Return(.commandDisallowed) }
    controller.advertisers.remove(at: set)
    return Return(.success)
  }
}
struct LEClearAdvertisingSets: Unspoken {
  static var number: UInt16 { 0x203D }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended), !controller.advertisers.contains(where: \.isEnabled) else {
      return Return(.commandDisallowed)
    }
    controller.advertisers.removeAll { $0.handle != nil }
    return Return(.success)
  }
}
