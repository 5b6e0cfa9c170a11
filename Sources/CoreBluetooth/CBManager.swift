import BindruneBroker
public import Foundation

/// What central and peripheral managers have in common: the adapter's state, and whether the app may use it.
open class CBManager: NSObject, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock of each class.

  /// Guards what the properties of this manager and of its objects show.
  let lock = NSLock()
  private var currentState = CBManagerState.unknown

  /// Managers are made by the initialisers of the subclasses.
  override init() { super.init() }

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
