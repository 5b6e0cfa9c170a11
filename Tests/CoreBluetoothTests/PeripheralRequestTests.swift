import BindruneBroker
import CoreBluetooth
import Foundation
import Testing

@testable import CoreBluetooth

/// A manager with one dynamic characteristic, value handle 0x12, and another, 0x14.
private struct Serving {
  let script = PeripheralScript()
  let central = someCentral
  let first = CBMutableCharacteristic(
    type: CBUUID(string: "FF01"), properties: [.read, .write], value: nil, permissions: [.readable, .writeable])
  let second = CBMutableCharacteristic(
    type: CBUUID(string: "FF02"), properties: [.read, .write], value: nil, permissions: [.readable, .writeable])
  init() throws {
    let service = CBMutableService(type: CBUUID(string: "FF00"), primary: true)
    service.characteristics = [first, second]
    try script.publish(service, at: 0x10)
  }
  func read(_ id: UInt64, offset: Int = 0, at number: UInt16 = 0x12) {
    script.deliver(
      .readRequested(
        ServerRequest(rawValue: id), central: central, handle(number), offset: offset, longestUpdate: 20))
  }
  func write(_ id: UInt64, _ writes: [ServerWrite]) {
    script.deliver(.writeRequested(ServerRequest(rawValue: id), central: central, writes, longestUpdate: 20))
  }
}
/// The central of these requests.
private let someCentral = UUID(PeerID(PeerAddress(DeviceAddress(0x0000_5E00_5301), .public)))

private func id(_ number: UInt64) -> ServerRequest { ServerRequest(rawValue: number) }

