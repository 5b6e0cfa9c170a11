import BindruneSMP
import Testing

/// Vol 3, Part H, §2.3.5.1, Tables 2.6, 2.7 and 2.8, written down from the Specification, here with the initiator's row
/// and the responder's column: the other way round than in the code.
@Suite struct MethodTableTests {
  /// J: Just Works; N: Numeric Comparison; i, r: the initiator, the responder displays the passkey; b: both enter it.
  /// Two letters: legacy pairing, then LE Secure Connections.
  static let table = """
    .                DisplayOnly DisplayYesNo KeyboardOnly NoInputNoOutput KeyboardDisplay
    DisplayOnly      J           J            i            J               i
    DisplayYesNo     J           JN           i            J               iN
    KeyboardOnly     r           r            b            J               r
    NoInputNoOutput  J           J            J            J               J
    KeyboardDisplay  r           rN           i            J               iN
    """
  static func expected(_ initiator: IOCapability, _ responder: IOCapability, sc: Bool) -> PairingMethod {
    let rows = table.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
    let row = rows.first { $0[0] == "\(initiator.name!)" }!, column = rows[0].firstIndex(of: "\(responder.name!)")!
    switch sc ? row[column].last! : row[column].first! {
    case "J": return .justWorks
    case "N": return .numericComparison
    case "i": return .passkeyEntry(.initiatorDisplays)
    case "r": return .passkeyEntry(.responderDisplays)
    default: return .passkeyEntry(.bothEnter)
    }
  }

  @Test(arguments: [false, true]) func everyCellOfTable28(sc: Bool) {
    var counts: [PairingMethod: Int] = [:]
    for initiator in IOCapability.all {
      for responder in IOCapability.all {
        let found = MethodTable.method(initiator: initiator, responder: responder, isSecureConnections: sc)
        #expect(found == Self.expected(initiator, responder, sc: sc), "\(initiator), \(responder)")
        counts[found!, default: 0] += 1
      }
    }
    #expect(counts[.justWorks] == (sc ? 12 : 13))
    #expect(counts[.numericComparison] == (sc ? 4 : nil))
    #expect(counts[.passkeyEntry(.initiatorDisplays)] == (sc ? 4 : 6))
    #expect(counts[.passkeyEntry(.responderDisplays)] == (sc ? 4 : 5))
    #expect(counts[.passkeyEntry(.bothEnter)] == 1)
  }

  /// Tables 2.6 and 2.7: every combination of the OOB flags and the MITM bits.
  @Test(arguments: [false, true]) func everyCellOfTables26And27(sc: Bool) {
    for bits in 0..<16 {
      var request = PairingFeatures(), response = PairingFeatures()
      request.oobDataFlag = bits & 1 == 0 ? .notPresent : .present
      response.oobDataFlag = bits & 2 == 0 ? .notPresent : .present
      request.authReq = bits & 4 == 0 ? [] : .mitm
      response.authReq = bits & 8 == 0 ? [] : .mitm
      if sc {
        request.authReq.insert(.sc)
        response.authReq.insert(.sc)
      }
      request.ioCapability = .displayOnly
      response.ioCapability = .keyboardOnly
      let expected: PairingMethod =
        switch (bits & 3, bits >> 2) {
        case (3, _): .outOfBand
        case (1, _), (2, _): sc ? .outOfBand : bits >> 2 == 0 ? .justWorks : .passkeyEntry(.initiatorDisplays)
        case (_, 0): .justWorks
        default: .passkeyEntry(.initiatorDisplays)
        }
      #expect(MethodTable.method(request: request, response: response) == expected, "\(bits)")
    }
  }

  /// One side alone without the SC bit: legacy pairing.
  @Test func secureConnectionsTakesTwo() {
    for bits in 0..<4 {
      var request = PairingFeatures(), response = PairingFeatures()
      (request.ioCapability, response.ioCapability) = (.displayYesNo, .displayYesNo)
      request.authReq = bits & 1 == 0 ? .mitm : [.mitm, .sc]
      response.authReq = bits & 2 == 0 ? .mitm : [.mitm, .sc]
      let expected: PairingMethod = bits == 3 ? .numericComparison : .justWorks
      #expect(MethodTable.method(request: request, response: response) == expected)
    }
  }

  @Test func reservedCapabilitiesHaveNoMethod() {
    for raw in 5...255 {
      let reserved = IOCapability(rawValue: UInt8(raw))
      #expect(MethodTable.method(initiator: reserved, responder: .displayOnly, isSecureConnections: true) == nil)
      #expect(MethodTable.method(initiator: .displayOnly, responder: reserved, isSecureConnections: false) == nil)
    }
  }
}
