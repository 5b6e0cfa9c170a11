import BindruneGAP
import BindruneHCI
import BindruneWire

/// # CheckAdvertisingData
/// **Overview**: judges advertising data, of the host and of the devices around it, for ``Checker``. CSS, Part A; Vol
/// 3, Part C, §11.
///
/// **Function**: one pass over the structures, without an allocation while the data is sound. A device repeats its data
/// several times a second, so each device has one finding of each rule.
struct CheckAdvertisingData {
  /// Findings that are remembered, so that they are not repeated; the repetitions of further ones are reported.
  static var mostKnown: Int { 4_096 }
  /// A device and a rule that it broke, as one number.
  private var known: Set<UInt64> = []

  /// Whose data it is, and in which kind of packet.
  private struct Source {
    var isScanResponse: Bool
    var party: CheckFinding.Party
    var device: UInt64?
  }

  /// Data of the host's own (`device` is nil), or of a device that a report names. `data` is a range of `bytes`.
  mutating func receive(
    _ data: Range<Int>, of bytes: Span<UInt8>, isScanResponse: Bool, by party: CheckFinding.Party, device: UInt64?,
    _ report: inout CheckReport
  ) {
    guard data.lowerBound >= 0, data.upperBound <= bytes.count else { return }
    let source = Source(isScanResponse: isScanResponse, party: party, device: device)
    var (at, present) = (data.lowerBound, 0 as UInt16)
    while at < data.upperBound {
      let length = Int(bytes[at])
      // The data may end early; the octets behind its end mean nothing.
      guard length > 0 else {
        let stray = (at..<data.upperBound).first { bytes[$0] != 0 }
        return judge(
          .structureEnd, stray == nil, source, &report,
          seen: "\(code(bytes[stray ?? at])) behind a length of 0", allowed: "octets of 0")
      }
      let (first, end) = (at + 2, at + 1 + length)
      judge(
        .structureLength, end <= data.upperBound, source, &report,
        seen: "a length of \(length) with \(data.upperBound - at - 1) octets behind it",
        allowed: "at most \(data.upperBound - at - 1)")
      guard end <= data.upperBound else { return }
      structure(ADType(rawValue: bytes[at + 1]), bytes.extracting(first..<end), source, &present, &report)
      at = end
    }
  }

  private mutating func structure(
    _ type: ADType, _ value: Span<UInt8>, _ source: Source, _ present: inout UInt16, _ report: inout CheckReport
  ) {
    if source.isScanResponse {
      judge(
        .flagsInScanResponse, type != .flags, source, &report, seen: "Flags in a scan response",
        allowed: "no Flags there"
      )
    }
    judge(
      .structureContext, !Self.isElsewhere(type), source, &report, seen: "\(Self.name(type)) in advertising data",
      allowed: "this type in out-of-band data, inquiry responses or the controller's advertising data")
    if let bit = Self.single(type) {
      judge(
        .structureOnce, present & bit == 0, source, &report, seen: "\(Self.name(type)) a second time",
        allowed: "it once")
      present |= bit
    }
    if let sizes = Self.sizes(type) {
      judge(
        .structureSize, sizes.contains(value.count), source, &report,
        seen: "\(Self.name(type)) of \(value.count) octets",
        allowed: sizes.count == 1 ? "\(sizes.lowerBound) octets" : "\(sizes.lowerBound) to \(sizes.upperBound) octets")
    }
    switch type {
    case .flags where !value.isEmpty:
      judge(
        .flagsModes, value[0] & 0x03 != 0x03, source, &report, seen: "Flags \(code(value[0])), with both modes",
        allowed: "LE Limited Discoverable Mode (bit 0) or LE General Discoverable Mode (bit 1)")
    case .incompleteServiceUUIDs16, .completeServiceUUIDs16, .solicitationUUIDs16:
      list(2, type, value, source, &report)
    case .incompleteServiceUUIDs32, .completeServiceUUIDs32, .solicitationUUIDs32:
      list(4, type, value, source, &report)
    case .incompleteServiceUUIDs128, .completeServiceUUIDs128, .solicitationUUIDs128:
      list(16, type, value, source, &report)
    case .shortenedLocalName, .completeLocalName:
      judge(
        .nameText, Self.isText(value), source, &report,
        seen: "\(Self.name(type)) with octets that are not UTF-8", allowed: "UTF-8")
    case .peripheralConnectionIntervalRange where value.count == 4: intervals(value, source, &report)
    case .serviceData16: service(2, type, value, source, &report)
    case .serviceData32: service(4, type, value, source, &report)
    case .serviceData128: service(16, type, value, source, &report)
    case .publicTargetAddress, .randomTargetAddress:
      judge(
        .structureSize, value.count % 6 == 0, source, &report, seen: "\(Self.name(type)) of \(value.count) octets",
        allowed: "addresses of 6 octets each")
    case .manufacturerData:
      judge(
        .manufacturerShape, value.count >= 2, source, &report,
        seen: "Manufacturer Specific Data of \(value.count) octets", allowed: "2 octets or more")
    default: break
    }
  }

