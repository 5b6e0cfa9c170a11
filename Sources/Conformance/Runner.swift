import BindruneATT
import BindruneWire
import BindruneGATT

/// The result of a script.
public struct Verdict: Sendable, Equatable {
  public enum Outcome: Sendable, Equatable {
    case passed
    case failed(Failure)
    /// The target cannot do what the script requires.
    case skipped(String)
  }
  public struct Failure: Sendable, Equatable {
    public var line: Int
    public var step: String
    public var expected: String
    public var got: String

    public init(line: Int, step: String, expected: String, got: String) {
      self.line = line
      self.step = step
      self.expected = expected
      self.got = got
    }
  }
  public var outcome: Outcome
  /// Every PDU on the bearer, in order, in the syntax of scripts: `< 0A 03 00`.
  public var transcript: [String]

  /// For a script that could not be started.
  public init(failure: Failure) { self.init(outcome: .failed(failure), transcript: []) }
  init(outcome: Outcome, transcript: [String]) {
    self.outcome = outcome
    self.transcript = transcript
  }
}

/// Runs a script against a target, line by line, until one fails.
public struct Runner {
  /// The time allowed for an expected PDU, result or value. Less than the 30 s of Vol 3, Part F, §3.3.3; a script that
  /// needs more says `wait`.
  public var patience: Duration
  private let target: any ConformanceTarget
  private var known: Values
  private var transcript: [String] = []
  /// PDUs that may come at any time.
  private var ignored: [OctetPattern] = []

  public static func run(
    _ script: Script, against target: any ConformanceTarget, patience: Duration = .seconds(5)
  ) -> Verdict {
    var runner = Runner(patience: patience, target: target, known: Values(script))
    let outcome = runner.run(script)
    return Verdict(outcome: outcome, transcript: runner.transcript)
  }

  private mutating func run(_ script: Script) -> Verdict.Outcome {
    if !target.takesCommands {
      if script.channel != .att {
        return .skipped("a script of the channel \(script.channel.rawValue) needs a control connection")
      }
      if let step = script.steps.all.first(where: { $0.action.isCommand }) {
        return .skipped("line \(step.line), \(step.text), needs a control connection")
      }
    }
    do throws(Stop) {
      try run(script.steps)
      // An unexpected PDU is as wrong as a missing one.
      if case .pdu(let pdu) = try receive(within: .zero, expecting: []) {
        throw Stop.mismatch(expected: "nothing", got: hexText(pdu)).at(
          script.end)
      }
      // So is something that the application learns and should not.
      if script.channel == .l2cap,
        let event = try ask({ target throws(TargetError) in try target.event(within: .zero) })
      {
        throw Stop.mismatch(expected: "no other event", got: event.description).at(script.end)
      }
      return .passed
    } catch {
      switch error {
      case .failure(let failure): return .failed(failure)
      case .target(.unsupported(let what)): return .skipped(what)
      case .target(.failed(let why)):
        return .failed(Verdict.Failure(line: 0, step: "the end", expected: "nothing", got: why))
      case .mismatch(let expected, let got):
        return .failed(Verdict.Failure(line: 0, step: "the end", expected: expected, got: got))
      }
    }
  }

  /// Why a run stops.
  private enum Stop: Error {
    case mismatch(expected: String, got: String)
    case target(TargetError)
    case failure(Verdict.Failure)

    func at(_ step: Step) -> Stop {
      switch self {
      case .mismatch(let expected, let got):
        .failure(Verdict.Failure(line: step.line, step: step.text, expected: expected, got: got))
      case .target(.failed(let why)):
        .failure(Verdict.Failure(line: step.line, step: step.text, expected: "that it can be done", got: why))
      case .target(.unsupported), .failure: self
      }
    }
  }

