import BindruneBroker
import Foundation
import Testing

@testable import CoreBluetooth

@Suite struct KeyValueObservingTests {
  // MARK: Observable properties

  @Test("Each change of a manager's state is reported once, before the delegate learns of it, with the property set")
  func stateOfACentralManager() {
    let lab = CentralLab(nil), seen = Seen(), queue = DispatchSpecificKey<Bool>()
    lab.queue.setSpecific(key: queue, value: true)
    let observation = lab.manager.observe(\.state, options: [.old, .new]) { manager, change in
      #expect(change.kind == .setting)
      #expect(!change.isPrior && change.indexes == nil)
      #expect(manager.state == change.newValue)
      #expect(DispatchQueue.getSpecific(key: queue) == true)
      seen.add("\(name(change.oldValue)) → \(name(change.newValue))")
    }
    lab.recorder.then["state"] = { seen.add("delegate") }
    lab.deliver(.adapter(.unknown))
    lab.deliver(.adapter(.poweredOff("It is off.")))
    lab.deliver(.adapter(.poweredOn), .adapter(.poweredOn))
    lab.deliver(.adapter(.resetting("")))
    #expect(
      seen.take() == ["unknown → off", "delegate", "off → on", "delegate", "on → resetting", "delegate"])
    withExtendedLifetime(observation) {}
  }
  @Test(
    "isScanning changes by calls, by the adapter, and by a scan that fails; a restarted scan is no change"
  )
  func isScanning() {
    let lab = CentralLab(), seen = Seen()
    let observation = lab.manager.observe(\.isScanning, options: [.old, .new]) { manager, change in
      #expect(manager.isScanning == change.newValue)
      seen.add("\(change.oldValue.map(String.init) ?? "nil") → \(change.newValue.map(String.init) ?? "nil")")
    }
    lab.manager.scanForPeripherals(withServices: nil)
    #expect(seen.take() == ["false → true"])  // before the call has returned
    lab.manager.scanForPeripherals(withServices: [CBUUID(string: "180D")])
    lab.deliver(.discovered(DiscoveredPeer(peer: lab.peer)))
    #expect(seen.take().isEmpty)
    lab.manager.stopScan()
    lab.manager.stopScan()
    #expect(seen.take() == ["true → false"])
    for end in [BrokerEvent.scanFailed(BluetoothError(.controller, "No.")), .adapter(.poweredOff("It is off."))] {
      lab.manager.scanForPeripherals(withServices: nil)
      lab.deliver(end)
      #expect(seen.take() == ["false → true", "true → false"])
    }
    withExtendedLifetime(observation) {}
  }
  @Test("A peripheral's state: each step of a connection and of its end, also by the adapter")
  func stateOfAPeripheral() throws {
    let lab = CentralLab(), seen = Seen()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    let observation = peripheral.observe(\.state, options: [.old, .new]) { peripheral, change in
      #expect(peripheral.state == change.newValue)
      seen.add("\(change.oldValue?.rawValue ?? -1) → \(change.newValue?.rawValue ?? -1)")
    }
    for call in ["connect", "disconnect", "fail"] { lab.recorder.then[call] = { seen.add(call) } }
    lab.manager.connect(peripheral)
    lab.manager.connect(peripheral)
    #expect(seen.take() == ["0 → 1"])
    lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
    #expect(seen.take() == ["1 → 2", "connect"])
    lab.deliver(.disconnected(lab.peer, BluetoothError(.disconnected, ""), isReconnecting: true, seconds: 0))
    #expect(seen.take() == ["2 → 1", "disconnect"])
    lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
    lab.manager.cancelPeripheralConnection(peripheral)
    #expect(seen.take() == ["1 → 2", "connect", "2 → 3"])
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 0))
    #expect(seen.take() == ["3 → 0", "disconnect"])
    lab.manager.connect(peripheral)
    lab.deliver(.connectionFailed(lab.peer, BluetoothError(.connectionFailed, "No.")))
    #expect(seen.take() == ["0 → 1", "1 → 0", "fail"])
    lab.manager.connect(peripheral)
    lab.deliver(.adapter(.poweredOff("It is off.")))
    #expect(seen.take() == ["0 → 1", "1 → 0"])
    lab.deliver(.adapter(.poweredOn))
    lab.manager.connect(peripheral)
    lab.letManagerGo()
    lab.waitForQueue()
    #expect(seen.take() == ["0 → 1", "1 → 0"])
    withExtendedLifetime(observation) {}
  }
  @Test("A peripheral's name and services; a nil value is a value")
  func nameAndServices() throws {
    let lab = CentralLab(), seen = Seen()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    let observations = [
      peripheral.observe(\.name, options: [.old, .new]) { _, change in
        #expect(change.oldValue != nil && change.newValue != nil)
        seen.add("\((change.oldValue ?? nil) ?? "nil") → \((change.newValue ?? nil) ?? "nil")")
      },
      peripheral.observe(\.services, options: .new) { _, change in
        seen.add("services \((change.newValue ?? nil)?.map(\.uuid.uuidString) ?? ["nil"])")
      },
    ]
    lab.manager.scanForPeripherals(withServices: nil)
    for name in ["Strap", "Strap", nil] { lab.deliver(.discovered(DiscoveredPeer(peer: lab.peer, name: name))) }
    lab.deliver(.nameChanged(lab.peer, "Belt"))
    #expect(seen.take() == ["nil → Strap", "Strap → Belt"])
    lab.manager.connect(peripheral)
    lab.deliver(.connected(lab.peer, name: "Chest", longestWrite: 20))
    peripheral.discoverServices(nil)
    lab.answer(.services([CentralLab.heartRate, CentralLab.battery]))
    peripheral.discoverServices(nil)
    lab.answer(.services([CentralLab.heartRate, CentralLab.battery]))
    lab.deliver(.servicesChanged(lab.peer, HandleRange(0x10, 0x1F)))
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 0))
    #expect(
      seen.take() == [
        "Belt → Chest", #"services ["180D", "180F"]"#, #"services ["180F"]"#, #"services ["nil"]"#,
      ])
    withExtendedLifetime(observations) {}
  }
  @Test("isAdvertising and state of a peripheral manager, through the type of both managers too")
  func peripheralManager() {
    let script = PeripheralScript(), seen = Seen()
    let manager: CBManager = script.manager
    let observations = [
      script.manager.observe(\.isAdvertising, options: .new) { manager, change in
        #expect(manager.isAdvertising == change.newValue)
        seen.add("advertising \(change.newValue.map(String.init) ?? "nil")")
      },
      script.manager.observe(\.state, options: .new) { _, change in seen.add(name(change.newValue)) },
      manager.observe(\.state, options: .old) { _, change in seen.add("was \(name(change.oldValue))") },
    ]
    script.delegate.onCall = { _, call in seen.add(call) }
    func start() -> OperationID? {
      guard case .startAdvertising(let id, _, _)? = script.session.takeRequests().last else { return nil }
      return id
    }
    script.manager.startAdvertising(nil)
    #expect(seen.take().isEmpty)
    if let id = start() { script.deliver(.completed(id, .success(.done))) }
    #expect(seen.take() == ["advertising true", "advertising ok true"])
    script.deliver(.adapter(.poweredOff("It is off.")))
    #expect(seen.take() == ["advertising false", "off", "was on", "state 4"])
    script.deliver(.adapter(.poweredOn))
    if let id = start() { script.deliver(.completed(id, .success(.done))) }
    #expect(seen.take() == ["on", "was off", "state 5", "advertising true"])
    script.manager.stopAdvertising()
    #expect(seen.take() == ["advertising false"])
    script.manager.startAdvertising(nil)
    if let id = start() { script.deliver(.completed(id, .success(.done))) }
    script.deliver(.advertisingEnded(BluetoothError(.controller, "No.")))
    #expect(seen.take() == ["advertising true", "advertising ok true", "advertising false"])
    withExtendedLifetime(observations) {}
  }

  // MARK: Options

  @Test("Options: initial before observe returns, prior before each change, values only if requested")
  func options() {
    let lab = CentralLab(), seen = Seen()
    func observe(_ options: NSKeyValueObservingOptions) -> NSKeyValueObservation {
      lab.manager.observe(\.isScanning, options: options) { _, change in
        let old = change.oldValue.map(String.init) ?? "nil", new = change.newValue.map(String.init) ?? "nil"
        seen.add("\(old) → \(new)\(change.isPrior ? " prior" : "")")
      }
    }
    let cases: [(NSKeyValueObservingOptions, initial: [String], change: [String])] = [
      ([], [], ["nil → nil"]),
      (.new, [], ["nil → true"]),
      (.old, [], ["false → nil"]),
      (.initial, ["nil → nil"], ["nil → nil"]),
      ([.initial, .new, .old], ["nil → false"], ["false → true"]),
      ([.prior, .new, .old], [], ["false → nil prior", "false → true"]),
      (.prior, [], ["nil → nil prior", "nil → nil"]),
    ]
    for (options, initial, change) in cases {
      let observation = observe(options)
      #expect(seen.take() == initial)
      lab.manager.scanForPeripherals(withServices: nil)
      #expect(seen.take() == change)
      observation.invalidate()
      lab.manager.stopScan()
      #expect(seen.take().isEmpty)
    }
    #expect([NSKeyValueObservingOptions.new, .old, .initial, .prior].map(\.rawValue) == [1, 2, 4, 8])
    let kinds: [NSKeyValueChange] = [.setting, .insertion, .removal, .replacement]
    #expect((1...4).map { NSKeyValueChange(rawValue: $0) } == kinds)
  }
  @Test("A property that cannot be observed: a line in the log, and the handler is never called")
  func notObservable() throws {
    let lines = LogLines(), lab = CentralLab(), seen = Seen()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    let observations = [
      lab.manager.observe(\.state.rawValue, options: [.initial, .new]) { _, _ in seen.add("raw state") },
      (lab.manager as CBManager).observe(\.description) { _, _ in seen.add("description") },
      peripheral.observe(\.canSendWriteWithoutResponse) { _, _ in seen.add("can send") },
    ]
    lab.deliver(.adapter(.resetting("")))
    #expect(seen.take().isEmpty)
    #expect(lines.of(lab.manager).filter { $0.contains("cannot be observed") }.count == 2)
    #expect(lines.of(peripheral).count == 1)
    for observation in observations { observation.invalidate() }
  }
  @Test("A subclass that overrides a property is observed through its own type")
  func subclass() {
    class Manager: CBCentralManager, @unchecked Sendable {
      override var isScanning: Bool { super.isScanning }
      override var state: CBManagerState { super.state }
    }
    let seen = Seen(), recorder = CentralRecorder(), queue = DispatchQueue(label: "subclass")
    let opener = SessionOpener { ScriptedSession($0) }
    let manager = Manager(delegate: recorder, queue: queue, options: opener.added(to: nil))
    manager.delivery.waitForBegin()
    let observations = [
      manager.observe(\.isScanning) { _, _ in seen.add("scanning") },
      manager.observe(\Manager.state) { _, _ in seen.add("state") },
    ]
    (manager.session as? ScriptedSession)?.deliver(.adapter(.poweredOn))
    for _ in 0..<4 { queue.sync {} }
    manager.scanForPeripherals(withServices: nil)
    #expect(seen.take() == ["state", "scanning"])
    withExtendedLifetime((observations, recorder)) {}
  }

  // MARK: Lifetimes

  @Test("An observation ends when it is invalidated, twice too, when it is released, and after its object")
  func ends() throws {
    let lab = CentralLab(), seen = Seen()
    let kept = lab.manager.observe(\.isScanning) { _, _ in seen.add("kept") }
    var released: NSKeyValueObservation? = lab.manager.observe(\.isScanning) { _, _ in seen.add("released") }
    let invalidated = lab.manager.observe(\.isScanning) { _, _ in seen.add("invalidated") }
    lab.manager.scanForPeripherals(withServices: nil)
    #expect(seen.take() == ["kept", "released", "invalidated"])
    withExtendedLifetime(released) {}
    released = nil
    invalidated.invalidate()
    invalidated.invalidate()
    lab.manager.stopScan()
    #expect(seen.take() == ["kept"])
    weak let manager = lab.manager
    lab.letManagerGo()
    #expect(manager == nil)  // no observation keeps its object
    kept.invalidate()
  }
  @Test("A handler's captures are released with the observation, and may use the object then")
  func releasesItsHandler() {
    final class Holder: @unchecked Sendable {
      let manager: CBCentralManager, seen: Seen
      init(_ manager: CBCentralManager, _ seen: Seen) { (self.manager, self.seen) = (manager, seen) }
      deinit { seen.add("released, scanning \(manager.isScanning)") }
    }
    let lab = CentralLab(), seen = Seen()
    var holder: Holder? = Holder(lab.manager, seen)
    let observation = lab.manager.observe(\.isScanning) { [holder] _, _ in seen.add("\(holder == nil)") }
    holder = nil
    #expect(seen.take().isEmpty)
    observation.invalidate()
    #expect(seen.take() == ["released, scanning false"])
    withExtendedLifetime(observation) {}
  }
  @Test("Handlers change what they observe, observe more and end observations, their own and others")
  func reentrancy() {
    let lab = CentralLab(), seen = Seen()
    final class Kept: @unchecked Sendable { var observations: [NSKeyValueObservation] = [] }
    let kept = Kept()
    kept.observations.append(
      lab.manager.observe(\.isScanning, options: [.old, .new]) { manager, change in
        seen.add("a \(change.newValue == true)")
        if change.newValue == true {
          kept.observations[1].invalidate()  // its call for this change was to come next
          kept.observations.append(
            manager.observe(\.isScanning, options: .new) { _, change in seen.add("c \(change.newValue == true)") })
          manager.stopScan()
        } else {
          kept.observations[0].invalidate()
        }
      })
    kept.observations.append(lab.manager.observe(\.isScanning) { _, _ in seen.add("b") })
    lab.manager.scanForPeripherals(withServices: nil)
    #expect(seen.take() == ["a true", "a false", "c false"])
    lab.manager.scanForPeripherals(withServices: nil)
    #expect(seen.take() == ["c true"])
  }
  @Test(
    "From several threads: every change's old value is the new value of another, and none comes twice"
  )
  func severalThreads() {
    let lab = CentralLab(), changes = Changes()
    let observation = lab.manager.observe(\.isScanning, options: [.old, .new]) { _, change in
      changes.add(change.oldValue, change.newValue)
    }
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      for turn in 0..<500 {
        if (thread + turn).isMultiple(of: 2) {
          lab.manager.scanForPeripherals(withServices: nil)
        } else {
          lab.manager.stopScan()
        }
        if turn.isMultiple(of: 50) { lab.manager.observe(\.isScanning) { _, _ in }.invalidate() }
      }
    }
    let (on, off, others) = changes.counts
    #expect(on > 0 && others == 0)
    #expect(on - off == (lab.manager.isScanning ? 1 : 0))
    withExtendedLifetime(observation) {}
  }
}

private func name(_ state: CBManagerState?) -> String {
  switch state {
  case .unknown: "unknown"
  case .resetting: "resetting"
  case .poweredOff: "off"
  case .poweredOn: "on"
  default: "\(state.map(\.rawValue) ?? -1)"
  }
}

/// The calls of handlers and delegates, in order.
private final class Seen: @unchecked Sendable {
  // Sendable: the lock.
  private let lock = NSLock()
  private var texts: [String] = []
  func add(_ text: String) { lock.withLock { texts.append(text) } }
  /// Everything since the last call.
  func take() -> [String] {
    lock.withLock {
      defer { texts = [] }
      return texts
    }
  }
}

/// Counts changes to true, changes to false, and those that are neither.
private final class Changes: @unchecked Sendable {
  // Sendable: the lock.
  private let lock = NSLock()
  private var tally = (on: 0, off: 0, others: 0)
  var counts: (on: Int, off: Int, others: Int) { lock.withLock { tally } }
  func add(_ old: Bool?, _ new: Bool?) {
    lock.withLock {
      switch (old, new) {
      case (false, true): tally.on += 1
      case (true, false): tally.off += 1
      default: tally.others += 1
      }
    }
  }
}
