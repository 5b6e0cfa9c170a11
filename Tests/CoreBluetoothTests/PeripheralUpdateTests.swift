import BindruneBroker
import CoreBluetooth
import Foundation
import Testing

@testable import Bindrune
@testable import CoreBluetooth

/// A manager with two characteristics to subscribe to: 0x12, notified, and 0x15, indicated.
private struct Serving {
  let script = PeripheralScript()
  let first = CBMutableCharacteristic(
    type: CBUUID(string: "FF01"), properties: .notify, value: nil, permissions: [])
  let second = CBMutableCharacteristic(
    type: CBUUID(string: "FF02"), properties: .indicate, value: nil, permissions: [])
  let service = CBMutableService(type: CBUUID(string: "FF00"), primary: true)
  init() throws {
    service.characteristics = [first, second]
    try script.publish(service, at: 0x10)
  }
  static func peer(_ number: UInt64) -> UUID {
    UUID(PeerID(PeerAddress(DeviceAddress(0x0000_5E00_5300 + number), .public)))
  }
  /// A central that subscribes to the first, with its port.
  func subscribe(_ number: UInt64, capacity: Int = 1_000, mtu: Int = 185) -> SendPort {
    let port = script.connect(Serving.peer(number), capacity: capacity, mtu: mtu)
    script.deliver(.subscribed(Serving.peer(number), handle(0x12), longestUpdate: mtu - 3))
    return port
  }
  func update(_ value: [UInt8], _ centrals: [CBCentral]? = nil) -> Bool {
    script.manager.updateValue(Data(value), for: first, onSubscribedCentrals: centrals)
  }
}

@Suite struct PeripheralUpdateTests {
  @Test("S89, S99: subscriptions of several centrals; each is one object while it is subscribed")
  func subscriptions() throws {
    let serving = try Serving()
    #expect(serving.first.subscribedCentrals == [])
    _ = serving.subscribe(1)
    _ = serving.subscribe(2, mtu: 517)
    serving.script.deliver(.subscribed(Serving.peer(1), handle(0x15), longestUpdate: 182))
    #expect(serving.script.calls() == ["subscribed FF01 1", "subscribed FF01 2", "subscribed FF02 1"])
    let centrals = try #require(serving.first.subscribedCentrals)
    #expect(centrals.map(\.identifier) == [Serving.peer(1), Serving.peer(2)])
    // ATT_MTU − 3, and no value is longer than 512: Vol 3, Part F, §3.2.9.
    #expect(centrals.map(\.maximumUpdateValueLength) == [182, 512])
    #expect(serving.second.subscribedCentrals?.first === centrals[0])
    serving.script.session.port(.notification, of: Serving.peer(1))?.mtuChanged(247)
    serving.script.deliver(.longestUpdateChanged(Serving.peer(1), 244))
    #expect(centrals[0].maximumUpdateValueLength == 244)
    // Subscribed already, to indications now instead of notifications: nothing new.
    serving.script.deliver(.subscribed(Serving.peer(1), handle(0x12), longestUpdate: 244))
    #expect(serving.script.calls().isEmpty)
    serving.script.deliver(.unsubscribed(Serving.peer(1), handle(0x12)))
    #expect(serving.script.calls() == ["unsubscribed FF01 1"])
    #expect(serving.second.subscribedCentrals?.first === centrals[0])
  }

  @Test("S100, S151: nil updates all subscribers; a list updates the subscribers in it")
  func chosen() throws {
    let serving = try Serving(), one = serving.subscribe(1), two = serving.subscribe(2)
    let third = serving.script.connect(Serving.peer(3))
    serving.script.deliver(.subscribed(Serving.peer(3), handle(0x15), longestUpdate: 20))
    let centrals = try #require(serving.first.subscribedCentrals)
    let stranger = try #require(serving.second.subscribedCentrals?.first)
    #expect(serving.update([1]))
    #expect(serving.update([2], [centrals[1], stranger]))
    #expect(serving.update([3], []))
    #expect(serving.update([4], [stranger]))
    #expect(one.drain().map(\.value) == [[1]])
    #expect(two.drain().map(\.value) == [[1], [2]])
    #expect(third.drain().isEmpty)
    // The handle tells the characteristic; one port keeps the order.
    #expect(serving.script.manager.updateValue(Data([5]), for: serving.second, onSubscribedCentrals: nil))
    #expect(third.drain().map(\.handle) == [handle(0x15)])
  }
  @Test("S100: without subscribers: true, and nothing follows")
  func nobody() throws {
    let serving = try Serving()
    #expect(serving.update([1]))
    #expect(serving.script.calls().isEmpty)
  }

