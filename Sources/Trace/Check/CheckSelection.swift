import BindruneATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneWire

/// Which findings of a trace count, for ``Checker``:
///
///     var selection = CheckSelection()
///     selection.party = .peer
///     selection.known = ["att.error-handle/peer/ATT_ERROR_RSP/2A37"]
///     let checker = Checker(selection: selection)
///
/// The others are counted by their reason, ``Checker/excluded``, and not kept.
public struct CheckSelection: Sendable {
  /// Only this party's breaches.
  public var party: CheckFinding.Party?
  /// Only breaches of the device with this address; its own type of address does not matter.
  public var peer: DeviceAddress?
  /// Only findings about these connection handles; empty: all.
  public var connections: Set<UInt16> = []
  /// Ids of findings that are known.
  public var known: Set<String> = []
  /// Ids, or their beginnings up to a `/`, of findings to ignore.
  public var ignored: [String] = []

  /// Keep the ids of findings that count, for ``Checker/ids``.
  public var collectsIDs = false

  public init() {}

  /// Each finding is looked at, also beyond those that are kept.
  var needsIDs: Bool {
    collectsIDs || party != nil || peer != nil || !connections.isEmpty || !known.isEmpty || !ignored.isEmpty
  }
  /// Why a finding does not count.
  public enum Exclusion: String, CaseIterable, Sendable { case party, connection, ignored, known }

  func exclusion(of finding: CheckFinding) -> Exclusion? {
    if let party, finding.party != party { return .party }
    if let peer, finding.party != .peer || finding.peer != peer { return .party }
    if !connections.isEmpty, !(finding.connection.map { connections.contains($0) } ?? false) { return .connection }
    if known.isEmpty, ignored.isEmpty { return nil }
    let id = finding.id
    if ignored.contains(where: { id == $0 || id.hasPrefix($0 + "/") }) { return .ignored }
    return known.contains(id) ? .known : nil
  }
}

/// The kind of packet that breaks a rule.
enum CheckSubject: Sendable {
  case none
  case command(HCIOpcode)
  case event(UInt8, UInt8?)
  case attribute(ATTOpcode)
  case pairing(SMPCode)
  case signal(SignalCode)
  case channel(ChannelID)

  /// For the id of a finding: without spaces.
  var text: String? {
    func words(_ name: String?, _ number: UInt8) -> String {
      name.map { String($0.map { $0 == " " ? "_" : $0 }) } ?? code(number)
    }
    switch self {
    case .none: return nil
    case .command(let opcode):
      return AnyCommand(default: opcode).map { "\($0.name)" } ?? "Command_" + code(opcode.rawValue, 4)
    case .event(let event, let subevent): return "Event_" + code(event) + (subevent.map { "_" + code($0) } ?? "")
    case .attribute(let opcode): return words(opcode.name.map { "\($0)" }, opcode.rawValue)
    case .pairing(let number): return words(number.name.map { "\($0)" }, number.rawValue)
    case .signal(let number): return words(number.name, number.rawValue)
    case .channel(let channel): return "Channel_" + code(channel.rawValue, 4)
    }
  }
}
