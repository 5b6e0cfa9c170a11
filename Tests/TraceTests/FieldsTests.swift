import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import BindruneL2CAP
import Testing

@Suite struct FieldsTests {
  static func fields(_ path: String) throws -> [String] {
    var file = try TraceFile(path: path), lines = DissectingSink(TraceFields())
    try file.read(into: &lines)
    return String(decoding: lines.sink.output, as: UTF8.self).split(separator: "\n").map(String.init)
  }

  /// tshark found the same PDUs in the project's own traces.
  @Test(arguments: OwnTraces.names) func ownTraces(_ name: String) throws {
    let expected = try String(contentsOf: OwnTraces.folder.appending(path: name + ".tsv"), encoding: .utf8)
    let found = try Self.fields(OwnTraces.path(name)).map { line in
      let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
      return (fields[0...3] + [fields[7]]).joined(separator: "\t")
    }
    #expect(found == expected.split(separator: "\n").map(String.init))
  }

  /// tshark and an independent reader found the same PDUs, field by field. The handle of a response is not in it:
  /// tshark takes it from the last request of any link, so it is derived here from the rows of the same link.
  @Test(.enabled(if: PublicTraces.arePresent, PublicTraces.absence), arguments: PublicTraces.names)
  func equalWiresharks(_ name: String) throws {
    let columns = ["frame", "dir", "conn", "layer", "opcode", "handle", "value_hex", "pdu_hex"]
    var asked: [String: String] = [:], wanted: [String] = []
    for var row in try PublicTraces.rows(name, "pdu") where row["agree"] != "VENDOR" {
      let direction = row["dir"] ?? "", link = row["conn"] ?? "",
        opposite = ["S": "R", "R": "S"][direction] ?? direction
      if row["layer"] == "att" {
        switch row["opcode"] ?? "" {
        case "0x0a", "0x0c", "0x12", "0x16": asked[link + direction] = row["handle"]
        case "0x02", "0x04", "0x06", "0x08", "0x0e", "0x10", "0x18", "0x20": asked[link + direction] = nil
        case "0x0b", "0x0d", "0x13": row["handle"] = asked.removeValue(forKey: link + opposite) ?? ""
        default: break
        }
      }
      wanted.append(columns.map { row[$0] ?? "" }.joined(separator: "\t"))
    }
    let found = try Self.fields(PublicTraces.path(name))
    print("\(name.prefix(12))…: \(found.count) rows")
    #expect(found.count == wanted.count)
    for (one, other) in zip(found, wanted) { #expect(one == other) }
  }
}
