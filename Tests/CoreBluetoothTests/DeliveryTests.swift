import BindruneBroker
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import CoreBluetooth

/// When a manager begins to deliver, and in what order.
@Suite(.realTime, .hang) struct DeliveryTests {
  /// The deliveries, as texts.
  final class Deliveries: Sendable {
    let words = Mutex<[String]>([])
    func add(_ word: String) { words.withLock { $0.append(word) } }
    func take() -> [String] {
      words.withLock { words in
        defer { words = [] }
        return words
      }
    }
  }
  /// A delivery whose initialiser returns, and whose delegate is set, when the test decides.
  final class Stage: Sendable {
    let queue = DispatchQueue(label: "stage")
    let delivery: Delivery
    let deliveries = Deliveries()
    let hasReturned = Atomic<Bool>(false)
    let asked = DispatchSemaphore(value: 0)
    private let delegate = Mutex<Deliveries?>(nil)

    init(hasReturned: Bool = true, hasDelegate: Bool = true) {
      delivery = Delivery(on: queue)
      self.hasReturned.store(hasReturned, ordering: .sequentiallyConsistent)
      if hasDelegate { delegate.withLock { $0 = deliveries } }
      delivery.start(
        delegate: { [self] in delegate.withLock { $0 } },
        hasReturned: { [self] in
          asked.signal()
          return self.hasReturned.load(ordering: .sequentiallyConsistent)
        },
        handle: { [deliveries] event, _ in deliveries.add(word(event)) })
      if hasReturned { delivery.waitForBegin() }
    }
    func waitForQueue() { for _ in 0..<4 { queue.sync {} } }
    func set(_ isThere: Bool) {
      delegate.withLock { $0 = isThere ? deliveries : nil }
      delivery.delegateChanged()
      waitForQueue()
    }
    func put(_ events: BrokerEvent...) -> [String] {
      for event in events { delivery.events.put([event]) }
      waitForQueue()
      return deliveries.take()
    }
  }

