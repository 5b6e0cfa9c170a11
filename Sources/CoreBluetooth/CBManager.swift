import BindruneBroker
public import Foundation

/// What central and peripheral managers have in common: the adapter's state, and whether the app may use it.
open class CBManager: NSObject, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock of each class.

  /// Guards what the properties of this manager and of its objects show.
  let lock = NSLock()
  private var currentState = CBManagerState.unknown
  let delivery: Delivery
  let session: any BrokerSession
  let showsPowerAlert: Bool

  /// Managers are made by the initialisers of the subclasses. `open` gets the adapter's name, see `AdapterChoice`.
  init(
    _ queue: DispatchQueue?, _ options: [String: Any]?,
    session open: (String?, @escaping @Sendable (BrokerEvent) -> Void) -> any BrokerSession = {
      DirectSession(adapter: $0, deliver: $1)
    }
  ) {
    let delivery = Delivery(on: queue)
    self.delivery = delivery
    session = open(options?[CBManagerOptionAdapterKey] as? String) { delivery.put($0) }
    // The centrals' key is the same.
    showsPowerAlert = options?.bool(CBPeripheralManagerOptionShowPowerAlertKey) ?? false
    super.init()
  }

  /// What the manager can do now; `unknown` until the delegate is told for the first time.
  open var state: CBManagerState { lock.withLock { currentState } }
  func setState(_ state: CBManagerState) { lock.withLock { currentState = state } }

  /// Whether the app may use Bluetooth. Linux asks nobody: what it does not permit is the state `unauthorized`.
  open class var authorization: CBManagerAuthorization { .allowedAlways }
  @available(*, deprecated, message: "use the class property")
  open var authorization: CBManagerAuthorization { Self.authorization }
}

extension CBManagerState {
  init(_ state: AdapterState) {
    self =
      switch state {
      case .unknown: .unknown
      case .resetting: .resetting
      case .unsupported: .unsupported
      case .unauthorized: .unauthorized
      case .poweredOff: .poweredOff
      case .poweredOn: .poweredOn
      }
  }
}
