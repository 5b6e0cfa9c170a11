import BindruneATT
import BindruneWire

/// A server's attributes, as far as the answers to discoveries in a trace show them. What a later answer says of a
/// handle replaces what an earlier one said.
public struct ShownDatabase: Sendable, Equatable {
  public enum Attribute: Sendable, Equatable {
    case service(BluetoothUUID, end: UInt16)
    case include(of: UInt16)
    case characteristic(BluetoothUUID, properties: UInt8, value: UInt16)
    /// A descriptor, or an attribute whose declaration the trace does not show.
    case other(BluetoothUUID)
  }
  public private(set) var attributes: [UInt16: Attribute] = [:]
  /// Handles that were searched, by what was looked for.
  private var searched: [Kind: [ClosedRange<UInt16>]] = [:]
  private enum Kind: Hashable { case services, includes, characteristics, others }
  private static var mostRanges: Int { 1_024 }
  public init() {}

  /// The search of `request` has found nothing.
  mutating func learnEnd(of request: [UInt8]) {
    guard request.count >= 5 else { return }
    search(request, to: UInt16(request[3]) | UInt16(request[4]) << 8)
  }
  /// The search of `request` has come to `last`.
  private mutating func search(_ request: [UInt8], to last: UInt16) {
    let first = UInt16(request[1]) | UInt16(request[2]) << 8, kind: Kind
    switch (ATTOpcode(rawValue: request[0]), BluetoothUUID(attribute: Array(request[5...]))) {
    case (ReadByGroupTypeRequest.opcode, .primaryService?): kind = .services
    case (ReadByTypeRequest.opcode, .include?): kind = .includes
    case (ReadByTypeRequest.opcode, .characteristic?): kind = .characteristics
    case (FindInformationRequest.opcode, _): kind = .others
    // For one UUID it says nothing of the others.
    default: return
    }
    guard first <= last, searched[kind, default: []].count < Self.mostRanges else { return }
    searched[kind, default: []].append(first...last)
  }
  private func hasSearched(_ handle: UInt16, for attribute: Attribute) -> Bool {
    let kind: Kind =
      switch attribute {
      case .service: .services
      case .include: .includes
      case .characteristic: .characteristics
      case .other: .others
      }
    return searched[kind]?.contains { $0.contains(handle) } == true
  }

  /// Learns from the response to `request`. Malformed ones teach nothing.
  mutating func learn(_ request: [UInt8], _ response: Span<UInt8>) {
    guard request.count >= 5, response.count > 2 else { return }
    func uuid(_ range: Range<Int>) -> BluetoothUUID? {
      BluetoothUUID(attribute: (range.lowerBound..<min(range.upperBound, response.count)).map { response[$0] })
    }
    /// The places of the list's entries; none, if the list does not hold whole ones.
    func entries(from first: Int, of size: Int, atLeast least: Int) -> StrideTo<Int> {
      size >= least && (response.count - first).isMultiple(of: size)
        ? stride(from: first, to: response.count, by: size) : stride(from: 0, to: 0, by: 1)
    }
    let asked = BluetoothUUID(attribute: Array(request[5...]))
    var last: UInt16 = 0
    defer { search(request, to: last) }
    switch (ATTOpcode(rawValue: request[0]), ATTOpcode(rawValue: response[0])) {
    case (ReadByGroupTypeRequest.opcode, ReadByGroupTypeResponse.opcode):
      let size = Int(response[1])
      for at in entries(from: 2, of: size, atLeast: 6) {
        guard let uuid = uuid(at + 4..<at + size) else { continue }
        attributes[response.little16(at)] = .service(uuid.shortest, end: response.little16(at + 2))
        last = response.little16(at + 2)
      }
    case (FindByTypeValueRequest.opcode, FindByTypeValueResponse.opcode):
      guard request.count > 7, request[5] == 0x00, request[6] == 0x28,
        let uuid = BluetoothUUID(attribute: Array(request[7...]))
      else { return }
      for at in entries(from: 1, of: 4, atLeast: 4) {
        attributes[response.little16(at)] = .service(uuid.shortest, end: response.little16(at + 2))
      }
    case (ReadByTypeRequest.opcode, ReadByTypeResponse.opcode):
      let size = Int(response[1])
      for at in entries(from: 2, of: size, atLeast: 2) {
        let handle = response.little16(at)
        last = handle
        switch asked {
        case .characteristic where size >= 7:
          guard let uuid = uuid(at + 5..<at + size) else { continue }
          attributes[handle] = .characteristic(
            uuid.shortest, properties: response[at + 2], value: response.little16(at + 3))
        case .include where size >= 6: attributes[handle] = .include(of: response.little16(at + 2))
        default: break
        }
      }
    case (FindInformationRequest.opcode, FindInformationResponse.opcode):
      let size = response[1] == 1 ? 4 : 18
      for at in entries(from: 2, of: size, atLeast: 4) {
        let handle = response.little16(at)
        last = handle
        guard attributes[handle] == nil, let type = uuid(at + 2..<at + size) else { continue }
        attributes[handle] = .other(type.shortest)
      }
    default: break
    }
  }

