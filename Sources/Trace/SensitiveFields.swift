import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneHCI

/// A field of a packet that identifies a device or a person, protects a link, or is chance.
struct SensitiveField {
  enum Kind: Hashable {
    /// Six octets; `isRandom` is nil where the packet does not say.
    case address(isRandom: Bool?)
    /// Text, perhaps with zeros behind it.
    case name
    /// A key of 16 octets, or a DHKey.
    case key
    /// What a key is found by: Rand and EDIV, and the random numbers of controllers.
    case keyIdentifier
    /// Numbers of a pairing that chance makes: Random Value, a PIN's digits, a hash and a randomizer out of band.
    case pairingRandom
    case confirm
    case check
    /// X, then Y.
    case publicKey
    case signature
    /// The connection handle, in the lower 12 bits.
    case handle
    case signalStrength
    /// Octets of an application: an attribute's value, manufacturer or service data.
    case value
    /// Octets that no declaration describes; the label says what they belong to.
    case opaque
  }
  var kind: Kind
  var range: Range<Int>
  var label: String
}

extension SensitiveField {
  /// The fields of `octets`, in their order. An ACL packet has its header's only: its frame has its own.
  static func find(in octets: [UInt8], as form: Explanation.Form) -> [SensitiveField] {
    guard !octets.isEmpty, octets.count <= 0xFFFF else { return [] }
    if form == .hci {
      switch HCIPacketType(rawValue: octets[0]) {
      case .acl, .synchronous, .iso:
        return octets.count >= 3 ? [SensitiveField(kind: .handle, range: 1..<3, label: "Connection_Handle")] : []
      default: break
      }
      if let table = ClassicFields.find(octets) { return table }
    }
    let explanation = Explanation(of: octets, as: form)
    var fields: [SensitiveField] = [], isRandom: Bool?, adType: UInt8?, layer = ""
    for row in explanation.rows {
      if row.kind == .layer || row.kind == .entry {
        (isRandom, adType) = (nil, nil)
        if row.kind == .layer { layer = row.label }
        continue
      }
      guard row.kind == .field || row.kind == .wrong || row.kind == .bits, row.bit % 8 == 0, row.width >= 8 else {
        continue
      }
      let range = row.bit / 8..<min(octets.count, (row.bit + row.width) / 8)
      if range.isEmpty { continue }
      func add(_ kind: Kind) { fields.append(SensitiveField(kind: kind, range: range, label: row.label)) }
      if row.kind == .wrong {
        // What was refused may be anything.
        fields.append(SensitiveField(kind: .opaque, range: range, label: "invalid octets of \(layer)"))
        continue
      }
      switch row.label {
      case "AD Type": adType = octets[range.lowerBound]
      case let label where label.hasSuffix("Address_Type") || label == "AddrType":
        // 0 and 2 are public, 1, 3 and 0xFE (not resolved) random.
        isRandom = octets[range.lowerBound] & 1 == 1 || octets[range.lowerBound] == 0xFE
        adType = nil
      case "Random_Address", "Local_Resolvable_Private_Address", "Peer_Resolvable_Private_Address",
        "Local_Resolvable_Address", "Peer_Resolvable_Address":
        add(.address(isRandom: true))
      case "Address" where range.count == 6 && adType != nil:
        // The list of public or of random target addresses, or one address with its type behind it.
        let type =
          adType == 0x1B && range.upperBound < octets.count ? octets[range.upperBound] & 1 == 1 : adType == 0x18
        add(.address(isRandom: type))
      case "BD_ADDR" where layer.contains("Read_BD_ADDR"): add(.address(isRandom: false))
      case "Address", "Peer_Address", "Peer_Identity_Address", "Direct_Address", "Scanner_Address", "BD_ADDR":
        if range.count == 6 { add(.address(isRandom: isRandom)) }
      case "Long_Term_Key", "Peer_IRK", "Local_IRK", "Key", "Long Term Key", "Identity Resolving Key", "Signature Key":
        add(.key)
      case "Random_Number", "Rand", "Encrypted_Diversifier", "EDIV": add(.keyIdentifier)
      case "Random Value", "Plaintext_Data", "Encrypted_Data": add(.pairingRandom)
      case "Confirm Value": add(.confirm)
      case "DHKey Check": add(.check)
      case "Public Key X": fields.append(SensitiveField(kind: .publicKey, range: range, label: "Public Key"))
      case "Public Key Y":
        // One field with X before it, as a point is.
        if let last = fields.indices.last, fields[last].kind == .publicKey {
          fields[last].range = fields[last].range.lowerBound..<range.upperBound
        }
      case "Authentication Signature": add(.signature)
      case "Name": add(.name)
      case "Connection_Handle": add(.handle)
      case "RSSI": add(.signalStrength)
      case "Attribute Value", "Part Attribute Value", "Set Of Values", "Length Value Tuple List": add(.value)
      case "Data" where adType != nil:
        // Out of band: hashes, randomizers, the TK, and LE's confirmation and random values.
        add([0x0E, 0x0F, 0x10, 0x1D, 0x1E, 0x22, 0x23].contains(adType) ? .pairingRandom : .value)
      case "Parameters", "Vendor_Parameters", "Return_Parameters", "Data":
        if form == .hci { fields.append(SensitiveField(kind: .opaque, range: range, label: layer)) }
      default: break
      }
    }
    return fields
  }
}

