import BindruneBroker
import CoreBluetooth

/// An adapter that is on, and never answers.
final class SilentSession: BrokerSession {
  init(events: EventQueue) { events.put([.adapter(.poweredOn)]) }
  func send(_ request: BrokerRequest) {}
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? { nil }
  func close() {}
}
