public import Foundation
import Synchronization

// Key-value observing in Swift's form, which Foundation on Linux does not have: the names and types are those of
// Apple's Foundation. Where and when handlers run: Decision 0044.

/// What a change handler receives, and when. The numbers are Apple's.
public struct NSKeyValueObservingOptions: OptionSet, Sendable {
  public let rawValue: UInt
  public init(rawValue: UInt) { self.rawValue = rawValue }
  /// The change has the value after it.
  public static let new = Self(rawValue: 1)
  /// The change has the value before it.
  public static let old = Self(rawValue: 2)
  /// The handler is called once before `observe` returns; with `new` it receives the value at that time.
  public static let initial = Self(rawValue: 4)
  /// The handler is called twice for each change, the first time with `isPrior` and no new value. The property itself
  /// has its new value by then.
  public static let prior = Self(rawValue: 8)
}

/// How a property has changed: always `setting` here. The other kinds are those of collections.
public enum NSKeyValueChange: UInt, Sendable { case setting = 1, insertion, removal, replacement }

/// One change of an observed property.
public struct NSKeyValueObservedChange<Value> {
  public typealias Kind = NSKeyValueChange
  public let kind: Kind
  /// Nil unless the options have `new`.
  public let newValue: Value?
  /// Nil unless the options have `old`, and for the call that `initial` asks for.
  public let oldValue: Value?
  /// Of collections: nil here.
  public let indexes: IndexSet?
  /// True for the first of two calls that `prior` asks for.
  public let isPrior: Bool
}
extension NSKeyValueObservedChange: Sendable where Value: Sendable {}

/// Ends the observation when it is released: the program keeps it as long as it wants changes.
public final class NSKeyValueObservation: NSObject, @unchecked Sendable {
  // Sendable: both are set once.
  private weak var object: (any KeyValueObserved)?
  /// The object keeps it, so that `invalidate` releases the handler.
  private weak var observer: KeyValueObserver?

  fileprivate init(_ observer: KeyValueObserver?, of object: any KeyValueObserved) {
    self.observer = observer
    self.object = object
  }
  deinit { invalidate() }
  /// The handler is not called after this, except for a call that another thread has begun. From any thread, also
  /// within the handler, and more than once.
  public func invalidate() {
    guard let observer else { return }
    observer.isValid.store(false, ordering: .releasing)
    object?.remove(observer)
  }
}

/// An object whose properties can be observed. Its name is Apple's.
public protocol _KeyValueCodingAndObserving: AnyObject {}

extension _KeyValueCodingAndObserving where Self: CBManager {
  /// Calls `changeHandler` for each change of `state`, or of `isScanning` and `isAdvertising` in the managers that have
  /// them.
  ///
  /// The thread that changes the property calls the handler: the manager's queue, before the delegate learns of the
  /// change, or the caller of a method that changes it at once, as `stopScan` does. Another key path is reported on
  /// standard error, and its handler is never called.
  public func observe<Value>(
    _ keyPath: KeyPath<Self, Value>, options: NSKeyValueObservingOptions = [],
    changeHandler: @escaping @Sendable (Self, NSKeyValueObservedChange<Value>) -> Void
  ) -> NSKeyValueObservation {
    let property: Any? =
      switch keyPath as AnyKeyPath {
      case \Self.state: ObservableProperty<Self, CBManagerState> { $0.currentState }
      default: nil
      }
    return observe(keyPath, property, options, changeHandler)
  }
}
extension _KeyValueCodingAndObserving where Self: CBCentralManager {
  /// Calls `changeHandler` for each change of `state` or `isScanning`: see `CBManager`'s.
  public func observe<Value>(
    _ keyPath: KeyPath<Self, Value>, options: NSKeyValueObservingOptions = [],
    changeHandler: @escaping @Sendable (Self, NSKeyValueObservedChange<Value>) -> Void
  ) -> NSKeyValueObservation {
    let property: Any? =
      switch keyPath as AnyKeyPath {
      case \Self.state: ObservableProperty<Self, CBManagerState> { $0.currentState }
      case \Self.isScanning: ObservableProperty<Self, Bool> { $0.scanning }
      default: nil
      }
    return observe(keyPath, property, options, changeHandler)
  }
}
extension _KeyValueCodingAndObserving where Self: CBPeripheralManager {
  /// Calls `changeHandler` for each change of `state` or `isAdvertising`: see `CBManager`'s.
  public func observe<Value>(
    _ keyPath: KeyPath<Self, Value>, options: NSKeyValueObservingOptions = [],
    changeHandler: @escaping @Sendable (Self, NSKeyValueObservedChange<Value>) -> Void
  ) -> NSKeyValueObservation {
    let property: Any? =
      switch keyPath as AnyKeyPath {
      case \Self.state: ObservableProperty<Self, CBManagerState> { $0.currentState }
      case \Self.isAdvertising: ObservableProperty<Self, Bool> { $0.advertising.isOn }
      default: nil
      }
    return observe(keyPath, property, options, changeHandler)
  }
}
extension _KeyValueCodingAndObserving where Self: CBPeripheral {
  /// Calls `changeHandler` for each change of `state`, `name` or `services`.
  ///
  /// The thread that changes the property calls the handler: the manager's queue, before a delegate learns of the
  /// change, or the caller of `connect` or `cancelPeripheralConnection`. Another key path is reported on standard
  /// error, and its handler is never called.
  public func observe<Value>(
    _ keyPath: KeyPath<Self, Value>, options: NSKeyValueObservingOptions = [],
    changeHandler: @escaping @Sendable (Self, NSKeyValueObservedChange<Value>) -> Void
  ) -> NSKeyValueObservation {
    let property: Any? =
      switch keyPath as AnyKeyPath {
      case \Self.state: ObservableProperty<Self, CBPeripheralState> { $0.link.state }
      case \Self.name: ObservableProperty<Self, String?> { $0.link.name }
      case \Self.services: ObservableProperty<Self, [CBService]?> { $0.link.services }
      default: nil
      }
    return observe(keyPath, property, options, changeHandler)
  }
}

