import BindruneWire
import BindruneGATT
import BindruneL2CAP
import BindruneSMP
import TestSupport
import Testing

@testable import BindruneGAP

@Suite struct LinkProceduresTests {
  private static let strength = KeyStrength(isAuthenticated: true, isSecureConnections: true, size: .longest)
  private static func procedure(_ kind: LinkProcedure.Kind, _ id: RequestID?) -> LinkProcedure {
    switch kind {
    case .parameterUpdate:
      .parameterUpdate(
        ParameterUpdate(id: id, wanted: ConnectionParameterRange(.medium).request, way: .linkLayer))
    case .phyUpdate: .phyUpdate(id)
    case .dataLengthUpdate: .dataLengthUpdate
    case .featureExchange: .featureExchange
    case .encryption: .encryption(strength, .bond)
    }
  }

  /// Procedures begin, end, lose their requests and run out of time: the table has the same as a list of all.
  @Test(arguments: 0..<20) func likeAPlainList(_ seed: Int) {
    var chance = SplitMix64(seed: UInt64(seed)), now = Instant.zero
    var table = LinkProcedures(), plain: [(kind: LinkProcedure.Kind, id: RequestID?, deadline: Instant)] = []
    let kinds: [LinkProcedure.Kind] = [.parameterUpdate, .phyUpdate, .dataLengthUpdate, .featureExchange, .encryption]
    for number in 0..<500 {
      let kind = kinds[Int.random(in: 0..<5, using: &chance)]
      switch Int.random(in: 0..<5, using: &chance) {
      case 0, 1:
        let id = kind == .parameterUpdate || kind == .phyUpdate ? RequestID(rawValue: UInt64(number)) : nil
        table.begin(Self.procedure(kind, id), now: now)
        plain.removeAll { $0.kind == kind }
        plain.append((kind, id, now + .seconds(40)))
      case 2:
        let ended = table.end(kind)
        #expect(ended?.kind == plain.first { $0.kind == kind }?.kind)
        plain.removeAll { $0.kind == kind }
      case 3:
        let id = plain.compactMap(\.id).randomElement(using: &chance) ?? RequestID(rawValue: 1_000)
        let place = plain.firstIndex { $0.id == id }, isCancelled = table.cancel(id)
        #expect(isCancelled == (place != nil))
        if let place { plain[place].id = nil }
      default:
        now = now + .seconds(Int.random(in: 0..<20, using: &chance))
        while let overdue = table.takeOverdue(now: now) {
          let place = plain.firstIndex { $0.deadline <= now }
          #expect(place.map { plain[$0].kind } == overdue.kind)
          if let place { plain.remove(at: place) }
        }
      }
      #expect(table.deadline == plain.map(\.deadline).min())
      for kind in kinds { #expect(table[kind]?.request == plain.first { $0.kind == kind }?.id) }
      for kind in kinds { #expect((table[kind] != nil) == plain.contains { $0.kind == kind }) }
    }
    let requests = table.takeRequests()
    #expect(requests == plain.compactMap(\.id) && table.deadline == nil)
  }
}