  @Test("S101, S102, S103: false when full, one ready call, and a refused value is not sent")
  func full() throws {
    // Room for five values of 100 octets, with their handles.
    let serving = try Serving(), port = serving.subscribe(1, capacity: 5 * 104)
    _ = serving.script.calls()
    var taken = 0
    while serving.update([UInt8](repeating: UInt8(taken), count: 100)) { taken += 1 }
    #expect(taken == 5)
    #expect(!serving.update([0xFF]) || taken == 0)
    #expect(serving.script.calls().isEmpty)
    #expect(port.drain().map { $0.value[0] } == [0, 1, 2, 3, 4])
    #expect(serving.script.calls() == ["ready"])
    #expect(serving.update([6]))
    #expect(port.drain().map(\.value) == [[6]])
    #expect(serving.script.calls().isEmpty)
  }
  @Test("S101: all or nothing: if one central's port is full, no central gets the value")
  func allOrNothing() throws {
    let serving = try Serving(), small = serving.subscribe(1, capacity: 520), large = serving.subscribe(2)
    _ = serving.script.calls()
    for number in 0..<5 as Range<UInt8> { #expect(serving.update([UInt8](repeating: number, count: 100))) }
    #expect(!serving.update([UInt8](repeating: 9, count: 100)))
    #expect(large.drain().count == 5)
    // The other central's port has room.
    let second = try #require(serving.first.subscribedCentrals?[1])
    #expect(serving.update([7], [second]))
    #expect(large.drain().map(\.value) == [[7]])
    #expect(small.drain().count == 5)
    #expect(serving.script.calls() == ["ready"])
  }
  @Test("S102: the ready call waits for every full port, and comes once")
  func readyForAll() throws {
    let serving = try Serving(), one = serving.subscribe(1, capacity: 520), two = serving.subscribe(2, capacity: 520)
    _ = serving.script.calls()
    let value = [UInt8](repeating: 1, count: 100)
    while serving.update(value) {}
    _ = one.drain()
    #expect(serving.script.calls().isEmpty)
    _ = two.drain()
    #expect(serving.script.calls() == ["ready"])
    #expect(serving.update(value))
  }
  @Test("S102: a disconnected central with a full port does not delay the ready call")
  func fullAndGone() throws {
    let serving = try Serving(), port = serving.subscribe(1, capacity: 520)
    _ = serving.script.calls()
    while serving.update([UInt8](repeating: 1, count: 100)) {}
    port.close(BluetoothError(.disconnected, "The link is gone."))
    #expect(!serving.update([1]))
    serving.script.deliver(.unsubscribed(Serving.peer(1), handle(0x12)))
    #expect(serving.script.calls() == ["unsubscribed FF01 0", "ready"])
    #expect(serving.update([2]))
  }
  @Test("S102: nor does one that disconnects after its service was removed")
  func fullAndRemoved() throws {
    let serving = try Serving()
    _ = serving.subscribe(1, capacity: 520)
    while serving.update([UInt8](repeating: 1, count: 100)) {}
    _ = serving.script.calls()
    serving.script.manager.remove(serving.service)
    #expect(serving.script.calls().isEmpty)
    serving.script.deliver(.unsubscribed(Serving.peer(1), handle(0x12)))
    #expect(serving.script.calls() == ["ready"])
  }
  @Test("S103: the loop of Apple's example sends every value once, in order")
  func loop() throws {
    let serving = try Serving(), port = serving.subscribe(1, capacity: 520)
    // Used on the manager's queue alone.
    let next = Counter(), first = serving.first
    let send: @Sendable (CBPeripheralManager) -> Void = { manager in
      while next.count < 100 {
        let value = Data(repeating: UInt8(next.count), count: 50)
        guard manager.updateValue(value, for: first, onSubscribedCentrals: nil) else { return }
        next.add()
      }
    }
    serving.script.delegate.onCall = { manager, call in if call == "ready" { send(manager) } }
    serving.script.queue.sync { send(serving.script.manager) }
    var seen: [UInt8] = []
    for _ in 0..<1_000 where seen.count < 100 {
      seen += port.drain(3).map { $0.value[0] }
      serving.script.waitForQueue()
    }
    #expect(seen == Array(0..<100))
  }

  @Test("S152: a value is cut to each central's maximumUpdateValueLength", arguments: [0, 19, 20, 21, 512, 600])
  func cut(count: Int) throws {
    let serving = try Serving(), short = serving.subscribe(1, mtu: 23), long = serving.subscribe(2, mtu: 517)
    #expect(serving.update((0..<count).map { UInt8(truncatingIfNeeded: $0) }))
    #expect(short.drain().map(\.value.count) == [min(count, 20)])
    #expect(long.drain().map(\.value.count) == [min(count, 512)])
  }

  @Test("not published, removed, foreign, or in another state: false, and it is reported")
  func misuse() throws {
    let serving = try Serving(), port = serving.subscribe(1), other = PeripheralScript()
    let loose = CBMutableCharacteristic(type: CBUUID(string: "FF03"), properties: .notify, value: nil, permissions: [])
    #expect(!serving.script.manager.updateValue(Data([1]), for: loose, onSubscribedCentrals: nil))
    #expect(!other.manager.updateValue(Data([1]), for: serving.first, onSubscribedCentrals: nil))
    #expect(serving.script.misuses().count == 1 && other.misuses().count == 1)
    serving.script.deliver(.adapter(.poweredOff("It is off.")))
    #expect(!serving.update([1]))
    #expect(serving.first.subscribedCentrals == [])
    serving.script.deliver(.adapter(.poweredOn))
    #expect(serving.update([1]))
    serving.script.manager.remove(serving.service)
    #expect(!serving.update([1]))
    #expect(port.drain().isEmpty)
  }

  @Test("updateValue from eight threads: each value is accepted once or refused, for all centrals or none")
  func threads() throws {
    let serving = try Serving(), one = serving.subscribe(1, capacity: 4_000),
      two = serving.subscribe(2, capacity: 6_000)
    let taken = Counter()
    DispatchQueue.concurrentPerform(iterations: 8) { thread in
      for number in 0..<50 where serving.update([UInt8(thread), UInt8(number)] + [UInt8](repeating: 0, count: 196)) {
        taken.add()
      }
    }
    let values = one.drain().map(\.value)
    #expect(values.count == taken.count && taken.count == 4_000 / 202)
    #expect(two.drain().map(\.value) == values)
    // Each thread's values in order.
    for thread in 0..<8 as Range<UInt8> {
      let numbers = values.filter { $0[0] == thread }.map { $0[1] }
      #expect(numbers == numbers.sorted())
    }
  }
  private final class Counter: @unchecked Sendable {
    private let lock = NSLock()
    private var number = 0
    func add() { lock.withLock { number += 1 } }
    var count: Int { lock.withLock { number } }
  }
}
