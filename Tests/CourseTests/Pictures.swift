import BindruneATT
import BindruneTrace
import BindruneWire
import Foundation
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import Testing

/// The pictures of the course and of the catalogues. None is drawn by hand: `layout` draws a message's declaration,
/// `layers` the rows of an explanation, `phases` a walk through a phase table of `Fixtures/Machines`, `module` a
/// module's place in the manifest.
enum Pictures {
  static func picture(_ words: String) throws -> [String] {
    let (verb, rest) = halves(words, " ")
    switch verb {
    case "layout": return try layout(rest)
    case "layers": return layers(rest)
    case "phases": return try phases(rest)
    case "module": return try ModuleMap().picture(of: rest)
    default:
      Issue.record("an unknown picture: \(words)")
      return []
    }
  }
  private static func halves(_ text: String, _ separator: String) -> (String, String) {
    let place = text.range(of: separator)
    return place.map { (String(text[..<$0.lowerBound]), String(text[$0.upperBound...])) } ?? (text, "")
  }

  // MARK: Layouts

  /// A field of a message, or of the header before it.
  private struct Cell {
    var label: String
    /// In bits; nil: the rest of the packet.
    var width: Int?
  }
  private static func cells(_ header: [(String, Int)] = [], _ fields: [WireLayout.Field]) -> [Cell] {
    header.map { Cell(label: $0.0, width: 8 * $0.1) }
      + fields.map { field in
        // A payload as long as the header says has no octets in a message without a value.
        Cell(label: field.label, width: field.width == 0 ? nil : field.width)
      }
  }
  /// `NAME, NAME …`: several have their names above them.
  private static func layout(_ names: String) throws -> [String] {
    let all = names.components(separatedBy: ", ")
    if all.count == 1 { return try layout(of: names) }
    let pictures = try all.map { name in [name] + (try layout(of: name)) }
    return Array(pictures.joined(separator: [""]))
  }
  private static func layout(of name: String) throws -> [String] {
    let att = [("Opcode", 1)], command = [("Opcode", 2), ("Parameter_Total_Length", 1)]
    let event = [("Event_Code", 1), ("Parameter_Total_Length", 1)]
    let layouts: [String: [Cell]] = [
      "ATT_READ_REQ": cells(att, ReadRequest.layout),
      "ATT_READ_BLOB_REQ": cells(att, ReadBlobRequest.layout),
      "ATT_HANDLE_VALUE_NTF": cells(att, HandleValueNotification.layout),
      "ATT_ERROR_RSP": cells(att, ErrorResponse.layout),
      "HCI_LE_Set_Scan_Enable": cells(command, LESetScanEnable.layout),
      "HCI_Command_Complete": cells(event, CommandComplete.layout),
      "ACL": cells([], ACLPacket.layout),
      "L2CAP": cells([], L2CAPFrame.layout),
      "L2CAP_CONNECTION_PARAMETER_UPDATE_REQ": cells(
        [], SignalHeader.layout + ConnectionParameterUpdateRequest.layout),
      "characteristic": cells([], CharacteristicDeclaration.layout),
      "SMP_PAIRING_REQUEST": cells([("Code", 1)], PairingRequest.layout),
    ]
    return draw(try #require(layouts[name], "no layout \(name)"))
  }

  /// A bar of the octets with a cell for each field, and below it the names, each under its field.
  private static func draw(_ fields: [Cell]) -> [String] {
    let hasBits = fields.contains { ($0.width ?? 0) % 8 != 0 }
    // Columns of an octet; a field of variable length takes three.
    let octet = hasBits ? 16 : 6
    var edges = [0], bar = "├", numbers = "0", bit: Int? = 0
    for field in fields {
      let columns = (field.width ?? 24) * octet / 8
      bar += String(repeating: field.width == nil ? "╌" : "─", count: columns - 1) + "┼"
      let edge = (edges.last ?? 0) + columns
      edges.append(edge)
      bit = if let known = bit, let width = field.width { known + width } else { nil }
      if let bit, bit % 8 == 0 {
        numbers += String(repeating: " ", count: edge - numbers.count) + String(bit / 8)
      }
    }
    var lines = ["octet", "  " + numbers, "  " + bar.dropLast() + "┤"]
    lines[0] += hasBits ? " (the least significant bit of each is at the left)" : ""
    for last in fields.indices.reversed() {
      var line = ""
      for index in 0...last {
        let place = edges[index] + 2
        line += String(repeating: " ", count: max(0, place - line.count)) + (index == last ? "└ " : "│")
      }
      lines.append("  " + line + fields[last].label + size(of: fields[last]))
    }
    return lines
  }
  private static func size(of field: Cell) -> String {
    switch field.width {
    case nil: ", the rest"
    case let width? where width % 8 != 0: ", \(width) bits"
    case 8?: ""
    case let width?: ", \(width / 8) octets"
    }
  }

  // MARK: Layers

  /// The octets of an HCI packet, and below them which layer's they are.
  private static func layers(_ hex: String) -> [String] {
    let octets = hex.split(separator: " ").compactMap { UInt8($0, radix: 16) }
    let explanation = Explanation(of: octets, as: .hci)
    var found: [(name: String, octets: ClosedRange<Int>)] = []
    for row in explanation.rows {
      if row.kind == .layer { found.append((row.label, row.bit / 8...row.bit / 8)) }
      guard row.isLeaf, let last = found.indices.last else { continue }
      let end = (row.bit + row.width + 7) / 8 - 1
      found[last].octets = found[last].octets.lowerBound...max(end, found[last].octets.lowerBound)
    }
    let width = 3 * octets.count + 2
    return [hex]
      + found.map { layer in
        let start = 3 * layer.octets.lowerBound, columns = 3 * layer.octets.count - 1
        let bar = "└" + String(repeating: "─", count: columns - 2) + "┘"
        let line = String(repeating: " ", count: start) + bar
        return line + String(repeating: " ", count: width - line.count) + layer.name
      }
  }

  // MARK: Phases

  /// `MACHINE: input, input …`: the phases that these inputs lead through, with what the machine does. Or, where the
  /// table names its situations otherwise, `MACHINE: situation > input | situation > input`.
  private static func phases(_ text: String) throws -> [String] {
    let (machine, walk) = halves(text, ": ")
    let file = Page.root.appending(path: "Fixtures/Machines/\(machine).txt")
    var table: [String: [String: String]] = [:], phases: [String: String] = [:], heading = ""
    for line in try String(contentsOf: file, encoding: .utf8).components(separatedBy: "\n") {
      if line.hasPrefix("  ") {
        let (input, outcome) = halves(String(line.dropFirst(2)), " → ")
        table[heading, default: [:]][input] = outcome
      } else if !line.isEmpty {
        let (situation, phase) = halves(line, ": ")
        heading = situation
        phases[situation] = phase
      }
    }
    let inputs = walk.components(separatedBy: ", ")
    let steps =
      walk.contains(" > ")
      ? walk.components(separatedBy: " | ").map { halves($0, " > ") }
      : inputs.indices.map { index in
        (index == 0 ? "at the start" : "after " + inputs[..<index].joined(separator: ", "), inputs[index])
      }
    var lines: [String] = []
    for (situation, input) in steps {
      let phase = try #require(phases[situation], "no situation \(situation)")
      if let last = lines.last {
        #expect(last == phase, "the walk is not one: \(situation)")
      } else {
        lines.append(phase)
      }
      let (next, effect) = halves(try #require(table[situation]?[input], "no \(input) \(situation)"), ": ")
      lines += ["  │ \(input)" + (effect.isEmpty ? "" : "   ⇒ \(effect)"), "  ▼", next]
    }
    return lines
  }
}