/// A property as its object holds it, to be read under the object's lock.
struct ObservableProperty<Object, Value> {
  let value: (Object) -> Value
  let isEqual: (Value, Value) -> Bool
}
extension ObservableProperty where Value: Equatable {
  init(_ value: @escaping (Object) -> Value) { self.init(value: value, isEqual: ==) }
}

/// One observer of one property. It keeps the value that it has reported last, so that each change is reported once.
final class KeyValueObserver: @unchecked Sendable {
  // Sendable: the flag is atomic, and the object's lock guards what `takeChange` touches.
  typealias Call = () -> Void
  fileprivate let isValid = Atomic(true)
  private let takeChange: () -> [Call]
  fileprivate init(_ takeChange: @escaping () -> [Call]) { self.takeChange = takeChange }

  /// The calls of the handler for what has changed since the last time. Under the object's lock; they are made without
  /// it.
  fileprivate func calls() -> [Call] {
    takeChange().map { call in { if self.isValid.load(ordering: .acquiring) { call() } } }
  }
}

/// An object with observers.
protocol KeyValueObserved: NSObject {
  /// Guards what the properties show, and the observers.
  var lock: Lock { get }
  var observers: [KeyValueObserver] { get set }
}

extension KeyValueObserved {
  /// Makes a change under the lock, and then calls the handlers without it. Without observers it is `lock.withLock`.
  func change<Result>(_ body: () -> Result) -> Result {
    let (result, calls) = lock.withLock {
      (body(), observers.isEmpty ? [] : observers.flatMap { $0.calls() })
    }
    for call in calls { call() }
    return result
  }

  /// `property` is an `ObservableProperty<Self, Value>`; nil: the key path is not one of an observable property.
  fileprivate func observe<Value>(
    _ keyPath: KeyPath<Self, Value>, _ property: Any?, _ options: NSKeyValueObservingOptions,
    _ changeHandler: @escaping @Sendable (Self, NSKeyValueObservedChange<Value>) -> Void
  ) -> NSKeyValueObservation {
    guard let property = property as? ObservableProperty<Self, Value> else {
      Log.misuse(self, "cannot be observed at \(keyPath): the change handler will never be called.")
      return NSKeyValueObservation(nil, of: self)
    }
    func call(_ object: Self, from old: Value?, to new: Value?, isPrior: Bool = false) {
      changeHandler(
        object,
        NSKeyValueObservedChange(
          kind: .setting, newValue: options.contains(.new) ? new : nil, oldValue: options.contains(.old) ? old : nil,
          indexes: nil, isPrior: isPrior))
    }
    let (observer, first) = lock.withLock { () -> (KeyValueObserver, Value) in
      let first = property.value(self)
      var last = first
      let observer = KeyValueObserver { [unowned self] in
        let object = self, old = last, new = property.value(object)
        guard !property.isEqual(old, new) else { return [] }
        last = new
        let report = { call(object, from: old, to: new) }
        return options.contains(.prior) ? [{ call(object, from: old, to: nil, isPrior: true) }, report] : [report]
      }
      observers.append(observer)
      return (observer, first)
    }
    if options.contains(.initial) { call(self, from: nil, to: first) }
    return NSKeyValueObservation(observer, of: self)
  }
  /// The handler is released without the lock: it may hold anything of the program's.
  fileprivate func remove(_ observer: KeyValueObserver) {
    let removed = lock.withLock { observers.firstIndex { $0 === observer }.map { observers.remove(at: $0) } }
    withExtendedLifetime(removed) {}
  }
}
