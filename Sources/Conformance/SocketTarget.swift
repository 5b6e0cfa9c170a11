import BindruneATT
import BindruneGATT
import BindruneHCI
import BindruneWire

/// Any stack under test, over a socket that carries its PDUs of one channel, in real time.
/// `Fixtures/Scripts/FORMAT.md`.
public final class SocketTarget: ConformanceTarget {
  private let address: SocketAddress
  private var socket: MessageSocket?
  /// The connection for commands, if the stack has one.
  private let control: MessageSocket?
  /// PDUs that arrived while time passed.
  private var early: [Received] = []

  // Lines of the control connection that answer no command.
  private var resultLines: [ExpectedResult] = []
  private var ended: ProcedureResult?
  private var values: [ReceivedValue] = []
  private var events: [ApplicationEvent] = []
  private var linkKey: [UInt8]?
  /// Of a pairing, which may end before its result is asked for.
  private let channel: Channel
  /// The stack takes part in no script of the channel.
  private var isUnsupported = false

  /// Connects. A stack with a control connection first gets the path of its `database` file; or for a script of the
  /// channel smp, its role and the addresses; or of l2cap, its role.
  public init(
    _ address: SocketAddress, control: SocketAddress?, database: String?, script: Script? = nil
  ) throws(SocketError) {
    channel = script?.channel ?? .att
    self.address = address
    if let control {
      self.control = try MessageSocket.connect(to: control, .lines)
    } else {
      self.control = nil
    }
    if self.control != nil {
      let answer: String
      switch channel {
      case .att: answer = try ask("open \(database ?? "-")")
      case .smp: answer = try ask(script?.pairing.line ?? PairingRoles().line)
      case .l2cap: answer = try ask((script?.linkRole ?? .peripheral).line)
      }
      // A stack need not have every channel.
      isUnsupported = channel != .att && answer == "unsupported"
      if isUnsupported { return }
      guard answer == "ok" else {
        throw SocketError(
          description: "The stack under test cannot open \(database ?? "an empty database"): \(answer).")
      }
    }
    socket = try MessageSocket.connect(to: address, .pdus)
  }

  // MARK: PDUs

  public func send(_ pdu: [UInt8]) throws(TargetError) {
    try checkSupport()
    guard let socket else { throw .failed("the bearer is closed") }
    let isSent: Bool
    do throws(SocketError) { isSent = try socket.send(pdu, within: .seconds(10)) } catch {
      throw .failed(error.description)
    }
    if !isSent { throw .failed("the bearer is closed") }
  }

  /// A script that the stack cannot take part in is skipped at its first step.
  private func checkSupport() throws(TargetError) {
    if isUnsupported { throw .unsupported("the stack under test has no channel \(channel.rawValue)") }
  }

  public func receive(within time: Duration) throws(TargetError) -> Received {
    try checkSupport()
    return early.isEmpty ? try next(within: time) : early.removeFirst()
  }
  private func next(within time: Duration) throws(TargetError) -> Received {
    guard let socket else { return .closed }
    do throws(SocketError) {
      switch try socket.receive(within: time) {
      case .message(let pdu): return .pdu(pdu)
      case .nothing: return .nothing
      case .closed:
        self.socket = nil
        return .closed
      }
    } catch { throw .failed(error.description) }
  }

  public func wait(_ time: Duration) throws(TargetError) {
    let clock = ContinuousClock(), end = clock.now + time
    while clock.now < end {
      if socket == nil {
        do throws(SocketError) { try MessageSocket.wait(for: [], [], within: end - clock.now) } catch {
          throw .failed(error.description)
        }
      } else if case .pdu(let pdu) = try next(within: end - clock.now) {
        early.append(.pdu(pdu))
      }
    }
  }

  public func reconnect() throws(TargetError) {
    early = []
    values = []
    events = []
    linkKey = nil
    ended = nil
    socket = nil  // closes it
    do throws(SocketError) { socket = try MessageSocket.connect(to: address, .pdus) } catch {
      throw .failed(error.description)
    }
  }

