import ArgumentParser
import BindruneCapture
import BindruneSystem
import BindruneTransport
import BindruneTrace
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import SystemPackage

struct Explain: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Draw a packet field by field.",
    discussion: """
      The octets are hexadecimal digits; spaces, colons, commas, 0x and line breaks between them do not matter, and - \
      reads them from standard input. FILE:FRAME takes a packet of a trace by its number, -:FRAME of a trace on \
      standard input. Octets that begin with the header of an HCI packet of their length, H4 packet type octet first, \
      are drawn as one. For others the first form that fits is a guess: an L2CAP frame, an ATT PDU, an SMP PDU, a \
      signaling command or advertising data; --as selects another. The octets of keys are shown.

      Marked is what breaks a rule of `trace check`: by itself, or, in a trace, together with the other packets. The \
      status is then 1.

      Examples:
        bindrune explain 02 40 20 07 00 03 00 04 00 0A 03 00
        bindrune explain --as ad 02:01:06:05:09:64:65:73:6B
        bindrune explain capture.btsnoop:17
      """)

  @Argument(
    parsing: .remaining,
    help: ArgumentHelp("Octets in hexadecimal, FILE:FRAME, -:FRAME, or - for standard input.", valueName: "octets"))
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
      Self.isPath(String(text[..<colon]))
    {
      return try explain(frame, of: String(text[..<colon]))
    }
    if let path = Self.pathWithoutFrame(text) {
      throw Failure("\(text) names no packet: packets are numbered from 1, so the first is \(path):1.")
    }
    try explain(Self.parse(text))
  }
  /// `-:17` looks like an option to the parser: it is moved behind `--`.
  static func separated(_ arguments: [String]) -> [String] {
    guard arguments.first == "explain", !arguments.contains("--"),
      let place = arguments.firstIndex(where: { $0.hasPrefix("-:") })
    else { return arguments }
    return arguments[..<place] + arguments[(place + 1)...] + ["--", arguments[place]]
  }
  /// A file's name, rather than octets: there is such a file, or it has characters that octets do not have.
  private static func isPath(_ text: String) -> Bool { text == "-" || exists(text) || !areOctets(text) }
  /// `FILE`, `FILE:0` or `FILE:x` of a file that exists: the file's name.
  private static func pathWithoutFrame(_ text: String) -> String? {
    if areOctets(text) { return nil }
    let prefix = text.lastIndex(of: ":").map { String(text[..<$0]) }
    return [text, prefix].compactMap { $0 }.first { exists($0) }
  }
  private static func exists(_ path: String) -> Bool {
    (try? FileDescriptor.opened(FilePath(path), .readOnly)).map { try? $0.close() } != nil
  }
  private static func areOctets(_ text: String) -> Bool { text.allSatisfy { $0.isHexDigit || " :,xX".contains($0) } }

  private func explain(_ octets: [UInt8]) throws {
    var explanation = Explanation(of: octets, as: form?.form)
    explanation.judge()
    try show(explanation, of: nil)
  }
  private func show(_ explanation: Explanation, of source: Source?) throws {
    if json {
      Console.line(object(explanation, source))
    } else {
      if let source, source.records.count > 1 {
        let records = source.records.map(String.init).joined(separator: ", ")
        Console.line(
          """
          Frame \(source.records.last ?? 0) of \(source.path.printable(limit: 200)) ends this L2CAP frame, whose \
          fragments are in the frames \(records).
          """
        )
      }
      draw(explanation)
    }
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
    let others = explanation.alternatives.map(\.rawValue).joined(separator: ", ")
    if explanation.isGuess, !explanation.isSound || !others.isEmpty {
      let choice = others.isEmpty ? "no other form fits" : "--as also fits: \(others)"
      Console.line(Console.styled("Explained as \(explanation.form.rawValue), which is a guess; \(choice).", .dim))
    } else if !others.isEmpty {
      Console.line(Console.styled("Explained as \(explanation.form.rawValue). --as also fits: \(others).", .dim))
    }
  }
  /// Where octets come from: a trace, and the numbers of the records that have them.
  private struct Source {
    var path: String
    var records: [Int]
  }
  private func object(_ explanation: Explanation, _ source: Source?) -> JSONLine {
    var line = JSONLine(event: "explanation")
    if let source {
      line.add("file", source.path)
      line.add("frames", source.records)
    }
    line.add("octets", hexText(explanation.octets.span))
    line.add("as", explanation.form.rawValue)
    line.add("guessed", explanation.isGuess)
    line.add("also", explanation.alternatives.map(\.rawValue))
    line.add("sound", explanation.isSound)
    line.add(
      "rows",
      explanation.rows.map { row in
        let octets = row.bit / 8..<(row.bit + row.width + 7) / 8
        var object = JSONLine()
        object.add("kind", row.kind.rawValue)
        object.add("bit", row.bit)
        object.add("width", row.width)
        object.add("octets", row.isLeaf ? hexText(explanation.octets.span.extracting(octets)) : nil)
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
          """
          Character \(column), "\(String(scalar).printable(limit: 8))", is not a hexadecimal digit: write octets as 0A \
          03 00, or FILE:FRAME for a packet of a trace that exists.
          """
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
    var sink = DissectingSink(ExplainedRecord(number))
    var file: TraceFile
    do throws(TraceError) { file = try TraceFile(path: path) } catch { throw Failure(error.description) }
    do throws(TraceError) { try file.read(into: &sink) } catch {
      if sink.sink.records.isEmpty { throw Failure(error.description) }
    }
    guard let explanation = sink.sink.explanation(as: form?.form) else {
      throw Failure("\(file.path) has no packet \(number): `bindrune trace show` lists its packets.")
    }
    try show(explanation, of: Source(path: file.path, records: sink.sink.records))
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