  @Test("Nothing is delivered while the initialiser runs, however long that takes")
  func initialiser() {
    let stage = Stage(hasReturned: false)
    // It is polled repeatedly.
    for _ in 0..<4 { #expect(stage.asked.wait(timeout: .now() + Hang.seconds) == .success) }
    #expect(stage.put(.adapter(.poweredOn)) == [] && !stage.delivery.hasBegun)
    stage.hasReturned.store(true, ordering: .sequentiallyConsistent)
    stage.delivery.waitForBegin()
    stage.waitForQueue()
    #expect(stage.deliveries.take() == ["poweredOn"])
  }
  @Test("A manager released in its initialiser is polled no more")
  func vanished() {
    let stage = Stage(hasReturned: false)
    stage.delivery.close()
    #expect(stage.put(.adapter(.poweredOn)) == [])
    stage.hasReturned.store(true, ordering: .sequentiallyConsistent)
    #expect(stage.put(.adapter(.poweredOn)) == [])
  }
  @Test("The first state and the events after it wait for a delegate; later ones do not")
  func delegate() {
    let stage = Stage(hasDelegate: false)
    #expect(stage.put(.adapter(.unknown), .adapter(.poweredOff("")), .adapter(.poweredOn)) == [])
    #expect(stage.put(.linkedPeers([]), .linkedPeers([LinkedPeer(peer: UUID())])) == [])
    stage.set(false)
    #expect(stage.deliveries.take() == [])
    stage.set(true)
    #expect(stage.deliveries.take() == ["poweredOn", "links 1"])
    stage.set(false)
    #expect(stage.put(.adapter(.poweredOff(""))) == ["poweredOff"])
  }
  @Test("`.unknown` is not a first state: a delegate that gets it may be released before the first one")
  func unknown() {
    let stage = Stage()
    #expect(stage.put(.adapter(.unknown)) == ["unknown"])
    stage.set(false)
    #expect(stage.put(.adapter(.poweredOn)) == [])
    stage.set(true)
    #expect(stage.deliveries.take() == ["poweredOn"])
  }
  @Test("Without a delegate memory stays bounded, while the adapter and devices come and go")
  func nobody() {
    let stage = Stage(hasDelegate: false)
    for _ in 0..<1000 {
      _ = stage.put(.adapter(.poweredOn), .linkedPeers([LinkedPeer(peer: UUID())]), .adapter(.resetting("")))
    }
    stage.set(true)
    #expect(stage.deliveries.take() == ["resetting"])
  }
  @Test("Calls do not wait for a delegate: their other effects must happen")
  func calls() {
    let stage = Stage(hasDelegate: false)
    stage.delivery.events.put([.adapter(.poweredOn)])
    stage.delivery.perform { [deliveries = stage.deliveries] in deliveries.add("call") }
    stage.waitForQueue()
    #expect(stage.deliveries.take() == ["call"])
    stage.set(true)
    #expect(stage.deliveries.take() == ["poweredOn"])
  }

  @Test("A thread counts as returned from an initialiser when it waits or ends, and not while it runs")
  func threads() {
    #expect(!InitialisingThread().hasReturned())
    let made = Mutex<[InitialisingThread]>([]), isMade = DispatchSemaphore(value: 0),
      mayEnd = DispatchSemaphore(value: 0)
    for waits in [true, false] {
      Thread.detachNewThread {
        let thread = InitialisingThread()
        made.withLock { $0.append(thread) }
        isMade.signal()
        if waits { mayEnd.wait() }
      }
      isMade.wait()
    }
    for thread in made.withLock({ $0 }) {
      let end = ContinuousClock.now + .seconds(Hang.seconds)
      while !thread.hasReturned(), ContinuousClock.now < end { usleep(200) }
      #expect(thread.hasReturned())
    }
    mayEnd.signal()
    // A thread that computes.
    let busy = InitialisingThread(), end = ContinuousClock.now + .seconds(Hang.seconds)
    while !busy.hasReturned(), ContinuousClock.now < end {}
    #expect(busy.hasReturned())
  }

  @Test("A repeated log line comes at once, and then once a minute with its count")
  func repeats() {
    var note = RepeatedNote()
    let start = ContinuousClock.now
    #expect(note.count(at: start) == 1)
    for second in 1..<60 { #expect(note.count(at: start + .seconds(second)) == nil) }
    #expect(note.count(at: start + .seconds(60)) == 60)
    #expect(note.count(at: start + .seconds(61)) == nil)
    #expect(note.count(at: start + .seconds(121)) == 2)
  }
}

/// 500 managers on an adapter that is open already, as programs make them.
@Suite(.realTime, .hang) struct FirstStateTests {
  final class App: NSObject, CBCentralManagerDelegate, CBPeripheralManagerDelegate, Sendable {
    let isMade = Atomic<Bool>(false)
    let hasState = DispatchSemaphore(value: 0)
    let early = Atomic<Int>(0)
    let states = Mutex<[CBManagerState]>([])
    private func deliveries(_ manager: CBManager) {
      if !isMade.load(ordering: .sequentiallyConsistent) { early.add(1, ordering: .relaxed) }
      states.withLock { $0.append(manager.state) }
      hasState.signal()
    }
    func centralManagerDidUpdateState(_ central: CBCentralManager) { deliveries(central) }
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) { deliveries(peripheral) }
  }
  enum Queue: CaseIterable { case serial, concurrent, own }

  /// A state that is known when the initialiser returns would have been delivered within it.
  private func check(_ queue: Queue, setsLater: Bool, isPeripheral: Bool) -> String? {
    let app = App(), own = DispatchQueue(label: "own")
    let delegate = setsLater ? nil : app
    let make: () -> (CBManager, CBManagerState) = {
      let target: DispatchQueue =
        switch queue {
        case .serial: DispatchQueue(label: "serial")
        case .concurrent: .global()
        case .own: own
        }
      if isPeripheral {
        let manager = CBPeripheralManager(delegate: delegate, queue: target) { SilentSession(events: $0) }
        app.isMade.store(true, ordering: .sequentiallyConsistent)
        defer { if setsLater { manager.delegate = app } }
        return (manager, setsLater ? manager.state : .unknown)
      }
      let manager = CBCentralManager(delegate: delegate, queue: target) { SilentSession(events: $0) }
      app.isMade.store(true, ordering: .sequentiallyConsistent)
      defer { if setsLater { manager.delegate = app } }
      return (manager, setsLater ? manager.state : .unknown)
    }
    let (manager, state) = queue == .own ? own.sync(execute: make) : make()
    guard state == .unknown else { return "state \(state.rawValue) before there was a delegate" }
    guard app.hasState.wait(timeout: .now() + Hang.seconds) == .success else { return "the state was not reported" }
    guard app.early.load(ordering: .relaxed) == 0 else { return "the delegate was called in the initialiser" }
    let states = app.states.withLock { $0 }
    return withExtendedLifetime(manager) { states == [.poweredOn] ? nil : "states \(states.map(\.rawValue))" }
  }

  @Test("Each delegate gets the state once, after the initialiser and after the delegate is set")
  func fiveHundred() {
    let faults = Mutex<[String]>([])
    DispatchQueue.concurrentPerform(iterations: 500) { number in
      let queue = Queue.allCases[number % 3]
      guard let fault = check(queue, setsLater: number % 2 == 0, isPeripheral: number % 5 == 0) else { return }
      faults.withLock { $0.append("\(queue): \(fault)") }
    }
    #expect(faults.withLock { $0 } == [])
  }
}

private func word(_ event: BrokerEvent) -> String {
  switch event {
  case .adapter(let state): String("\(state)".prefix { $0 != "(" })
  case .linkedPeers(let peers): "links \(peers.count)"
  default: "\(event)"
  }
}
