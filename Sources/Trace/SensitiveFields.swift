import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneHCI

/// A field of a packet that identifies a device or a person, protects a link, is chance, or is not understood.
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
    /// Octets where there should be zeros.
    case residue
  }
  var kind: Kind
  var range: Range<Int>
  var label: StaticString
}

/// Finds the sensitive fields of packets and PDUs, by the labels of their declarations.
struct SensitiveFinder {
  /// What a label says of its field.
  private enum Meaning {
    case adType, addressType, randomAddress, adAddress, deviceAddress, address, publicKeyX, publicKeyY
    case data
    case kind(SensitiveField.Kind)
    case nothing
  }
  /// By the place of the label's text, which is in the program: comparing texts would take most of the time.
  private var meanings: [UInt: Meaning] = [:]
  /// False: handles are not looked for, so that the most frequent events need no look.
  let findsHandles: Bool
  init(findsHandles: Bool) { self.findsHandles = findsHandles }

  /// The fields of `octets`, in their order. An ACL packet has its header's only: its frame has its own.
  mutating func find(in octets: [UInt8], as form: Explanation.Form) -> [SensitiveField] {
    guard !octets.isEmpty, octets.count <= 0xFFFF else { return [] }
    if form == .hci {
      switch HCIPacketType(rawValue: octets[0]) {
      case .acl, .synchronous, .iso:
        return octets.count >= 3 ? [SensitiveField(kind: .handle, range: 1..<3, label: "Connection_Handle")] : []
      case .event where !findsHandles && octets.count > 1 && Self.isPlain(octets[1]): return []
      default: break
      }
      if let table = ClassicFields.find(octets, &self) { return table }
    }
    let isKnown = form != .hci || !ClassicFields.isHarmless(octets)
    var fields: [SensitiveField] = [], isRandom: Bool?, adType: UInt8?, layer: StaticString = ""
    for row in Explanation.rows(of: octets, form, draws: false) {
      if row.kind == .layer || row.kind == .entry {
        (isRandom, adType) = (nil, nil)
        if row.kind == .layer { layer = row.name }
        continue
      }
      guard row.kind == .field || row.kind == .wrong || row.kind == .bits, row.bit % 8 == 0, row.width >= 8 else {
        continue
      }
      let range = row.bit / 8..<min(octets.count, (row.bit + row.width) / 8)
      if range.isEmpty { continue }
      func add(_ kind: SensitiveField.Kind) {
        fields.append(SensitiveField(kind: kind, range: range, label: row.name))
      }
      if row.kind == .wrong {
        fields += Self.wrong(row.name, range, adType)
        continue
      }
      switch meaning(of: row.name) {
      case .adType: adType = octets[range.lowerBound]
      case .addressType:
        // 0 and 2 are public, 1, 3 and 0xFE (not resolved) random.
        isRandom = octets[range.lowerBound] & 1 == 1 || octets[range.lowerBound] == 0xFE
        adType = nil
      case .randomAddress: add(.address(isRandom: true))
      case .adAddress where range.count == 6 && adType != nil:
        // The list of public or of random target addresses, or one address with its type behind it.
        let type =
          adType == 0x1B && range.upperBound < octets.count ? octets[range.upperBound] & 1 == 1 : adType == 0x18
        add(.address(isRandom: type))
      case .deviceAddress where layer.contains("Read_BD_ADDR"): add(.address(isRandom: false))
      case .adAddress, .deviceAddress, .address: if range.count == 6 { add(.address(isRandom: isRandom)) }
      case .publicKeyX: fields.append(SensitiveField(kind: .publicKey, range: range, label: "Public Key"))
      case .publicKeyY:
        // One field with X before it, as a point is.
        if let last = fields.indices.last, fields[last].kind == .publicKey {
          fields[last].range = fields[last].range.lowerBound..<range.upperBound
        }
      case .data where adType != nil:
        switch adType {
        // Out of band: hashes, randomizers, the TK, and LE's confirmation and random values.
        case 0x0E, 0x0F, 0x10, 0x1D, 0x1E, 0x22, 0x23: add(.pairingRandom)
        // Numbers: flags, a class, a role, features, a channel map, an interval, UUIDs.
        case 0x01, 0x04, 0x05, 0x0D, 0x11, 0x1C, 0x1F, 0x27, 0x28, 0x2F: break
        default: fields.append(SensitiveField(kind: .value, range: range, label: "manufacturer and service data"))
        }
      case .data where isKnown && form != .ad: undeclared(form, octets, range, &fields)
      case .data, .nothing: break
      case .kind(let kind): add(kind)
      }
    }
    return fields
  }
  /// Events that have only handles and numbers, and are frequent: Number Of Completed Packets, Command Status.
  private static func isPlain(_ code: UInt8) -> Bool { code == 0x13 || code == 0x0F }

