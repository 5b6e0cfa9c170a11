import ATT
import BindruneWire
import GATT

/// Any stack under test, over a socket that carries its ATT PDUs, in real time. `Fixtures/Scripts/FORMAT.md`.
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

  /// Connects. A stack with a control connection first gets the path of its `database` file.
  public init(_ address: SocketAddress, control: SocketAddress?, database: String?) throws(SocketError) {
    self.address = address
    if let control {
      self.control = try MessageSocket.connect(to: control, .lines)
    } else {
      self.control = nil
    }
    if self.control != nil {
      let answer = try ask("open \(database ?? "-")")
      guard answer == "ok" else {
        throw SocketError(
          description: "The stack under test cannot open \(database ?? "an empty database"): \(answer).")
      }
    }
    socket = try MessageSocket.connect(to: address, .pdus)
  }

  // MARK: PDUs

  public func send(_ pdu: [UInt8]) throws(TargetError) {
    guard let socket else { throw .failed("the bearer is closed") }
    let isSent: Bool
    do throws(SocketError) { isSent = try socket.send(pdu, within: .seconds(10)) } catch {
      throw .failed(error.description)
    }
    if !isSent { throw .failed("the bearer is closed") }
  }

  public func receive(within time: Duration) throws(TargetError) -> Received {
    early.isEmpty ? try next(within: time) : early.removeFirst()
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
    ended = nil
    socket = nil  // closes it
    do throws(SocketError) { socket = try MessageSocket.connect(to: address, .pdus) } catch {
      throw .failed(error.description)
    }
  }

  // MARK: Control

  public var takesCommands: Bool { control != nil }
  public func perform(_ command: Command) throws(TargetError) {
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
    return ended
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
      case .value(let kind, let handle, let pattern):
        values.append(ReceivedValue(kind: kind, handle: handle, octets: pattern.octets ?? []))
      default: throw FileError("control", line: 1, "neither a result nor a value")
      }
    } catch {
      throw SocketError(description: "The stack under test says \"\(line)\": \(error.message).")
    }
  }
}