  private mutating func run(_ steps: [Step]) throws(Stop) {
    for step in steps {
      do throws(Stop) { try run(step) } catch {
        throw error.at(step)
      }
    }
  }
  private mutating func run(_ step: Step) throws(Stop) {
    switch step.action {
    case .send(let pattern):
      let pdu = try filled(pattern)
      transcript.append("< \(hexText(pdu))")
      try ask { target throws(TargetError) in try target.send(pdu) }
    case .expect(let alternatives): try expect(alternatives)
    case .nothing(let time):
      let received = try receive(within: time, expecting: [])
      guard case .nothing = received else {
        throw .mismatch(expected: "nothing within \(time.script)", got: text(received))
      }
    case .ignore(let pattern): ignored.append(pattern)
    case .wait(let time): try ask { target throws(TargetError) in try target.wait(time) }
    case .closed:
      let received = try receive(within: patience, expecting: [.closed])
      guard case .closed = received else { throw .mismatch(expected: "the end of the bearer", got: text(received)) }
    case .reconnect:
      transcript.append("reconnect")
      try ask { target throws(TargetError) in try target.reconnect() }
    case .command(let command):
      let command = try computed { values throws(NoValue) in try command.filled(with: values) }
      transcript.append(step.text)
      try ask { target throws(TargetError) in try target.perform(command) }
    case .result(let expected): try check(expected)
    case .value(let kind, let handle, let pattern):
      let patience = patience
      let value = try ask { target throws(TargetError) in try target.value(within: patience) }
      guard let value, value.kind == kind, value.handle == handle, pattern.matches(value.octets, &known) else {
        throw .mismatch(
          expected: "\(kind) \(handle.script) \(pattern)",
          got: value.map { "\($0.kind) \($0.handle.script) \(hexText($0.octets))" } ?? "no value")
      }
    case .event(let kind, let pattern):
      let patience = patience
      let event = try ask { target throws(TargetError) in try target.event(within: patience) }
      if let event { transcript.append("\(event)") }
      guard let event, event.kind == kind, pattern.matches(event.octets, &known) else {
        throw .mismatch(
          expected: "\(kind.rawValue) \(pattern.computed(with: known))", got: event?.description ?? "no question")
      }
    case .key(let pattern):
      let patience = patience
      let key = try ask { target throws(TargetError) in try target.key(within: patience) }
      guard let key, pattern.matches(key, &known) else {
        throw .mismatch(
          expected: "\(pattern.computed(with: known))", got: key.map { hexText($0) } ?? "no key")
      }
    case .check(let left, let right, let isEqual):
      let (found, wanted) = (try filled(left), try filled(right))
      guard (found == wanted) == isEqual else {
        throw .mismatch(expected: (isEqual ? "" : "other octets than ") + hexText(wanted), got: hexText(found))
      }
    case .define(let name, let pattern): known.named[name] = try filled(pattern)
    case .repeated(let count, let steps):
      let outer = known.named[Values.round]
      for round in 0..<(try number(count)) {
        known.named[Values.round] = [UInt8(truncatingIfNeeded: round)]
        try run(steps)
      }
      known.named[Values.round] = outer
    case .either(let branches): try choose(branches)
    }
  }

  private func number(_ count: Count) throws(Stop) -> Int {
    switch count {
    case .fixed(let number): return number
    case .captured(let name):
      let octets = try filled(OctetPattern(parts: [.captured(name)]))
      guard octets.count <= 2 else {
        throw .mismatch(expected: "a count of one or two octets", got: hexText(octets))
      }
      return octets.reversed().reduce(0) { $0 << 8 | Int($1) }
    }
  }
  private func filled(_ pattern: OctetPattern) throws(Stop) -> [UInt8] {
    try computed { values throws(NoValue) in try pattern.filled(with: values) }
  }
  private func computed<Result>(_ body: (Values) throws(NoValue) -> Result) throws(Stop) -> Result {
    do throws(NoValue) { return try body(known) } catch {
      throw .mismatch(expected: error.report.expected, got: error.report.got)
    }
  }

  private func ask<Answer>(
    _ body: (any ConformanceTarget) throws(TargetError) -> Answer
  ) throws(Stop) -> Answer {
    do throws(TargetError) { return try body(target) } catch { throw .target(error) }
  }
  /// The next PDU that is expected or is not to be ignored.
  private mutating func receive(within time: Duration, expecting: [Expectation]) throws(Stop) -> Received {
    while true {
      let received = try ask { target throws(TargetError) in try target.receive(within: time) }
      guard case .pdu(let pdu) = received else { return received }
      transcript.append("> \(hexText(pdu))")
      var copy = known
      if expecting.contains(where: { if case .pdu(let pattern) = $0 { pattern.matches(pdu, &copy) } else { false } })
        || !ignored.contains(where: { $0.matches(pdu, &copy) })
      {
        return received
      }
    }
  }
  private func text(_ received: Received) -> String {
    switch received {
    case .pdu(let pdu): hexText(pdu)
    case .nothing: "nothing"
    case .closed: "the end of the bearer"
    }
  }

