import BindruneWire
import BindruneGATT
import BindruneHCI

/// Commands of the application that have not been answered.
struct ApplicationCommands {
  private var waiting: [(number: UInt16, id: RequestID)] = []
  private var last: UInt16 = 0

  /// The number that the answer will have.
  mutating func append(_ id: RequestID) -> UInt16 {
    last &+= 1
    waiting.append((last, id))
    return last
  }
  /// nil: nobody waits for the answer any more.
  mutating func remove(_ number: UInt16) -> RequestID? {
    waiting.firstIndex { $0.number == number }.map { waiting.remove(at: $0).id }
  }
  /// False: it is not among those that wait.
  mutating func cancel(_ id: RequestID) -> Bool {
    waiting.firstIndex { $0.id == id }.map { waiting.remove(at: $0) } != nil
  }
  mutating func removeAll() -> [RequestID] {
    defer { waiting = [] }
    return waiting.map { $0.id }
  }
}

extension HostCore {
  /// Sends a command as it is. Ends with `.completed(id, .returned)`: the return parameters, empty after Command
  /// Status; or with `.failed(.refused(.send, status))` or `.failed(.controllerIsSilent)`. Throws, without an outcome,
  /// where a field is unset or ranges in the command do not lie in `source`. HCI_Reset is `start`'s: it traps here.
  ///
  /// The core does not learn what such a command changes.
  public mutating func send<Command: HCICommand>(
    _ command: Command, from source: Span<UInt8> = Span(), id: RequestID, now: Instant
  ) throws(WireError) {
    guard phase == .running else { return emit(.completed(id, .failed(.notStarted))) }
    precondition(Command.opcode != Reset.opcode, "start resets the controller")
    let number = applicationCommands.append(id)
    do throws(WireError) {
      try hci.send(command, from: source, tag: Sender.application.tag(number), now: now)
    } catch {
      _ = applicationCommands.remove(number)
      throw error
    }
    drain(now)
  }
  mutating func applicationCommandEnded(_ outcome: CommandOutcome, in packet: Span<UInt8>) {
    guard let id = applicationCommands.remove(UInt16(truncatingIfNeeded: outcome.tag)) else { return }
    guard outcome.status == .success else {
      return emit(.completed(id, .failed(outcome.failure(of: .send))))
    }
    emit(.completed(id, .returned(upper.batch.keep(packet.extracting(outcome.returnParameters.range)))))
  }
}
