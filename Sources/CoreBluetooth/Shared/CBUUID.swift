import BindruneBroker
public import CoreFoundation
public import Foundation

/// A UUID of services, characteristics and descriptors: 16, 32 or 128 bits.
///
/// The forms of one UUID are equal and hash alike: `180D`, and `0000180D-0000-1000-8000-00805F9B34FB`.
/// Core Specification, Vol 3, Part B, §2.5.1.
open class CBUUID: NSObject, NSCopying, @unchecked Sendable {
  // Sendable: it never changes.

  /// In its shortest form.
  let uuid: BluetoothUUID
  /// What `data` has: 2, 4 or 16.
  private let count: Int

  /// Generic Access and Generic Attribute, which the system has in hand: Vol 3, Part C, §12, and Part G, §7.
  static let ofSystem = [CBUUID(string: "1800"), CBUUID(string: "1801")]

  init(_ uuid: BluetoothUUID) {
    self.uuid = uuid.shortest
    let isBase = uuid.low == BluetoothUUID.baseLow && uuid.high & 0xFFFF_FFFF == BluetoothUUID.baseHigh
    count = !isBase ? 16 : uuid.high >> 48 == 0 ? 2 : 4
  }
  /// `180D`, `0000180D`, or `0000180D-0000-1000-8000-00805F9B34FB`, in either case, with `0x` in front or without.
  ///
  /// Any other string is the caller's bug: it ends the process with a sentence that names the string, as Apple's raises
  /// an exception that Swift cannot catch.
  public convenience init(string theString: String) {
    let text = theString.prefix(2).lowercased() == "0x" ? theString.dropFirst(2) : Substring(theString)
    let groups = text.split(separator: "-", omittingEmptySubsequences: false).map(\.utf8.count)
    let digits = text.filter { $0 != "-" }
    var bytes: [UInt8] = [], rest = Substring(digits)
    while let byte = UInt8(rest.prefix(2), radix: 16), rest.utf8.count >= 2 {
      bytes.append(byte)
      rest = rest.dropFirst(2)
    }
    let isWhole = rest.isEmpty && ([[4], [8], [8, 4, 4, 4, 12]].contains(groups))
    guard isWhole, bytes.count * 2 == digits.utf8.count, !digits.contains("+") else {
      // The initialiser cannot fail in Apple's API, and a made-up UUID would hide the mistake.
      fatalError("CBUUID(string: \"\(theString)\"): a UUID is 4 or 8 hexadecimal digits, or 32 as 8-4-4-4-12")
    }
    self.init(checked: bytes)
  }
  /// 2, 4 or 16 octets, the most significant first. Any other number is the caller's bug and ends the process, as with
  /// `init(string:)`.
  public convenience init(data theData: Data) {
    guard [2, 4, 16].contains(theData.count) else {
      fatalError("CBUUID(data:) of \(theData.count) octets: a UUID has 2, 4 or 16")
    }
    self.init(checked: [UInt8](theData))
  }
  /// The same UUID as Foundation's.
  public convenience init(nsuuid theUUID: UUID) {
    self.init(checked: unsafe withUnsafeBytes(of: theUUID.uuid) { unsafe [UInt8]($0) })
  }
  /// The same UUID as Core Foundation's.
  @available(*, deprecated, message: "use init(nsuuid:)")
  public convenience init(cfuuid theUUID: CFUUID) {
    self.init(checked: unsafe withUnsafeBytes(of: CFUUIDGetUUIDBytes(theUUID)) { unsafe [UInt8]($0) })
  }
  /// `0000`: for subclasses that stand in for one.
  public override init() { (uuid, count) = (BluetoothUUID(), 2) }
  private convenience init(checked bytes: [UInt8]) {
    guard bytes.count == 2 || bytes.count == 4 else {
      let high = bytes[..<8].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
      self.init(.long(low: bytes[8...].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }, high: high))
      return
    }
    self.init(BluetoothUUID(bytes.reduce(UInt32(0)) { $0 << 8 | UInt32($1) }))
  }

  /// Its octets, the most significant first: 2 or 4 where it derives from the Bluetooth Base UUID, else 16.
  open var data: Data {
    let octets = [uuid.high, uuid.low].flatMap { word in
      stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: word >> UInt64($0)) }
    }
    switch count {
    case 2: return Data(octets[2..<4])
    case 4: return Data(octets[..<4])
    default: return Data(octets)
    }
  }
  /// `180D`, `12345678`, or `F000AA00-0451-4000-B000-000000000000`.
  open var uuidString: String {
    let digits = data.map { byte -> String in (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true) }
    guard count == 16 else { return digits.joined() }
    return [0..<4, 4..<6, 6..<8, 8..<10, 10..<16].map { digits[$0].joined() }.joined(separator: "-")
  }

  open func copy(with zone: NSZone? = nil) -> Any { self }
  open override func isEqual(_ object: Any?) -> Bool { (object as? CBUUID)?.uuid == uuid }
  open override var hash: Int { uuid.hashValue }
  /// As Apple prints it: the UUID, or the name of one that is assigned.
  open override var description: String { uuid.assignedName ?? uuidString }
}