  private mutating func expect(_ alternatives: [Expectation]) throws(Stop) {
    let received = try receive(within: patience, expecting: alternatives)
    guard !isOne(of: alternatives, received) else { return }
    throw .mismatch(expected: text(alternatives), got: text(received))
  }
  private mutating func isOne(of alternatives: [Expectation], _ received: Received) -> Bool {
    for alternative in alternatives {
      switch (alternative, received) {
      case (.pdu(let pattern), .pdu(let pdu)) where pattern.matches(pdu, &known): return true
      case (.nothing, .nothing), (.closed, .closed): return true
      default: continue
      }
    }
    return false
  }
  private func text(_ alternatives: [Expectation]) -> String {
    let texts = alternatives.map { alternative in
      switch alternative {
      case .pdu(let pattern): pattern.computed(with: known).description
      case .nothing: "nothing"
      case .closed: "the end of the bearer"
      }
    }
    return texts.joined(separator: " | ")
  }
  /// The rest of the branch whose first step matches the next PDU; the parser lets a branch begin with nothing else.
  private mutating func choose(_ branches: [[Step]]) throws(Stop) {
    var all: [Expectation] = []
    for case .expect(let alternatives)? in branches.map({ $0.first?.action }) { all += alternatives }
    let received = try receive(within: patience, expecting: all)
    for branch in branches {
      guard case .expect(let alternatives) = branch.first?.action else { continue }
      if isOne(of: alternatives, received) { return try run(Array(branch.dropFirst())) }
    }
    throw .mismatch(expected: text(all), got: text(received))
  }

  private mutating func check(_ expected: ExpectedResult) throws(Stop) {
    let patience = patience
    let result = try ask { target throws(TargetError) in try target.result(within: patience) }
    guard let result else { throw .mismatch(expected: expected.description, got: "no result") }
    let isRight: Bool
    switch (expected, result) {
    case (.done, .done), (.timeout, .timeout), (.failed, .failed), (.failed, .error), (.failed, .timeout):
      isRight = true
    case (.value(let pattern), .value(let octets)): isRight = pattern.matches(octets, &known)
    case (.values(let wanted), .values(let values)):
      isRight =
        wanted.count == values.count
        && zip(wanted, values).allSatisfy { $0.handle == $1.handle && $0.octets.matches($1.octets, &known) }
    case (.error(let error, let handle), .error(let found, let foundHandle)):
      isRight = error == found && (handle == nil || handle == foundHandle)
    case (.found(let kind, let items), .found(let found)): isRight = found[kind] == items
    case (.done, .found), (.encrypted, .encrypted): isRight = true
    case (.failed, .pairingFailed): isRight = true
    case (.paired(let how), .paired(let found)): isRight = how == found
    case (.pairingFailed(let reason), .pairingFailed(let found)): isRight = reason == found
    default: isRight = false
    }
    guard isRight else {
      var got = result.description
      if case .found(let kind, _) = expected, case .found(let found) = result, let list = found[kind] {
        got = "\(kind.rawValue) \(items(list))"
      }
      throw .mismatch(expected: expected.description, got: got)
    }
  }
}

extension Script {
  /// For what must not follow the last step.
  fileprivate var end: Step { Step(line: steps.last?.line ?? 0, text: "the end of the script", action: .closed) }
}

extension ExpectedResult: CustomStringConvertible {
  public var description: String {
    switch self {
    case .done: "done"
    case .value(let pattern): "value \(pattern)"
    case .values(let values): "values " + values.map { "\($0.handle.script) \($0.octets)" }.joined(separator: ", ")
    case .error(let error, let handle):
      "error 0x\(hexDigits(UInt64(error.rawValue), 2))" + (handle.map { " \($0.script)" } ?? "")
    case .failed: "failed"
    case .timeout: "timeout"
    case .found(let kind, let list): "\(kind.rawValue) \(items(list))"
    case .paired(let how): how.description
    case .pairingFailed(let reason): reason.script
    case .encrypted: "encrypted"
    }
  }
}
