import ArgumentParser
import BindruneConformance
import BindruneTrace
import BindruneWire

/// `--party host`, `--party C0:11:22:33:44:55`.
struct CheckParty: Sendable {
  var party: CheckFinding.Party?
  var peer: DeviceAddress?

  init(argument: String) throws {
    party = CheckFinding.Party(rawValue: argument.lowercased())
    if party != nil { return }
    peer = WantedAddress(argument: argument)?.address
    if peer == nil {
      throw ValidationError(
        "\"\(argument.printable())\" is none of host, controller, peer and an address as C0:11:22:33:44:55.")
    }
  }
}

/// The findings that are known, in a file: `{"version": 1, "findings": ["att.mtu/peer/ATT_READ_RSP", …]}`.
enum CheckBaseline {
  private static var version: String { "1" }

  static func text(_ ids: Set<String>) -> String {
    let list = ids.sorted().map { "    \"\($0)\"" }.joined(separator: ",\n")
    return "{\n  \"version\": \(version),\n  \"findings\": [\(list.isEmpty ? "" : "\n\(list)\n  ")]\n}\n"
  }
  /// The rule of a finding's id; nil: it is none.
  static func rule(of id: String) -> CheckRule? { CheckRule(id: id.prefix { $0 != "/" }) }

  static func read(_ path: String) throws(Failure) -> Set<String> {
    let root: JSON
    do throws(FileError) { root = try JSON(try TextFile.read(path), file: path) } catch {
      throw Failure("Cannot read the baseline \(error).")
    }
    func bad(_ place: JSON.Place, _ words: String) -> Failure {
      Failure("Cannot read the baseline \(path):\(place.line):\(place.column): \(words); --write-baseline writes one.")
    }
    guard case .object(let members) = root.value,
      let list = members.first(where: { $0.key == "findings" }), case .array(let values) = list.value.value
    else { throw bad(root.place, "it is no object with the list \"findings\"") }
    if let stated = members.first(where: { $0.key == "version" }) {
      guard case .number(version) = stated.value.value else {
        throw bad(stated.place, "its version is not \(version)")
      }
    }
    var ids: Set<String> = []
    for value in values {
      guard case .string(let id) = value.value else {
        throw bad(value.place, "a finding's id is text, not \(value.kind)")
      }
      ids.insert(id)
    }
    return ids
  }
}