  // MARK: Control

  public var takesCommands: Bool { control != nil }
  public func perform(_ command: Command) throws(TargetError) {
    try checkSupport()
    if case .call = command { ended = nil }
    let answer: String
    do throws(SocketError) { answer = try ask(command.script) } catch { throw .failed(error.description) }
    switch answer {
    case "ok": return
    case "unsupported": throw .unsupported("the stack under test has no \"\(command.script)\"")
    default: throw .failed(answer)
    }
  }

  public func result(within time: Duration) throws(TargetError) -> ProcedureResult? {
    try listen(within: time) { ended != nil }
    // A pairing begins without a command that would forget the result of the one before.
    defer { if channel != .att { ended = nil } }
    return ended
  }
  public func event(within time: Duration) throws(TargetError) -> ApplicationEvent? {
    try listen(within: time) { !events.isEmpty }
    return events.isEmpty ? nil : events.removeFirst()
  }
  public func key(within time: Duration) throws(TargetError) -> [UInt8]? {
    let answer: String
    do throws(SocketError) { answer = try ask("key") } catch { throw .failed(error.description) }
    guard answer == "ok" else {
      throw answer == "unsupported" ? .unsupported("the stack under test has no \"key\"") : .failed(answer)
    }
    try listen(within: time) { linkKey != nil }
    return linkKey.take()
  }
  public func value(within time: Duration) throws(TargetError) -> ReceivedValue? {
    try listen(within: time) { !values.isEmpty }
    return values.isEmpty ? nil : values.removeFirst()
  }

  private func listen(within time: Duration, until isDone: () -> Bool) throws(TargetError) {
    let clock = ContinuousClock(), end = clock.now + time
    do throws(SocketError) {
      while !isDone(), let line = try line(within: end - clock.now) { try take(line) }
    } catch { throw .failed(error.description) }
  }

  /// Sends `line`, and returns the answer.
  private func ask(_ line: String) throws(SocketError) -> String {
    guard let control, try control.send(Array(line.utf8), within: .seconds(10)) else { throw Self.hungUp }
    let clock = ContinuousClock(), end = clock.now + .seconds(10)
    while let answer = try self.line(within: end - clock.now) {
      if answer == "ok" || answer == "unsupported" || answer.hasPrefix("error") { return answer }
      try take(answer)
    }
    throw SocketError(description: "The stack under test does not answer \"\(line)\" within 10 s.")
  }
  private func line(within time: Duration) throws(SocketError) -> String? {
    guard let control else { return nil }
    switch try control.receive(within: max(time, .zero)) {
    case .message(let octets): return String(decoding: octets, as: UTF8.self)
    case .nothing: return nil
    case .closed: throw Self.hungUp
    }
  }
  private static var hungUp: SocketError {
    SocketError(description: "The stack under test has closed its control connection.")
  }

  /// `result …`, `end` or `value …`.
  private func take(_ line: String) throws(SocketError) {
    var nothing: Set<String> = [], scanner = Scanner(line, file: "control", line: 1)
    if line == "end" {
      guard let result = ProcedureResult(lines: resultLines) else {
        throw SocketError(description: "The stack under test ends a procedure with an invalid result.")
      }
      ended = result
      resultLines = []
      return
    }
    do throws(FileError) {
      switch try Action(&scanner, captured: &nothing) {
      case .result(let result): resultLines.append(result)
      case .event(let kind, let pattern): events.append(ApplicationEvent(kind, pattern.octets ?? []))
      case .key(let pattern): linkKey = pattern.octets
      case .value(let kind, let handle, let pattern):
        values.append(ReceivedValue(kind: kind, handle: handle, octets: pattern.octets ?? []))
      default: throw FileError("control", line: 1, "neither a result, a value, a question nor a key")
      }
    } catch {
      throw SocketError(description: "The stack under test says \"\(line)\": \(error.message).")
    }
  }
}
