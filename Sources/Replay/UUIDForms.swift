import BindruneATT
import BindruneWire

// A UUID of 16 bits may be written in its form of 128 bits: both are the same UUID. Vol 3, Part B, §2.5.1. A host
// chooses the form of its questions and of its declarations.

/// Requests, and the entries of a list response, with each UUID in its shortest form.
enum UUIDForms {
  /// The question with its UUID in the shortest form; nil: it has that already, or no UUID.
  static func shortened(_ request: [UInt8]) -> [UInt8]? {
    let at: Int
    switch (request.opcode, request.count) {
    case (ReadByTypeRequest.opcode, 21), (ReadByGroupTypeRequest.opcode, 21): at = 5
    // The value is that of a service declaration.
    case (FindByTypeValueRequest.opcode, 23) where request.little16(5) == 0x2800: at = 7
    default: return nil
    }
    return short(request[at...]).map { request[..<at] + $0 }
  }
  /// `uuid` is a long form of a short one.
  private static func short(_ uuid: some Collection<UInt8>) -> [UInt8]? {
    guard uuid.count == 16, case .short(let number)? = BluetoothUUID(wire: uuid)?.shortest else { return nil }
    return number.littleOctets
  }

  /// What a server's answer says, and whether it has a short UUID in its long form.
  struct Answer: Equatable {
    var entries: [[UInt8]]
    var hasLongForm = false
  }
  /// The entries of a list of declarations, of types or of a single declaration; nil: another response.
  /// `isDeclaration`: the handle of a Read Request is a declaration's.
  static func answer(_ response: [UInt8], to request: [UInt8], isDeclaration: Bool) -> Answer? {
    guard response.opcode == request.opcode.response else { return nil }
    let size: Int, first: Int, uuid: Int
    switch request.opcode {
    case ReadByGroupTypeRequest.opcode where response.count > 1: (size, first, uuid) = (Int(response[1]), 2, 4)
    case ReadByTypeRequest.opcode where response.count > 1 && type(of: request) == .characteristic:
      (size, first, uuid) = (Int(response[1]), 2, 5)
    case FindInformationRequest.opcode where response.count > 1: (size, first, uuid) = (response[1] == 1 ? 4 : 18, 2, 2)
    // A service's UUID, or properties, handle and UUID of a characteristic. Vol 3, Part G, §3.1, §3.3.1.
    case ReadRequest.opcode where isDeclaration:
      (size, first, uuid) = (response.count - 1, 1, [3 + 2, 3 + 16].contains(response.count - 1) ? 3 : 0)
    default: return nil
    }
    guard size > uuid, (response.count - first) % size == 0 else { return nil }
    var answer = Answer(entries: [])
    for at in stride(from: first, to: response.count, by: size) {
      let entry = Array(response[at..<(at + size)])
      if let short = short(entry[uuid...]) {
        answer.hasLongForm = true
        answer.entries.append(entry[..<uuid] + short)
      } else {
        answer.entries.append(entry)
      }
    }
    return answer
  }
  private static func type(of request: [UInt8]) -> BluetoothUUID? { BluetoothUUID(wire: request.dropFirst(5)) }

  /// Two answers are the same but for the form of UUIDs: the entries of one are the beginning of the other's, because
  /// entries of another length do not fit into the same response. The client asks for the rest.
  static func differInForm(_ one: Answer, _ other: Answer) -> Bool {
    guard one.hasLongForm != other.hasLongForm, !one.entries.isEmpty, !other.entries.isEmpty else { return false }
    return one.entries.starts(with: other.entries) || other.entries.starts(with: one.entries)
  }
}
