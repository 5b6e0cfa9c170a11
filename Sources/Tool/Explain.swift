import ArgumentParser
import BindruneCapture
import BindruneTrace
import BindruneWire
import GATT
import HCI
import L2CAP
import SystemPackage

struct Explain: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Draw a packet field by field.",
    discussion: """
      The octets are hexadecimal digits; spaces, colons, commas, 0x and line breaks between them do not matter, and - \
      reads them from standard input. FILE:FRAME takes a packet of a trace by its number. The first form that fits is \
      drawn: an HCI packet with its H4 packet type octet, an L2CAP frame, an ATT PDU, an SMP PDU, a signaling command \
      or advertising data; --as selects another. The octets of keys are shown.

      Examples:
        bindrune explain 02 40 20 07 00 03 00 04 00 0A 03 00
        bindrune explain --as ad 02:01:06:05:09:64:65:73:6B
        bindrune explain capture.btsnoop:17
      """)

  @Argument(
    parsing: .remaining,
    help: ArgumentHelp("Octets in hexadecimal, FILE:FRAME, or - for standard input.", valueName: "octets"))
  var octets: [String]
  @Option(
    name: .customLong("as"),
    help: ArgumentHelp("What the octets are: hci, l2cap, att, smp, signaling or ad.", valueName: "form"))
  var form: ExplainedForm?
  @Flag(help: "Print one JSON object.")
  var json = false

  /// Hexadecimal digits that a caller passes; an L2CAP frame of at most 65,539 octets is longer than any packet.
  private static let limit = 1 << 20

  func run() async throws {
    if octets == ["-"] {
      guard let input = try await StandardInput.all(upTo: Self.limit) else {
        throw Failure("Standard input has more than \(Self.limit) octets: give the digits of one packet.")
      }
      return try explain(Self.parse(String(decoding: input, as: UTF8.self)))
    }
    let text = octets.joined(separator: " ")
    if let colon = text.lastIndex(of: ":"), let frame = Int(text[text.index(after: colon)...]), frame > 0,
      isFile(String(text[..<colon]))
    {
      return try explain(frame, of: String(text[..<colon]))
    }
    try explain(Self.parse(text))
  }
  private func isFile(_ path: String) -> Bool {
    (try? FileDescriptor.open(FilePath(path), .readOnly)).map { try? $0.close() } != nil
  }

  private func explain(_ octets: [UInt8], as form: Explanation.Form? = nil) throws {
    let explanation = Explanation(of: octets, as: form ?? self.form?.form)
    if json { Console.line(object(explanation)) } else { draw(explanation) }
    if !explanation.isSound { throw ExitCode.failure }
  }
  private func draw(_ explanation: Explanation) {
    for line in explanation.lines(naming: { BluetoothUUID($0)?.assignedName }) {
      let style: Console.Style? =
        switch line.kind {
        case .layer: .bold
        case .entry: .cyan
        case .flag: .dim
        case .wrong, .problem: .red
        case .field, .bits: nil
        }
      Console.line(style.map { Console.styled(line.text, $0) } ?? line.text)
    }
    if !explanation.alternatives.isEmpty {
      let others = explanation.alternatives.map(\.rawValue).joined(separator: ", ")
      Console.line(Console.styled("Explained as \(explanation.form.rawValue). --as also fits: \(others).", .dim))
    }
  }
  private func object(_ explanation: Explanation) -> JSONLine {
    var line = JSONLine(event: "explanation")
    line.add("as", explanation.form.rawValue)
    line.add("also", explanation.alternatives.map(\.rawValue))
    line.add("sound", explanation.isSound)
    line.add(
      "rows",
      explanation.rows.map { row in
        var object = JSONLine()
        object.add("kind", row.kind.rawValue)
        object.add("bit", row.bit)
        object.add("width", row.width)
        object.add("label", row.label)
        object.add("text", row.text)
        return object
      })
    return line
  }

  /// The octets of hexadecimal digits.
  static func parse(_ text: String) throws -> [UInt8] {
    var octets: [UInt8] = [], high: UInt8?, column = 0
    let scalars = Array(text.unicodeScalars)
    var index = 0
    while index < scalars.count {
      let scalar = scalars[index]
      column = index + 1
      index += 1
      if scalar == " " || scalar == ":" || scalar == "," || scalar == "\n" || scalar == "\r" || scalar == "\t" {
        if high != nil {
          throw Failure("The octet before character \(column) has one digit: write two for each octet.")
        }
        continue
      }
      if high == nil, scalar == "0", index < scalars.count, scalars[index] == "x" || scalars[index] == "X" {
        index += 1
        continue
      }
      guard let digit = Character(scalar).hexDigitValue, scalar.isASCII else {
        throw Failure(
          "Character \(column), \"\(String(scalar).printable(limit: 8))\", is not a hexadecimal digit: write octets as 0A 03 00, or FILE:FRAME for a packet of a trace that exists."
        )
      }
      if let first = high {
        octets.append(first << 4 | UInt8(digit))
        high = nil
      } else {
        high = UInt8(digit)
      }
    }
    if high != nil { throw Failure("The last octet has one digit: write two for each octet.") }
    if octets.isEmpty { throw Failure("There are no octets: write them as 0A 03 00.") }
    if octets.count > 0xFFFF { throw Failure("\(octets.count) octets are more than a packet has: give one packet.") }
    return octets
  }

  // MARK: A packet of a trace

  private func explain(_ number: Int, of path: String) throws {
    var sink = DissectingSink(OneFrame(number))
    var file: TraceFile
    do throws(TraceError) { file = try TraceFile(path: path) } catch { throw Failure(error.description) }
    do throws(TraceError) { try file.read(into: &sink) } catch {
      if sink.sink.octets == nil { throw Failure(error.description) }
    }
    guard let octets = sink.sink.octets, !octets.isEmpty, octets.count <= 0xFFFF else {
      throw Failure("\(path) has no packet \(number): `bindrune trace show` lists its packets.")
    }
    if let frame = sink.sink.frame {
      Console.line("Frame \(number) of \(path) ends the L2CAP frame that follows.".printable(limit: 200))
      return try explain(frame, as: form?.form ?? .l2cap)
    }
    try explain(octets, as: form?.form ?? .hci)
  }
}

/// `--as att`.
struct ExplainedForm: ExpressibleByArgument {
  var form: Explanation.Form
  init?(argument: String) {
    guard let form = Explanation.Form(rawValue: argument.lowercased()) else { return nil }
    self.form = form
  }
}

/// Keeps one packet of a trace, and the frame that it ends if its own octets are only the last of it.
private struct OneFrame: TraceSink {
  let number: Int
  var octets: [UInt8]?
  var frame: [UInt8]?
  init(_ number: Int) { self.number = number }

  var wantsMore: Bool { octets == nil }
  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard record.number == number, record.content == .packet else { return }
    octets = bytes.indices.map { bytes[$0] }
  }
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard record.number == number, let octets, octets.count > 2, octets[2] >> 4 & 3 == 1 else { return }
    let header = [UInt16(truncatingIfNeeded: frame.length), frame.channel.rawValue]
    self.frame = header.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] } + payload.indices.map { payload[$0] }
  }
  mutating func violation(
    _: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord
  ) {}
}
