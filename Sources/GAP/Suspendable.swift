import BindruneWire
import BindruneHCI

/// # Suspendable
/// **Overview**: a machine that uses our address on the air: Scanner, AdvertisingSet, Connections. A controller changes
/// its address and its resolving list only while none of them uses the radio: Vol 4, Part E, §7.8.4, §7.8.38.
///
/// **Function**: `suspend` turns the machine off, reports nothing, and keeps what its callers want, which may change
/// meanwhile; `resume` continues from there. `isQuiet` tells when it is off.
protocol Suspendable {
  associatedtype Outcome
  var isSuspended: Bool { get set }
  /// `HCILayer.cause` of the last call that changed what the machine has to do.
  var cause: UInt64 { get set }
  /// Nothing of the machine is on in the controller, and no command is in flight.
  var isQuiet: Bool { get }
  /// `isSuspended` has changed: sends the next command, if none is in flight.
  mutating func suspensionChanged(hci: inout HCILayer, now: Instant) -> Outcome?
}
extension Suspendable {
  @discardableResult mutating func suspend(hci: inout HCILayer, now: Instant) -> Outcome? {
    isSuspended = true
    cause = hci.cause
    return suspensionChanged(hci: &hci, now: now)
  }
  @discardableResult mutating func resume(hci: inout HCILayer, now: Instant) -> Outcome? {
    isSuspended = false
    return hci.withCause(cause) { suspensionChanged(hci: &$0, now: now) }
  }
}

/// Where a machine's table leads: the next phase, and the command that is sent on the way.
struct Move<Phase, Command> {
  var phase: Phase
  var command: Command?
  init(_ phase: Phase, _ command: Command? = nil) {
    self.phase = phase
    self.command = command
  }
}