  // MARK: Comparing

  /// An attribute that another server has not, or has otherwise.
  public struct Change: Sendable, Equatable {
    /// Service, characteristic and descriptor by UUID: `180D / 2A37 / 2902`.
    public var name: String
    /// What each says, its handle first; nil: it has no such attribute.
    public var first: String?, second: String?
    /// The trace that lacks the attribute has not searched its handle: whether the server has it is not known.
    public var isUnknown = false
  }
  /// Attributes are compared by UUID within their service and characteristic; several of a name in their order.
  public static func changes(_ one: ShownDatabase, _ other: ShownDatabase) -> (changes: [Change], alike: Int) {
    let (ones, others) = (one.named(), other.named())
    var changes: [Change] = [], alike = 0
    let texts = Dictionary(others.map { ($0.name, $0.text) }) { first, _ in first }
    for entry in ones {
      let second = texts[entry.name]
      if second == entry.text {
        alike += 1
      } else {
        changes.append(
          Change(
            name: entry.name, first: entry.text, second: second,
            isUnknown: second == nil && !other.hasSearched(entry.handle, for: entry.attribute)))
      }
    }
    let known = Set(ones.map(\.name))
    for entry in others where !known.contains(entry.name) {
      changes.append(
        Change(
          name: entry.name, first: nil, second: entry.text,
          isUnknown: !one.hasSearched(entry.handle, for: entry.attribute)))
    }
    return (changes, alike)
  }
  private struct Named {
    var name: String, text: String
    var handle: UInt16
    var attribute: Attribute
  }
  private func named() -> [Named] {
    var result: [Named] = [], seen: [String: Int] = [:], values: Set<UInt16> = []
    var service = "", characteristic = "", end: UInt16 = 0
    func unique(_ name: String) -> String {
      seen[name, default: 0] += 1
      return seen[name] == 1 ? name : "\(name) #\(seen[name] ?? 0)"
    }
    for attribute in attributes.values { if case .characteristic(_, _, let value) = attribute { values.insert(value) } }
    for handle in attributes.keys.sorted() {
      guard let attribute = attributes[handle] else { continue }
      if handle > end { (service, characteristic) = ("", "") }
      let place = "0x" + hexDigits(UInt64(handle), 4)
      func add(_ name: String, _ text: String) {
        result.append(Named(name: name, text: text, handle: handle, attribute: attribute))
      }
      switch attribute {
      case .service(let uuid, let last):
        (service, characteristic, end) = (unique("\(uuid)"), "", last)
        add(service, "\(place) … 0x\(hexDigits(UInt64(last), 4))")
      case .include(let target):
        add(unique("\(service) / include"), "\(place) of 0x\(hexDigits(UInt64(target), 4))")
      case .characteristic(let uuid, let properties, let value):
        characteristic = unique("\(service) / \(uuid)")
        let text = "\(place), value 0x\(hexDigits(UInt64(value), 4)), properties 0x\(hexDigits(UInt64(properties), 2))"
        add(characteristic, text)
      // Find Information names declarations and values too.
      case .other where values.contains(handle): break
      case .other(let type):
        if [.primaryService, .secondaryService, .characteristic, .include].contains(type) { continue }
        let owner = characteristic.isEmpty ? service : characteristic
        add(unique(owner.isEmpty ? "\(type)" : "\(owner) / \(type)"), place)
      }
    }
    return result
  }
}

extension BluetoothUUID {
  /// 2 or 16 octets. Vol 3, Part F, §3.2.1.
  fileprivate init?(attribute octets: [UInt8]) {
    func number(_ part: ArraySlice<UInt8>) -> UInt64 { part.reversed().reduce(0) { $0 << 8 | UInt64($1) } }
    switch octets.count {
    case 2: self = .short(UInt16(octets[0]) | UInt16(octets[1]) << 8)
    case 16: self = .long(low: number(octets[..<8]), high: number(octets[8...]))
    default: return nil
    }
  }
}