  private mutating func list(
    _ width: Int, _ type: ADType, _ value: Span<UInt8>, _ source: Source, _ report: inout CheckReport
  ) {
    judge(
      .uuidListShape, value.count % width == 0, source, &report, seen: "\(Self.name(type)) of \(value.count) octets",
      allowed: "UUIDs of \(width) octets each")
  }
  private mutating func service(
    _ width: Int, _ type: ADType, _ value: Span<UInt8>, _ source: Source, _ report: inout CheckReport
  ) {
    judge(
      .serviceDataShape, value.count >= width, source, &report, seen: "\(Self.name(type)) of \(value.count) octets",
      allowed: "a UUID of \(width) octets, then the data")
  }
  /// 0xFFFF states no preference, so it has no order.
  private mutating func intervals(_ value: Span<UInt8>, _ source: Source, _ report: inout CheckReport) {
    let (least, most) = (value.little16(0), value.little16(2))
    func isInterval(_ number: UInt16) -> Bool { (0x0006...0x0C80).contains(number) || number == 0xFFFF }
    judge(
      .intervalRange, isInterval(least) && isInterval(most) && (least <= most || least == 0xFFFF), source, &report,
      seen: "\(code(least, 4)) to \(code(most, 4))", allowed: "0x0006 to 0x0C80, or 0xFFFF, in order")
  }

  private mutating func judge(
    _ rule: CheckRule, _ holds: Bool, _ source: Source, _ report: inout CheckReport, seen: @autoclosure () -> String,
    allowed: @autoclosure () -> String
  ) {
    report.judge(rule, holds || !isNew(rule, source), by: source.party, seen: seen(), allowed: allowed())
  }
  /// The host sets its data rarely, and is to hear of each time.
  private mutating func isNew(_ rule: CheckRule, _ source: Source) -> Bool {
    if source.party == .host { return true }
    let key = (source.device ?? UInt64.max >> 8) << 8 | UInt64(rule.rawValue)
    if known.contains(key) { return false }
    if known.count < Self.mostKnown { known.insert(key) }
    return true
  }

  // MARK: Types

  private static func name(_ type: ADType) -> String { "AD type \(code(type.rawValue))" }

  /// A bit for each type that a block has at most once. CSS, Part A, Table 1.1, C.1 and C.2.
  private static func single(_ type: ADType) -> UInt16? {
    switch type {
    case .flags: 1 << 0
    case .shortenedLocalName: 1 << 1
    case .completeLocalName: 1 << 2
    case .publicTargetAddress: 1 << 3
    case .randomTargetAddress: 1 << 4
    case .appearance: 1 << 5
    case .advertisingInterval: 1 << 6
    case .leSupportedFeatures: 1 << 7
    case .advertisingIntervalLong: 1 << 8
    default: nil
    }
  }
  /// Table 1.1 reserves these in advertising data and in scan response data.
  private static func isElsewhere(_ type: ADType) -> Bool {
    switch type {
    // Out-of-band data.
    case .classOfDevice, .simplePairingHashC192, .simplePairingRandomizerR192, .securityManagerTKValue,
      .securityManagerOutOfBandFlags, .leBluetoothDeviceAddress, .leRole, .simplePairingHashC256,
      .simplePairingRandomizerR256, .leSecureConnectionsConfirmationValue, .leSecureConnectionsRandomValue,
      .broadcastCode:
      true
    // What the controllers of two devices tell each other.
    case .channelMapUpdateIndication, .bigInfo, .periodicAdvertisingResponseTimingInformation: true
    default: false
    }
  }
  /// The octets of a type whose size is fixed. CSS, Part A; of the Resolvable Set Identifier, the profile of sets.
  private static func sizes(_ type: ADType) -> ClosedRange<Int>? {
    switch type {
    case .txPowerLevel: 1...1  // §1.5
    case .peripheralConnectionIntervalRange: 4...4  // §1.9
    case .appearance: 2...2  // §1.12
    case .advertisingInterval: 2...2  // §1.15
    case .resolvableSetIdentifier: 6...6
    case .advertisingIntervalLong: 3...4  // §1.15
    case .encryptedAdvertisingData: 9...254  // Randomizer and MIC, §1.23
    default: nil
    }
  }
  /// UTF-8. A name that is shortened ends behind a character, too.
  static func isText(_ value: Span<UInt8>) -> Bool {
    do throws(UTF8.ValidationError) {
      _ = try UTF8Span(validating: value)
      return true
    } catch { return false }
  }
}