  /// Octets that a declaration refuses, or does not reach.
  private static func wrong(_ name: StaticString, _ range: Range<Int>, _ adType: UInt8?) -> [SensitiveField] {
    // A number out of its range stays, so that it stays wrong.
    if name.isEqual(to: "Octets") { return [SensitiveField(kind: .residue, range: range, label: "invalid octets")] }
    if name.utf8CodeUnitCount > 0 { return [] }
    switch adType {
    case 0x01, 0x0A, 0x12, 0x19, 0x1A, 0x2F: return []
    case 0x08, 0x09, 0x30: return [SensitiveField(kind: .name, range: range, label: "Name")]
    default: return [SensitiveField(kind: .opaque, range: range, label: "invalid octets")]
    }
  }
  /// Octets without a declaration of their own.
  private func undeclared(
    _ form: Explanation.Form, _ octets: [UInt8], _ range: Range<Int>, _ fields: inout [SensitiveField]
  ) {
    var range = range, label: StaticString = "octets without a declaration"
    if form == .hci {
      let isEvent = octets[0] == HCIPacketType.event.rawValue
      // Command Complete of a vendor's command, a vendor's command or event. Vol 4, Part E, §5.4.1, §5.4.4.
      let group = isEvent ? (octets[1] == 0x0E && octets.count > 5 ? octets[5] >> 2 : 0) : octets[2] >> 2
      if group == 0x3F || (isEvent && octets[1] == 0xFF) {
        label = "vendor packets"
      } else if isEvent, octets[1] == 0x0E {
        // The status.
        range = range.lowerBound + 1..<range.upperBound
      }
    } else if form == .signaling {
      // Echo, and what is no command. The others of BR/EDR have numbers only: Vol 3, Part A, §4.
      guard ![0x02...0x07, 0x0A...0x1A].contains(where: { $0.contains(octets[0]) }) else { return }
      label = "data of signaling commands"
    }
    if !range.isEmpty { fields.append(SensitiveField(kind: .opaque, range: range, label: label)) }
  }

  private mutating func meaning(of name: StaticString) -> Meaning {
    let place = unsafe UInt(bitPattern: name.utf8Start)
    if let known = meanings[place] { return known }
    let found = Self.meaning(of: name.description)
    meanings[place] = found
    return found
  }
  private static func meaning(of label: String) -> Meaning {
    switch label {
    case "AD Type": .adType
    case let label where label.hasSuffix("Address_Type") || label == "AddrType": .addressType
    case "Random_Address", "Local_Resolvable_Private_Address", "Peer_Resolvable_Private_Address",
      "Local_Resolvable_Address", "Peer_Resolvable_Address":
      .randomAddress
    case "Address": .adAddress
    case "BD_ADDR": .deviceAddress
    case "Peer_Address", "Peer_Identity_Address", "Direct_Address", "Scanner_Address": .address
    case "Long_Term_Key", "Peer_IRK", "Local_IRK", "Key", "Long Term Key", "Identity Resolving Key", "Signature Key":
      .kind(.key)
    case "Random_Number", "Rand", "Encrypted_Diversifier", "EDIV": .kind(.keyIdentifier)
    case "Random Value", "Plaintext_Data", "Encrypted_Data": .kind(.pairingRandom)
    case "Confirm Value": .kind(.confirm)
    case "DHKey Check": .kind(.check)
    case "Public Key X": .publicKeyX
    case "Public Key Y": .publicKeyY
    case "Authentication Signature": .kind(.signature)
    case "Name": .kind(.name)
    case "Connection_Handle": .kind(.handle)
    case "RSSI": .kind(.signalStrength)
    case "Attribute Value", "Part Attribute Value", "Set Of Values", "Length Value Tuple List",
      "Truncated Length Value Tuple":
      .kind(.value)
    case "Data", "Parameters", "Vendor_Parameters", "Return_Parameters": .data
    default: .nothing
    }
  }
}