@Suite struct PeripheralRequestTests {
  @Test("S90, S91, S92, S93, S94, S95: the seed's answer to a read, with its offset")
  func reads() throws {
    let serving = try Serving()
    serving.first.value = Data([1, 2, 3, 4, 5])
    serving.script.delegate.onRead = { manager, request in
      // As in Apple's example.
      guard let value = serving.first.value, request.characteristic.uuid == serving.first.uuid else { return }
      if request.offset > value.count {
        manager.respond(to: request, withResult: .invalidOffset)
        return
      }
      request.value = value.subdata(in: request.offset..<value.count)
      manager.respond(to: request, withResult: .success)
    }
    for (number, offset) in [(1, 0), (2, 3), (3, 5), (4, 6)] as [(UInt64, Int)] { serving.read(number, offset: offset) }
    #expect(
      serving.script.session.takeRequests() == [
        .respond(id(1), central: someCentral, Data([1, 2, 3, 4, 5])),
        .respond(id(2), central: someCentral, Data([4, 5])), .respond(id(3), central: someCentral, Data()),
        .reject(id(4), central: someCentral, .invalidOffset),
      ])
    #expect(
      serving.script.calls() == ["read FF01 0 true", "read FF01 3 true", "read FF01 5 true", "read FF01 6 true"])
  }

  @Test("S91: a request names its characteristic and its central, the same object while the app retains it")
  func names() throws {
    let serving = try Serving()
    serving.read(1)
    serving.read(2, at: 0x14)
    let requests = serving.script.delegate.takeRequests()
    #expect(requests.map(\.characteristic) == [serving.first, serving.second])
    #expect(requests[0].central === requests[1].central)
    #expect(requests[0].central.identifier == serving.central)
    #expect(requests[0].central.maximumUpdateValueLength == 20)
    for request in requests { serving.script.manager.respond(to: request, withResult: .success) }
  }

  @Test("S94: success without a value is an empty value; an application's error is sent unchanged")
  func results() throws {
    let serving = try Serving()
    for number in 1...3 as ClosedRange<UInt64> { serving.read(number) }
    let requests = serving.script.delegate.takeRequests()
    let own = try #require(CBATTError.Code(rawValue: 0x80))
    serving.script.manager.respond(to: requests[0], withResult: .success)
    serving.script.manager.respond(to: requests[1], withResult: own)
    serving.script.manager.respond(to: requests[2], withResult: .insufficientResources)
    #expect(
      serving.script.session.takeRequests() == [
        .respond(id(1), central: someCentral, Data()), .reject(id(2), central: someCentral, ATTError(rawValue: 0x80)),
        .reject(id(3), central: someCentral, ATTError(rawValue: 0x11)),
      ])
  }

  @Test("S96, S97, S98: writes that come together, their offsets, one response to the first")
  func writes() throws {
    let serving = try Serving()
    serving.script.delegate.onWrite = { manager, requests in manager.respond(to: requests[0], withResult: .success) }
    serving.write(
      1,
      [
        ServerWrite(handle: handle(0x12), offset: 0, value: Data([1, 2])),
        ServerWrite(handle: handle(0x12), offset: 2, value: Data([3])),
        ServerWrite(handle: handle(0x14), offset: 0, value: Data()),
      ])
    #expect(serving.script.calls() == ["write FF01 0 [1, 2], FF01 2 [3], FF02 0 []"])
    #expect(serving.script.session.takeRequests() == [.respond(id(1), central: someCentral, nil)])
    #expect(serving.script.misuses().isEmpty)
  }

  @Test("S95, S98: the second response is reported, and not sent")
  func twice() throws {
    let serving = try Serving()
    serving.read(1)
    let request = try #require(serving.script.delegate.takeRequests().first)
    serving.script.manager.respond(to: request, withResult: .success)
    serving.script.manager.respond(to: request, withResult: .readNotPermitted)
    #expect(serving.script.session.takeRequests() == [.respond(id(1), central: someCentral, Data())])
    #expect(serving.script.misuses().filter { $0.contains("respond once") }.count == 1)
  }
  @Test("S98: a response to another of the writes is reported, and the central gets it")
  func notTheFirst() throws {
    let serving = try Serving()
    serving.write(1, [0x12, 0x14].map { ServerWrite(handle: handle($0), offset: 0, value: Data([1])) })
    let requests = serving.script.delegate.takeRequests()
    serving.script.manager.respond(to: requests[1], withResult: .invalidAttributeValueLength)
    serving.script.manager.respond(to: requests[0], withResult: .success)
    #expect(
      serving.script.session.takeRequests() == [.reject(id(1), central: someCentral, .invalidAttributeValueLength)])
    #expect(serving.script.misuses().count == 2)
  }
  @Test("a response to another manager's request is reported, and its own manager can still respond")
  func foreign() throws {
    let serving = try Serving(), other = PeripheralScript()
    serving.read(1)
    let request = try #require(serving.script.delegate.takeRequests().first)
    other.manager.respond(to: request, withResult: .success)
    #expect(other.session.takeRequests().isEmpty && serving.script.session.takeRequests().isEmpty)
    #expect(other.misuses().count == 1)
    serving.script.manager.respond(to: request, withResult: .success)
    #expect(serving.script.session.takeRequests() == [.respond(id(1), central: someCentral, Data())])
  }

  @Test("a request released without a response is answered: no central hangs")
  func released() throws {
    let serving = try Serving()
    serving.read(1)
    serving.write(2, [0x12, 0x14].map { ServerWrite(handle: handle($0), offset: 0, value: Data([1])) })
    var requests = serving.script.delegate.takeRequests()
    #expect(serving.script.session.takeRequests().isEmpty)
    requests.removeFirst()
    #expect(serving.script.session.takeRequests() == [.reject(id(1), central: someCentral, .unlikelyError)])
    // An app that retains one of several writes can still respond.
    requests.removeFirst()
    #expect(serving.script.session.takeRequests().isEmpty)
    requests.removeAll()
    #expect(serving.script.session.takeRequests() == [.reject(id(2), central: someCentral, .unlikelyError)])
    #expect(serving.script.misuses().filter { $0.contains("without responding") }.count == 2)
  }
  @Test("a write without response may be released without a response, whatever else the characteristic permits")
  func commandLetGo() throws {
    let script = PeripheralScript(), service = CBMutableService(type: CBUUID(string: "FF00"), primary: true)
    service.characteristics = [
      CBMutableCharacteristic(
        type: CBUUID(string: "FF01"), properties: [.write, .writeWithoutResponse], value: nil, permissions: .writeable)
    ]
    try script.publish(service, at: 0x10)
    script.deliver(
      .writeRequested(
        id(1).ofCommand, central: someCentral, [ServerWrite(handle: handle(0x12), offset: 0, value: Data([1]))],
        longestUpdate: 20))
    #expect(script.delegate.takeRequests().count == 1)
    #expect(script.session.takeRequests() == [.reject(id(1).ofCommand, central: someCentral, .unlikelyError)])
    #expect(script.misuses().isEmpty)
  }
  @Test("the request has ended: a response is reported, and not sent")
  func tooLate() throws {
    let serving = try Serving()
    serving.read(1)
    serving.script.deliver(.requestEnded(id(1)))
    do {
      let request = try #require(serving.script.delegate.takeRequests().first)
      serving.script.manager.respond(to: request, withResult: .success)
    }
    #expect(serving.script.session.takeRequests().isEmpty)
    #expect(serving.script.misuses().count == 1)
  }
  @Test("at the adapter's end all requests end, and releasing one later sends no answer")
  func adapterGoes() throws {
    let serving = try Serving()
    serving.read(1)
    serving.script.deliver(.adapter(.poweredOff("It is off.")))
    _ = serving.script.delegate.takeRequests()
    #expect(serving.script.session.takeRequests().isEmpty)
  }

  /// A delegate with the required method only.
  private final class Plain: NSObject, CBPeripheralManagerDelegate {
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {}
  }
  @Test("a delegate without the methods, and none at all: requestNotSupported")
  func defaults() throws {
    let serving = try Serving(), plain = Plain()
    serving.script.manager.delegate = plain
    serving.read(1)
    serving.write(2, [ServerWrite(handle: handle(0x12), offset: 0, value: Data([1]))])
    serving.script.manager.delegate = nil
    serving.read(3)
    serving.write(4, [ServerWrite(handle: handle(0x12), offset: 0, value: Data([1]))])
    #expect(
      serving.script.session.takeRequests()
        == (1...4).map { .reject(id($0), central: someCentral, ATTError(rawValue: 0x06)) })
  }
  @Test("a request for a service removed meanwhile is refused")
  func removed() throws {
    let serving = try Serving()
    serving.script.manager.removeAllServices()
    serving.read(1)
    serving.write(2, [ServerWrite(handle: handle(0x14), offset: 0, value: Data())])
    #expect(
      serving.script.session.takeRequests() == [
        .removeAllServices, .reject(id(1), central: someCentral, .invalidHandle),
        .reject(id(2), central: someCentral, .invalidHandle),
      ])
    #expect(serving.script.calls().isEmpty)
  }
  @Test("a response on another thread, and after the delegate's method has returned")
  func later() throws {
    let serving = try Serving()
    serving.read(1)
    let requests = serving.script.delegate.takeRequests()
    DispatchQueue.concurrentPerform(iterations: 8) { _ in
      serving.script.manager.respond(to: requests[0], withResult: .success)
    }
    #expect(serving.script.session.takeRequests() == [.respond(id(1), central: someCentral, Data())])
    #expect(serving.script.misuses().count == 7)
  }
}