/// Commands and events of BR/EDR, and of LE beyond the ones that this stack sends, whose messages have no declaration:
/// where they hold addresses, names and keys. Vol 4, Part E, §7.1, §7.3, §7.7, §7.8.
enum ClassicFields {
  private typealias Entry = (offset: Int, count: Int, kind: SensitiveField.Kind)
  private static let address: SensitiveField.Kind = .address(isRandom: false)

  /// nil: the packet is not in the table.
  static func find(_ octets: [UInt8]) -> [SensitiveField]? {
    switch HCIPacketType(rawValue: octets[0]) {
    case .command:
      guard octets.count >= 4 else { return nil }
      let opcode = octets.span.little16(1)
      switch opcode {
      case 0x0C11: return pairs(octets, 4)
      // A BR/EDR event filter for one address: Filter_Type 1 or 2, Filter_Condition_Type 2.
      case 0x0C05:
        return octets.count >= 6 && octets[5] == 2 && octets[4] != 0 ? place([(2, 6, address)], octets, 4) : []
      case 0x0C52: return data(octets, 5)
      case 0x203F: return data(octets, 7)
      default: return command(opcode).map { place($0, octets, 4) }
      }
    case .event:
      guard octets.count >= 3 else { return nil }
      switch octets[1] {
      case 0x0E:
        guard octets.count >= 7 else { return nil }
        let opcode = octets.span.little16(4)
        if opcode == 0x0C51 { return data(octets, 8) }
        return answer(opcode).map { place($0, octets, 6) }
      case 0x3E: return octets.count >= 4 ? leEvent(octets[3]).map { place($0, octets, 4) } : nil
      case 0x15: return pairs(octets, 3)
      // One result's address is first; of several, the arrays follow each other.
      case 0x02, 0x22:
        let count = octets.count > 3 ? Int(octets[3]) : 0
        return place((0..<count).map { (1 + 6 * $0, 6, address) }, octets, 3)
      case 0x2F: return place([(1, 6, address)], octets, 3) + data(octets, 18)
      default: return event(octets[1]).map { place($0, octets, 3) }
      }
    default: return nil
    }
  }

