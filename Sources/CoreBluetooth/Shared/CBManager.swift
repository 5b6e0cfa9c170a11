import BindruneBroker
public import Foundation

/// What central and peripheral managers have in common: the adapter's state, and whether the app may use it.
open class CBManager: NSObject, _KeyValueCodingAndObserving, KeyValueObserved, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock of each class.

  /// Guards what the properties of this manager and of its objects show.
  let lock = Lock()
  // Under the lock.
  var currentState = CBManagerState.unknown
  var observers: [KeyValueObserver] = []

  /// The state of the manager. It is `unknown` until the first call of the delegate, which never comes before the
  /// initialiser has returned. Without a delegate it stays `unknown`.
  open var state: CBManagerState { lock.withLock { currentState } }

  /// Whether the app may use Bluetooth. Linux does not ask the user; missing permissions are the state `unauthorized`.
  open class var authorization: CBManagerAuthorization { .allowedAlways }
  @available(*, deprecated, message: "use the class property")
  open var authorization: CBManagerAuthorization { Self.authorization }
}

extension CBCentralManager {
  /// Not Apple's: what the launch options of an app have under `bluetoothCentrals`. The restoration identifiers of the
  /// managers that had something to do while the app had no process, if bindruned has relaunched it for that; else
  /// none. It blocks until the daemon has answered.
  public static var launchRestoreIdentifiers: [String] { SessionChoice.launchIdentifiers(of: .central) }
}
extension CBPeripheralManager {
  /// Not Apple's: the same of `bluetoothPeripherals`.
  public static var launchRestoreIdentifiers: [String] { SessionChoice.launchIdentifiers(of: .peripheral) }
}

extension Delivery {
  /// With a session on the adapter that `options` names (see `SessionChoice`), or with that of a `SessionOpener`.
  static func opened(
    on queue: DispatchQueue?, _ options: [String: Any]?, for role: BackgroundMode
  ) -> (Delivery, any BrokerSession) {
    let delivery = Delivery(on: queue)
    if let opener = options?[SessionOpener.key] as? SessionOpener {
      return (delivery, opener.open(delivery.events))
    }
    let adapter = options?[CBManagerOptionAdapterKey] as? String
    // One key for both roles.
    let identifier = options?[CBCentralManagerOptionRestoreIdentifierKey] as? String
    let identity = ManagerIdentity(role, restoreIdentifier: identifier.flatMap { $0.isEmpty ? nil : $0 })
    return (delivery, SessionChoice.open(adapter: adapter, as: identity, events: delivery.events))
  }
}

/// Opens another session than one of this process. It is passed among the options, so that each manager has one
/// designated initialiser, as Apple's have, and a subclass that overrides that one inherits the others.
final class SessionOpener {
  static let key = "bindruneSession"
  let open: (EventQueue) -> any BrokerSession
  init(_ open: @escaping (EventQueue) -> any BrokerSession) { self.open = open }
  func added(to options: [String: Any]?) -> [String: Any] { (options ?? [:]).merging([Self.key: self]) { $1 } }
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
