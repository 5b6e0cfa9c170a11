import BindruneATT
import ArgumentParser
import Bindrune
import BindruneWire
import BindruneGATT

/// How a value is printed.
enum ValueFormat: String, CaseIterable, ExpressibleByArgument {
  /// As its characteristic defines it, if the tool knows it (`87 %`), else as text or hexadecimal digits.
  case text
  case hex
  /// As text; escapes unprintable characters.
  case utf8
  case json

  /// Whether the line depends on what the attribute is.
  var needsUUID: Bool { self == .text || self == .json }

  /// Prints a value on a line. `label` precedes it, except in JSON.
  func show(
    _ value: [UInt8], of handle: AttributeHandle, _ attribute: RemoteAttribute?, event: String = "value",
    label: String? = nil, after time: Duration? = nil
  ) {
    let text = attribute?.uuid.text(of: value.span)
    if self == .json {
      var line = JSONLine(event: event)
      if let time { line.add("seconds", time / .seconds(1)) }
      line.add("handle", Int(handle.rawValue))
      line.add("uuid", attribute?.uuid.description)
      line.add("name", attribute?.uuid.assignedName)
      line.add("value", hexText(value))
      line.add("text", text ?? utf8(value))
      return Console.line(line)
    }
    let shown =
      switch self {
      case .hex: hexText(value)
      case .utf8: String(decoding: value, as: UTF8.self).printable()
      default: text ?? readable(value, limit: .max)
      }
    Console.line((label.map { $0.printable() + "\t" } ?? "") + shown)
  }
  private func utf8(_ value: [UInt8]) -> String? {
    let text = String(decoding: value, as: UTF8.self)
    return Array(text.utf8) == value ? text : nil
  }
  static let help: ArgumentHelp = ArgumentHelp(
    """
    How values are printed: text (as the characteristic defines it, such as 87 %, else text or hexadecimal \
    digits), hex, utf8, or json, an object on each line.
    """)
}