  private static func place(_ entries: [Entry], _ octets: [UInt8], _ start: Int) -> [SensitiveField] {
    entries.compactMap { entry in
      let from = start + entry.offset, to = min(octets.count, from + entry.count)
      // A packet cut within a field still has a part of it.
      guard from < to else { return nil }
      if case .address = entry.kind, to - from < 6 {
        return SensitiveField(kind: .opaque, range: from..<to, label: "cut")
      }
      return SensitiveField(kind: entry.kind, range: from..<to, label: "BR/EDR")
    }
  }
  /// Addresses and link keys by turns, after their number.
  private static func pairs(_ octets: [UInt8], _ start: Int) -> [SensitiveField] {
    guard octets.count > start else { return [] }
    return place(
      (0..<Int(octets[start])).flatMap { [(1 + 22 * $0, 6, address), (7 + 22 * $0, 16, .key)] }, octets, start)
  }
  /// AD structures from `start` on.
  private static func data(_ octets: [UInt8], _ start: Int) -> [SensitiveField] {
    guard start < octets.count else { return [] }
    return SensitiveField.find(in: Array(octets[start...]), as: .ad).map { field in
      var field = field
      field.range = field.range.lowerBound + start..<field.range.upperBound + start
      return field
    }
  }

  private static func command(_ opcode: UInt16) -> [Entry]? {
    switch opcode {
    case 0x0405, 0x0408, 0x0409, 0x040A, 0x040C, 0x040E, 0x0419, 0x041A, 0x0429, 0x042A, 0x042B, 0x042C, 0x042D, 0x042F,
      0x0433, 0x0434, 0x043E, 0x080B, 0x0C0D, 0x0C12, 0x0C60:
      [(0, 6, address)]
    case 0x040B: [(0, 6, address), (6, 16, .key)]
    case 0x040D: [(0, 6, address), (7, 16, .pairingRandom)]
    case 0x042E: [(0, 6, address), (6, 4, .pairingRandom)]
    case 0x0430: [(0, 6, address), (6, 16, .pairingRandom), (22, 16, .pairingRandom)]
    case 0x0445:
      [
        (0, 6, address), (6, 16, .pairingRandom), (22, 16, .pairingRandom), (38, 16, .pairingRandom),
        (54, 16, .pairingRandom),
      ]
    case 0x0C13: [(0, 248, .name)]
    case 0x2026, 0x205E: [(0, 64, .publicKey)]
    case 0x2044: [(3, 6, .address(isRandom: nil))]
    case 0x2047, 0x2048: [(1, 6, .address(isRandom: nil))]
    default: nil
    }
  }
  /// Return parameters, the status first.
  private static func answer(_ opcode: UInt16) -> [Entry]? {
    switch opcode {
    case 0x0408, 0x040B, 0x040C, 0x040D, 0x040E, 0x041A, 0x042B, 0x042C, 0x042D, 0x042E, 0x042F, 0x0430, 0x0433, 0x0434,
      0x0445, 0x0C60:
      [(1, 6, address)]
    case 0x0C14: [(1, 248, .name)]
    case 0x0C57: [(1, 16, .pairingRandom), (17, 16, .pairingRandom)]
    case 0x0C7D:
      [(1, 16, .pairingRandom), (17, 16, .pairingRandom), (33, 16, .pairingRandom), (49, 16, .pairingRandom)]
    default: nil
    }
  }
  private static func event(_ code: UInt8) -> [Entry]? {
    switch code {
    case 0x03, 0x2C: [(1, 2, .handle), (3, 6, address)]
    case 0x04, 0x16, 0x17, 0x20, 0x31, 0x32, 0x34, 0x35, 0x3C, 0x3D: [(0, 6, address)]
    case 0x07: [(1, 6, address), (7, 248, .name)]
    case 0x12, 0x36: [(1, 6, address)]
    case 0x18: [(0, 6, address), (6, 16, .key)]
    case 0x33, 0x3B: [(0, 6, address), (6, 4, .pairingRandom)]
    default: nil
    }
  }
  /// From the octet behind the subevent code.
  private static func leEvent(_ subevent: UInt8) -> [Entry]? {
    switch subevent {
    case 0x08: [(1, 64, .publicKey)]
    case 0x09: [(1, 32, .key)]
    case 0x0E: [(5, 6, .address(isRandom: nil))]
    case 0x18: [(9, 6, .address(isRandom: nil))]
    case 0x29:
      [
        (1, 2, .handle), (5, 6, .address(isRandom: nil)), (11, 6, .address(isRandom: true)),
        (17, 6, .address(isRandom: true)),
      ]
    default: nil
    }
  }
}
