// Beside it, what it brings along.
import CoreBluetooth
import CoreFoundation

public func now() -> CFAbsoluteTime { CFAbsoluteTimeGetCurrent() }

public final class QueueKeeper: CBCentralManager {
  public override init(delegate: CBCentralManagerDelegate?, queue: dispatch_queue_t?, options: [String: Any]? = nil) {
    super.init(delegate: delegate, queue: queue, options: options)
  }
}
