/// How the two devices make sure of each other. Vol 3, Part H, §2.3.5.1.
public enum PairingMethod: BitwiseCopyable, Sendable, Hashable {
  /// Nobody compares anything: no protection against a man in the middle.
  case justWorks
  /// Both show six digits, and both users confirm that they are equal. LE Secure Connections only.
  case numericComparison
  case passkeyEntry(PasskeyEntry)
  /// Data that came another way.
  case outOfBand

  /// Whether a man in the middle would be noticed. Vol 3, Part H, §2.3.5.1.
  public var isAuthenticated: Bool { self != .justWorks }
}
/// Who shows the passkey, and who enters it.
public enum PasskeyEntry: BitwiseCopyable, Sendable, Hashable {
  case initiatorDisplays, responderDisplays
  /// The user invents the passkey and enters it on both.
  case bothEnter
}
/// The initiator is the Central, the responder the Peripheral. Vol 3, Part H, §2.3.
public enum PairingRole: BitwiseCopyable, Sendable, Hashable, CaseIterable { case initiator, responder }

/// The method of a pairing, from the features of both devices. Vol 3, Part H, §2.3.5.1, Tables 2.6, 2.7 and 2.8.
public enum MethodTable {
  /// The method for a request and its response. `nil` for a reserved IO capability, where the tables would be asked.
  public static func method(request: PairingFeatures, response: PairingFeatures) -> PairingMethod? {
    let isSecureConnections = request.authReq.contains(.sc) && response.authReq.contains(.sc)
    let (a, b) = (request.oobDataFlag == .present, response.oobDataFlag == .present)
    // Table 2.6: with legacy pairing both need the data. Table 2.7: with Secure Connections one is enough.
    if isSecureConnections ? a || b : a && b { return .outOfBand }
    // Both tables: the IO capabilities count if either demands protection.
    guard request.authReq.union(response.authReq).contains(.mitm) else { return .justWorks }
    return method(
      initiator: request.ioCapability, responder: response.ioCapability, isSecureConnections: isSecureConnections)
  }

  /// Table 2.8. `nil` for a reserved IO capability.
  public static func method(
    initiator: IOCapability, responder: IOCapability, isSecureConnections: Bool
  ) -> PairingMethod? {
    let table = isSecureConnections ? secureConnections : legacy
    let (row, column) = (Int(responder.rawValue), Int(initiator.rawValue))
    guard row < table.count, column < table.count else { return nil }
    switch table[row][column] {
    case .works: return .justWorks
    case .compa: return .numericComparison
    case .iShow: return .passkeyEntry(.initiatorDisplays)
    case .rShow: return .passkeyEntry(.responderDisplays)
    case .enter: return .passkeyEntry(.bothEnter)
    }
  }

  /// Just works, compare numbers, the initiator or the responder shows the passkey, both enter it: equally long names,
  /// so that the tables are tables.
  private enum Cell { case works, compa, iShow, rShow, enter }

  // The responder's row, the initiator's column, both in the order of the numbers: DisplayOnly, DisplayYesNo,
  // KeyboardOnly, NoInputNoOutput, KeyboardDisplay. The two tables differ where both can compare numbers.

  private static var legacy: [[Cell]] {
    [
      [.works, .works, .rShow, .works, .rShow],
      [.works, .works, .rShow, .works, .rShow],
      [.iShow, .iShow, .enter, .works, .iShow],
      [.works, .works, .works, .works, .works],
      [.iShow, .iShow, .rShow, .works, .iShow],
    ]
  }
  private static var secureConnections: [[Cell]] {
    [
      [.works, .works, .rShow, .works, .rShow],
      [.works, .compa, .rShow, .works, .compa],
      [.iShow, .iShow, .enter, .works, .iShow],
      [.works, .works, .works, .works, .works],
      [.iShow, .compa, .rShow, .works, .compa],
    ]
  }
}
