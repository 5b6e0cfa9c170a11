import BindruneBroker
import CoreBluetooth
import Foundation
import TestSupport
import Testing

@testable import CoreBluetooth

private var data: [String: Any] {
  [CBAdvertisementDataLocalNameKey: "Heart", CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "180D")]]
}

@Suite struct PeripheralAdvertisingTests {
  /// The request of the only startAdvertising, with its number.
  private func start(_ script: PeripheralScript) throws -> OperationID {
    guard case .startAdvertising(let id, let name, let services) = try #require(script.session.takeRequests().last)
    else {
      throw Surprise("no startAdvertising")
    }
    #expect(name == "Heart" && services == [BluetoothUUID(0x180D)])
    return id
  }

  @Test("S86, S87, S149, S150: isAdvertising from success until stopAdvertising")
  func started() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising(data)
    #expect(!script.manager.isAdvertising)
    let id = try start(script)
    script.deliver(.completed(id, .success(.done)))
    #expect(script.calls() == ["advertising ok true"])
    #expect(script.manager.isAdvertising)
    script.manager.startAdvertising(data)
    #expect(script.calls() == ["advertising CBError 9 true"])
    script.manager.stopAdvertising()
    #expect(!script.manager.isAdvertising)
    #expect(script.session.takeRequests() == [.stopAdvertising])
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .success(.done)))
    #expect(script.calls() == ["advertising ok true"])
  }

  /// The stop comes while the start is being sent: if that happened outside of the lock, the stop would be sent first.
  @Test("stopped while the adapter comes back: the start is never sent after the stop", .realTime, .hang)
  func stoppedAsItResumes() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .success(.done)))
    script.deliver(.adapter(.poweredOff("It is off.")))
    let isStopped = DispatchSemaphore(value: 0), manager = try #require(script.manager)
    script.session.onSend = { request in
      guard case .startAdvertising = request else { return }
      Thread.detachNewThread {
        manager.stopAdvertising()
        isStopped.signal()
        isStopped.signal()
      }
      _ = isStopped.wait(timeout: .now() + .milliseconds(300))
    }
    script.deliver(.adapter(.poweredOn))
    #expect(isStopped.wait(timeout: .now() + Hang.seconds) == .success)
    let requests = script.session.takeRequests()
    #expect(requests.count == 2 && requests.last == .stopAdvertising, "\(requests)")
  }

  @Test("S87: the cause of a failure is reported, and advertising may begin again")
  func failed() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .failure(BluetoothError(.busy, "No advertising set is left."))))
    #expect(script.calls() == ["advertising CBError 4 false"])
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .success(.done)))
    #expect(script.calls() == ["advertising ok true"])
  }

  @Test("stopped before it began: operationCancelled, and only the next start counts")
  func stoppedEarly() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising(data)
    let first = try start(script)
    script.manager.stopAdvertising()
    script.manager.startAdvertising(data)
    let second = try start(script)
    script.deliver(.completed(first, .success(.done)))
    #expect(script.calls() == ["advertising CBError 5 false"])
    script.deliver(.completed(second, .success(.done)))
    #expect(script.calls() == ["advertising ok true"])
  }

  @Test("S86: keys other than the two are ignored with a log line; nil advertises only the device")
  func keys() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising([CBAdvertisementDataManufacturerDataKey: Data([1]), "x": 1])
    guard case .startAdvertising(_, nil, []) = try #require(script.session.takeRequests().last) else {
      Issue.record("it is not ignored")
      return
    }
    #expect(script.misuses().filter { $0.contains(CBAdvertisementDataManufacturerDataKey) }.count == 1)
    let other = PeripheralScript()
    other.manager.startAdvertising(nil)
    guard case .startAdvertising(_, nil, []) = try #require(other.session.takeRequests().last) else {
      Issue.record("nil is not advertised")
      return
    }
  }
  @Test("values may be Foundation's: NSString, NSArray")
  func bridged() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising([
      CBAdvertisementDataLocalNameKey: NSString(string: "Heart"),
      CBAdvertisementDataServiceUUIDsKey: NSArray(array: [CBUUID(string: "180D")]),
    ])
    _ = try start(script)
  }
  @Test("values of other types: invalidParameters")
  func wrongTypes() {
    let wrong: [[String: Any]] = [
      [CBAdvertisementDataLocalNameKey: 7], [CBAdvertisementDataServiceUUIDsKey: "180D"],
      [CBAdvertisementDataServiceUUIDsKey: ["180D"]], [CBAdvertisementDataServiceUUIDsKey: CBUUID(string: "180D")],
    ]
    for data in wrong {
      let script = PeripheralScript()
      script.manager.startAdvertising(data)
      #expect(script.calls() == ["advertising CBError 1 false"], "\(data)")
      #expect(script.session.takeRequests().isEmpty)
    }
  }

  @Test("while powered off, advertising pauses, and resumes automatically; below that it ends")
  func paused() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .success(.done)))
    script.deliver(.adapter(.poweredOff("It is off.")))
    #expect(!script.manager.isAdvertising)
    script.deliver(.adapter(.poweredOn))
    script.deliver(.completed(try start(script), .success(.done)))
    #expect(script.manager.isAdvertising)
    #expect(script.calls() == ["advertising ok true", "state 4", "state 5"])
    script.deliver(.adapter(.unsupported("It is gone.")))
    script.deliver(.adapter(.poweredOn))
    #expect(script.session.takeRequests().isEmpty && !script.manager.isAdvertising)
  }
  @Test("paused advertising can be stopped")
  func stoppedWhilePaused() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .success(.done)))
    script.deliver(.adapter(.poweredOff("It is off.")))
    script.manager.stopAdvertising()
    script.deliver(.adapter(.poweredOn))
    #expect(script.session.takeRequests().isEmpty && !script.manager.isAdvertising)
  }
  @Test("advertising that the host ended may begin again")
  func ended() throws {
    let script = PeripheralScript()
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .success(.done)))
    script.deliver(.advertisingEnded(BluetoothError(.controller, "The controller stopped.")))
    #expect(!script.manager.isAdvertising)
    script.manager.startAdvertising(data)
    script.deliver(.completed(try start(script), .success(.done)))
    #expect(script.manager.isAdvertising)
  }
}
