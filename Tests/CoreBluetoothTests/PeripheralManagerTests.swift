import BindruneBroker
import CoreBluetooth
import Foundation
import Testing

@testable import CoreBluetooth

@Suite struct PeripheralManagerTests {
  @Test("S74, S75, S134, S158: unknown, then the delegate gets each state", arguments: 1...5)
  func states(raw: Int) throws {
    let script = PeripheralScript(nil)
    #expect(script.manager.state == .unknown && script.calls().isEmpty)
    let states: [AdapterState] = [
      .resetting("It is being reset."), .unsupported("There is none."), .unauthorized("It is not allowed."),
      .poweredOff("It is off."), .poweredOn,
    ]
    script.deliver(.adapter(states[raw - 1]))
    #expect(script.calls() == ["state \(raw)"])
    #expect(script.manager.state.rawValue == raw)
    // The same state again is no change.
    script.deliver(.adapter(states[raw - 1]))
    #expect(script.calls().isEmpty)
  }
  @Test("S158: the states' numbers")
  func stateNumbers() {
    let states: [CBManagerState] = [.unknown, .resetting, .unsupported, .unauthorized, .poweredOff, .poweredOn]
    #expect(states.map(\.rawValue) == Array(0...5))
  }

  @Test("S73: no queue is the main queue") @MainActor
  func mainQueue() async {
    final class Main: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
      static let key = DispatchSpecificKey<Bool>()
      let continuation: AsyncStream<Bool>.Continuation
      init(_ continuation: AsyncStream<Bool>.Continuation) { self.continuation = continuation }
      func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        continuation.yield(DispatchQueue.getSpecific(key: Main.key) == true)
        continuation.finish()
      }
    }
    let (stream, continuation) = AsyncStream.makeStream(of: Bool.self)
    DispatchQueue.main.setSpecific(key: Main.key, value: true)
    let delegate = Main(continuation)
    var session: PeripheralSession?
    let manager = CBPeripheralManager(delegate: delegate, queue: nil) { events in
      let scripted = PeripheralSession(events)
      session = scripted
      return scripted
    }
    session?.deliver(.adapter(.poweredOn))
    var answers: [Bool] = []
    for await isMain in stream { answers.append(isMain) }
    #expect(answers == [true])
    #expect(manager.state == .poweredOn)
  }

  @Test("S132, S135, S159: the initialisers, and the authorization") @available(*, deprecated)
  func initialisers() {
    let delegate = PeripheralDelegate()
    // The shorter ones would open this machine's adapter.
    let plain: () -> CBPeripheralManager = CBPeripheralManager.init
    let queued: ((any CBPeripheralManagerDelegate)?, DispatchQueue?) -> CBPeripheralManager =
      CBPeripheralManager.init(delegate:queue:)
    withExtendedLifetime((plain, queued)) {}
    let manager = CBPeripheralManager(
      delegate: delegate, queue: nil,
      options: [
        CBPeripheralManagerOptionShowPowerAlertKey: NSNumber(value: true),
        CBPeripheralManagerOptionRestoreIdentifierKey: "peripheral", CBManagerOptionAdapterKey: "sim",
      ])
    #expect(manager.delegate === delegate && !manager.isAdvertising)
    // S135, S159.
    #expect(CBPeripheralManager.authorizationStatus() == .authorized)
    #expect(CBPeripheralManager.authorization == .allowedAlways)
    let statuses: [CBPeripheralManagerAuthorizationStatus] = [.notDetermined, .restricted, .denied, .authorized]
    #expect(statuses.map(\.rawValue) == Array(0...3))
  }

  @Test("S133: the delegate is weak, and may be released, replaced, or nil")
  func weakDelegate() throws {
    let script = PeripheralScript()
    var delegate: PeripheralDelegate? = PeripheralDelegate()
    script.manager.delegate = delegate
    weak let held = delegate
    delegate = nil
    #expect(held == nil && script.manager.delegate == nil)
    script.manager.add(CBMutableService(type: CBUUID(string: "180D"), primary: true))
    script.deliver(.adapter(.poweredOff("It is off.")))
    #expect(script.manager.state == .poweredOff)
    script.manager.delegate = script.delegate
    script.deliver(.adapter(.poweredOn))
    #expect(script.calls() == ["state 5"])
  }

  @Test("S156: the power alert is a log line, if it is requested and Bluetooth is off")
  func powerAlert() {
    let asked = PeripheralScript(nil, options: [CBPeripheralManagerOptionShowPowerAlertKey: NSNumber(value: true)])
    asked.deliver(.adapter(.poweredOff("Switch it on.")))
    #expect(asked.misuses().filter { $0.contains("Switch it on.") }.count == 1)
    for options in [nil, [CBPeripheralManagerOptionShowPowerAlertKey: false]] as [[String: Any]?] {
      let silent = PeripheralScript(nil, options: options)
      silent.deliver(.adapter(.poweredOff("Switch it on.")))
      #expect(silent.misuses().isEmpty)
    }
  }
  @Test("S157: a restore identifier is a String; other values do not trap")
  func restoreIdentifier() {
    for value in ["peripheral", NSString(string: "peripheral"), 7] as [Any] {
      let script = PeripheralScript(options: [CBPeripheralManagerOptionRestoreIdentifierKey: value])
      #expect(script.manager.state == .poweredOn)
    }
  }

  @Test("S153, S154, S155: a desired latency is requested, and none by default")
  func latency() throws {
    let script = PeripheralScript()
    let central = CBCentral(identifier: UUID(), longestUpdate: 20)
    #expect(script.session.takeRequests().isEmpty)
    for latency in [.low, .medium, .high] as [CBPeripheralManagerConnectionLatency] {
      script.manager.setDesiredConnectionLatency(latency, for: central)
    }
    #expect(
      script.session.takeRequests() == [
        .setDesiredLatency(central.identifier, .low), .setDesiredLatency(central.identifier, .medium),
        .setDesiredLatency(central.identifier, .high),
      ])
    let numbers: [CBPeripheralManagerConnectionLatency] = [.low, .medium, .high]
    #expect(numbers.map(\.rawValue) == [0, 1, 2])
  }

  @Test(
    "before poweredOn nothing reaches the adapter: the delegate gets an error if it has a method, and the log a line")
  func early() {
    let script = PeripheralScript(nil)
    script.manager.add(CBMutableService(type: CBUUID(string: "180D"), primary: true))
    script.manager.startAdvertising(nil)
    script.manager.stopAdvertising()
    script.manager.remove(CBMutableService(type: CBUUID(string: "180D"), primary: true))
    script.manager.removeAllServices()
    script.manager.setDesiredConnectionLatency(.low, for: CBCentral(identifier: UUID(), longestUpdate: 20))
    #expect(script.calls() == ["added 180D CBError 0", "advertising CBError 0 false"])
    #expect(script.session.takeRequests().isEmpty)
    #expect(script.misuses().filter { $0.contains("powered on state") }.count == 4)
  }

  @Test("L2CAP channels: published and unpublished, or not; each request is answered once")
  func channels() {
    let script = PeripheralScript()
    script.manager.publishL2CAPChannel(withEncryption: true)
    script.manager.unpublishL2CAPChannel(0x80)
    script.manager.publishL2CAPChannel(withEncryption: false)
    script.manager.unpublishL2CAPChannel(0x81)
    script.manager.publishL2CAPChannel(withEncryption: false)
    var ids: [OperationID] = [], words: [String] = []
    for request in script.session.takeRequests() {
      switch request {
      case .publishChannel(let id, let isEncrypted):
        ids.append(id)
        words.append("publish \(isEncrypted)")
      case .unpublishChannel(let id, let psm):
        ids.append(id)
        words.append("unpublish \(psm)")
      default: words.append("\(request)")
      }
    }
    #expect(words == ["publish true", "unpublish 128", "publish false", "unpublish 129", "publish false"])
    let no = BluetoothError(.invalidArgument, "No.")
    let results: [Result<BrokerAnswer, BluetoothError>] = [
      .success(.psm(0x80)), .success(.done), .failure(no), .failure(no),
    ]
    for (id, result) in zip(ids, results) { script.deliver(.completed(id, result)) }
    script.deliver(.completed(ids[0], .success(.psm(0x82))))
    #expect(
      script.calls() == [
        "channel published 128 ok", "channel unpublished 128 ok", "channel published 0 CBError 1",
        "channel unpublished 129 CBError 1",
      ])
    // The last one ends with the adapter's power.
    script.deliver(.adapter(.poweredOff("It is off.")))
    #expect(script.calls() == ["state 4", "channel published 0 CBError 0"])
    script.deliver(.completed(ids[4], .success(.psm(0x80))))
    #expect(script.calls() == [])
    #expect(CBL2CAPChannel().psm == 0 && CBL2CAPChannel().inputStream == nil && CBL2CAPChannel().peer == nil)
  }

  @Test("a released manager ends its session, and calls its delegate no more")
  func released() {
    let script = PeripheralScript()
    script.manager.add(CBMutableService(type: CBUUID(string: "180D"), primary: true))
    script.manager.publishL2CAPChannel(withEncryption: true)
    script.queue.suspend()
    script.session.deliver(.adapter(.poweredOff("It is off.")))
    script.releaseManager()
    script.queue.resume()
    // A call that the queue had begun before it was suspended retains the manager until it returns.
    script.waitForQueue()
    #expect(script.session.isClosed)
    script.deliver(
      .readRequested(ServerRequest(rawValue: 1), central: UUID(), handle(0x12), offset: 0, longestUpdate: 20))
    #expect(script.calls().allSatisfy { $0.hasPrefix("channel") })
  }
  @Test("a manager that its delegate releases in a call makes no further call")
  func releasedInACall() {
    let script = PeripheralScript()
    script.delegate.onCall = { _, _ in script.releaseManager() }
    script.queue.suspend()
    script.session.deliver(.adapter(.poweredOff("It is off.")))
    script.session.deliver(.adapter(.poweredOn))
    script.queue.resume()
    #expect(script.calls() == ["state 4"])
    #expect(script.session.isClosed)
  }
  @Test("every method may be called within every call of the delegate")
  func reentrant() throws {
    let script = PeripheralScript(), service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    script.delegate.onCall = { manager, _ in
      manager.add(service)
      manager.startAdvertising(nil)
      manager.stopAdvertising()
      manager.removeAllServices()
      manager.delegate = manager.delegate
      _ = (manager.state, manager.isAdvertising)
      script.delegate.onCall = nil
    }
    script.deliver(.adapter(.poweredOff("It is off.")))
    #expect(script.calls() == ["state 4", "added 180D CBError 0", "advertising CBError 0 false"])
  }
}
