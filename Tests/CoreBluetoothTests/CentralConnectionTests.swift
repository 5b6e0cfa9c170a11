import BindruneBroker
import CoreBluetooth
import Foundation
import Testing

@Suite struct CentralConnectionTests {
  let gone = BluetoothError(.connectionTimedOut, "The device was not heard any more.")

  @Test("S112: a connection is requested, waits, and is reported; its state changes before that")
  func connect() throws {
    let lab = CentralLab()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.connect(peripheral)
    #expect(peripheral.state == .connecting)
    lab.manager.connect(peripheral)  // is waited for already
    #expect(lab.asked() == [.connect(lab.peer, ConnectOptions())])
    #expect(lab.recorder.calls.isEmpty)
    lab.deliver(.connected(lab.peer, name: "Strap", longestWrite: 244))
    #expect(lab.recorder.values as? [CBPeripheralState] == [.connected])
    #expect(peripheral.name == "Strap")
    #expect(peripheral.maximumWriteValueLength(for: .withoutResponse) == 244)
    #expect(peripheral.maximumWriteValueLength(for: .withResponse) == 512)
    lab.deliver(.longestWriteChanged(lab.peer, 514))
    #expect(peripheral.maximumWriteValueLength(for: .withoutResponse) == 512)
    lab.manager.connect(peripheral)  // is there already
    lab.waitForQueue()
    #expect(lab.recorder.take() == ["connect", "connect"])
    #expect(lab.asked().isEmpty)
  }
  @Test("Connect options are ignored if their type is wrong")
  func options() throws {
    let lab = CentralLab()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.connect(
      peripheral,
      options: [
        CBConnectPeripheralOptionStartDelayKey: 2.5, CBConnectPeripheralOptionEnableAutoReconnect: true,
        CBConnectPeripheralOptionNotifyOnConnectionKey: true,
      ])
    lab.manager.cancelPeripheralConnection(peripheral)
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 0))
    lab.manager.connect(
      peripheral,
      options: [
        CBConnectPeripheralOptionStartDelayKey: "soon", CBConnectPeripheralOptionEnableAutoReconnect: [1],
        "somebody else's": NSNull(),
      ])
    #expect(
      lab.asked() == [
        .connect(lab.peer, ConnectOptions(startDelay: 2.5, reconnects: true, alerts: .connection)),
        .cancelConnection(lab.peer),
        .connect(lab.peer, ConnectOptions()),
      ])
  }
  @Test(
    "A connection that cannot be made is reported with its cause",
    arguments: [
      (BluetoothError.Code.connectionLimitReached, CBError.Code.connectionLimitReached),
      (.controller, .connectionFailed), (.connectionFailed, .connectionFailed), (.timedOut, .connectionTimeout),
    ])
  func failure(code: BluetoothError.Code, expected: CBError.Code) throws {
    let lab = CentralLab()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.connect(peripheral)
    lab.deliver(.connectionFailed(lab.peer, BluetoothError(code, "The cause, and the cure.")))
    #expect(lab.recorder.values as? [CBPeripheralState] == [.disconnected])
    let error = try #require(lab.recorder.errors.first as? CBError)
    #expect(error.code == expected)
    #expect(error.localizedDescription == "The cause, and the cure.")
    #expect(lab.recorder.take() == ["fail"])
  }
  @Test(
    "A link that cannot be encrypted ends with Apple's code, before and after the program knows of it",
    arguments: [
      (HCIStatus.pinOrKeyMissing, CBError.Code.peerRemovedPairingInformation),
      (.lmpOrLLResponseTimeout, .encryptionTimedOut),
    ])
  func encryption(status: HCIStatus, expected: CBError.Code) throws {
    for isConnected in [false, true] {
      let lab = CentralLab(), cause = BluetoothError(.pairing, "The cause, and the cure.", status: status)
      let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
      lab.manager.connect(peripheral)
      if isConnected {
        lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
        lab.deliver(.disconnected(lab.peer, cause, isReconnecting: false, seconds: 9))
      } else {
        lab.deliver(.connectionFailed(lab.peer, cause))
      }
      #expect(lab.recorder.errors.compactMap { $0 as? CBError }.map(\.code) == [expected])
      #expect(lab.recorder.take().last == (isConnected ? "disconnect" : "fail"))
    }
  }
  @Test("A cancelled connection ends without an error, pending or made")
  func cancel() throws {
    let lab = CentralLab()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.cancelPeripheralConnection(peripheral)
    #expect(lab.asked().isEmpty)
    for isMade in [false, true] {
      lab.manager.connect(peripheral)
      if isMade { lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20)) }
      lab.manager.cancelPeripheralConnection(peripheral)
      #expect(peripheral.state == .disconnecting)
      lab.manager.cancelPeripheralConnection(peripheral)
      #expect(lab.asked().last == .cancelConnection(lab.peer))
      // The link may break at the same moment: it still counts as cancelled.
      lab.deliver(.disconnected(lab.peer, isMade ? gone : nil, isReconnecting: false, seconds: 7))
      #expect(peripheral.state == .disconnected)
      #expect(lab.recorder.errors.last.flatMap { $0 } == nil)
      #expect(lab.recorder.take() == (isMade ? ["connect", "disconnect"] : ["disconnect"]))
    }
  }
  @Test("Cancelled and requested again: the first connection's end does not end the second")
  func cancelAndConnectAgain() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    lab.manager.cancelPeripheralConnection(peripheral)
    lab.manager.connect(peripheral)
    #expect(lab.asked() == [.cancelConnection(lab.peer), .connect(lab.peer, ConnectOptions())])
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 1))
    #expect(peripheral.state == .connecting)
    lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
    #expect(peripheral.state == .connected)
    lab.deliver(.disconnected(lab.peer, gone, isReconnecting: false, seconds: 2))
    #expect(peripheral.state == .disconnected)
    #expect(lab.recorder.errors.map { ($0 as? CBError)?.code } == [nil, nil, .connectionTimeout])
    #expect(lab.recorder.take() == ["disconnect", "connect", "disconnect"])
  }
  @Test("A connection that was made while it was cancelled is not reported")
  func cancelCrossesConnected() throws {
    let lab = CentralLab()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.connect(peripheral)
    lab.manager.cancelPeripheralConnection(peripheral)
    lab.manager.connect(peripheral)
    lab.deliver(
      .connected(lab.peer, name: nil, longestWrite: 20),
      .disconnected(lab.peer, nil, isReconnecting: false, seconds: 1),
      .connected(lab.peer, name: nil, longestWrite: 20))
    #expect(lab.recorder.take() == ["disconnect", "connect"])
    #expect(peripheral.state == .connected)
  }
  @Test("Releasing a peripheral cancels its connection, pending or made")
  func abandoned() throws {
    for isMade in [false, true] {
      let lines = LogLines()
      let lab = CentralLab()
      var peripheral = lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first
      if let peripheral { lab.manager.connect(peripheral) }
      if isMade { lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20)) }
      _ = (lab.recorder.take(), lab.asked())
      peripheral = nil
      #expect(lab.asked() == [.cancelConnection(lab.peer)])
      lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 1))
      #expect(lab.recorder.calls.isEmpty)
      #expect(lines.of(lab.manager).contains { $0.contains("keep a reference") })
      withExtendedLifetime(peripheral) {}
    }
    // Releasing one that was not connected causes no request.
    let lab = CentralLab()
    _ = lab.manager.retrievePeripherals(withIdentifiers: [lab.peer])
    #expect(lab.asked().isEmpty)
  }
  @Test("A device found again after the release of its peripheral: the end of the old connection is not reported")
  func abandonedAndFoundAgain() throws {
    let lab = CentralLab()
    var old: CBPeripheral? = try lab.connected()
    old?.readRSSI()
    let id = try #require(lab.asked().last?.operation)
    withExtendedLifetime(old) {}
    old = nil
    let new = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.connect(new)
    #expect(lab.asked() == [.cancelConnection(lab.peer), .connect(lab.peer, ConnectOptions())])
    new.delegate = lab.recorder
    lab.deliver(.completed(id, .success(.rssi(-3))), .disconnected(lab.peer, nil, isReconnecting: false, seconds: 1))
    #expect(lab.recorder.calls.isEmpty && new.state == .connecting)
    lab.deliver(
      .connected(lab.peer, name: nil, longestWrite: 20),
      .disconnected(lab.peer, gone, isReconnecting: false, seconds: 2))
    #expect(lab.recorder.take() == ["connect", "disconnect"])
    #expect(new.state == .disconnected)
  }
  @Test("A reconnecting link that the app cancels and requests again ends once")
  func reconnectingCrossesCancel() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    lab.manager.cancelPeripheralConnection(peripheral)
    lab.manager.connect(peripheral)
    lab.deliver(
      .disconnected(lab.peer, gone, isReconnecting: true, seconds: 1),
      .disconnected(lab.peer, nil, isReconnecting: false, seconds: 2), .connected(lab.peer, name: nil, longestWrite: 20)
    )
    #expect(lab.recorder.take() == ["disconnect", "connect"])
    #expect(peripheral.state == .connected)
  }
  @Test("After a disconnection: no results of earlier requests, services nil, and their objects are invalid")
  func disconnection() throws {
    let lab = CentralLab()
    let (peripheral, service, characteristics) = try lab.explored()
    peripheral.readValue(for: characteristics[1])
    let id = try #require(lab.asked().last?.operation)
    lab.deliver(
      .disconnected(
        lab.peer, BluetoothError(.disconnected, "The device has hung up."), isReconnecting: false, seconds: 9),
      .completed(id, .failure(gone)), .values(lab.peer, 0x12, [Data([1])]),
      .servicesChanged(lab.peer, HandleRange(1, 0xFFFF)), .readyToWrite(lab.peer))
    #expect(lab.recorder.values.first.flatMap { $0 } == nil)
    #expect((lab.recorder.errors.first as? CBError)?.code == .peripheralDisconnected)
    #expect(lab.recorder.take() == ["disconnect"])
    #expect(lab.recorder.ends.map(\.timestamp) == [9])
    #expect(peripheral.services == nil)

    // They do not belong to the next link.
    lab.manager.connect(peripheral)
    lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
    _ = (lab.recorder.take(), lab.asked())
    peripheral.readValue(for: characteristics[1])
    peripheral.discoverCharacteristics(nil, for: service)
    lab.waitForQueue()
    #expect(lab.asked().isEmpty)
    #expect(lab.recorder.errors.map { ($0 as? CBError)?.code } == [.invalidHandle, .invalidHandle])
    #expect(lab.recorder.take() == ["value", "characteristics"])
  }
  @Test("A reconnecting link is reported as such, and its peripheral is connecting")
  func reconnecting() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    lab.deliver(.disconnected(lab.peer, gone, isReconnecting: true, seconds: 12.5))
    #expect(peripheral.state == .connecting)
    lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
    #expect(peripheral.state == .connected)
    #expect(lab.recorder.take() == ["disconnect", "connect"])
    #expect(lab.recorder.ends.map(\.isReconnecting) == [true])
    #expect(lab.recorder.ends.map(\.timestamp) == [12.5])
    #expect(lab.asked().isEmpty)
    // Cancelled before the new link.
    lab.deliver(.disconnected(lab.peer, gone, isReconnecting: true, seconds: 13))
    lab.manager.cancelPeripheralConnection(peripheral)
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 14))
    #expect(peripheral.state == .disconnected)
  }
  @Test("The older method is called for a delegate without the one with a time")
  func disconnectionOfOld() throws {
    final class Old: NSObject, CBCentralManagerDelegate {
      var reasons: [CBError.Code?] = []
      func centralManagerDidUpdateState(_ central: CBCentralManager) {}
      func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
      ) { reasons.append((error as? CBError)?.code) }
    }
    let lab = CentralLab()
    let peripheral = try lab.connected()
    let old = Old()
    lab.manager.delegate = old
    lab.deliver(.disconnected(lab.peer, gone, isReconnecting: false, seconds: 1))
    #expect(old.reasons == [.connectionTimeout])
    withExtendedLifetime(peripheral) {}
  }
  @Test("Of a delegate with both methods the older one is called, alone, as by Apple's framework; with the newer, that")
  func disconnectionOfBoth() throws {
    class Newer: NSObject, CBCentralManagerDelegate {
      var calls: [String] = []
      func centralManagerDidUpdateState(_ central: CBCentralManager) {}
      func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
      ) { calls.append("newer \(timestamp) \(isReconnecting) \((error as? CBError)?.code.rawValue ?? -1)") }
    }
    final class Both: NSObject, CBCentralManagerDelegate {
      var calls: [String] = []
      func centralManagerDidUpdateState(_ central: CBCentralManager) {}
      func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
      ) { calls.append("older \((error as? CBError)?.code.rawValue ?? -1)") }
      func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
      ) { calls.append("newer") }
    }
    let lab = CentralLab(), both = Both(), newer = Newer()
    let peripheral = try lab.connected()
    lab.manager.delegate = both
    lab.deliver(.disconnected(lab.peer, gone, isReconnecting: true, seconds: 1))
    #expect(both.calls == ["older 6"])
    lab.manager.delegate = newer
    lab.deliver(
      .connected(lab.peer, name: nil, longestWrite: 20),
      .disconnected(lab.peer, gone, isReconnecting: false, seconds: 2))
    #expect(newer.calls == ["newer 2.0 false 6"])
    // Called by the program itself, the method that is missing does nothing.
    newer.centralManager(lab.manager, didDisconnectPeripheral: peripheral, error: nil)
    #expect(newer.calls.count == 1)
  }
  @Test("A peripheral of another manager stands for its device: the delegate gets the manager's own")
  func foreignPeripheral() throws {
    let (lab, other) = (CentralLab(), CentralLab())
    let foreign = try #require(other.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.connect(foreign)
    #expect(lab.asked() == [.connect(lab.peer, ConnectOptions())])
    weak var own: CBPeripheral?
    lab.recorder.then["connect"] = { [unowned lab] in
      own = lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first
    }
    // Only the manager retains it.
    lab.deliver(.connected(lab.peer, name: "Thermostat", longestWrite: 20))
    #expect(lab.recorder.take() == ["connect"])
    #expect(own !== foreign && own?.state == .connected && own?.identifier == foreign.identifier)
    #expect(foreign.state == .disconnected && other.asked().isEmpty)
    // Its end is reported with the same object, which is then released.
    lab.manager.cancelPeripheralConnection(foreign)
    #expect(lab.asked() == [.cancelConnection(lab.peer)])
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 1))
    #expect(lab.recorder.take() == ["disconnect"])
    #expect(own == nil && lab.asked().isEmpty)
    // The same at the adapter's end.
    lab.manager.connect(foreign)
    lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
    #expect(own?.state == .connected)
    lab.deliver(.adapter(.poweredOff("It is off.")))
    #expect(own == nil)
    withExtendedLifetime(foreign) {}
  }
  @Test("A peripheral without a device is unknown; one that the manager has not connected has nothing to cancel")
  func unknownPeripheral() throws {
    let (lab, other) = (CentralLab(), CentralLab())
    lab.manager.connect(CBPeripheral())
    lab.waitForQueue()
    #expect((lab.recorder.errors.first as? CBError)?.code == .unknownDevice)
    #expect(lab.recorder.take() == ["fail"])
    let foreign = try #require(other.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.manager.cancelPeripheralConnection(foreign)
    lab.waitForQueue()
    #expect(lab.recorder.take().isEmpty && lab.asked().isEmpty)
  }
  @Test("A subclass can replace a peripheral; it gives no results")
  func subclass() {
    final class Fake: CBPeripheral, @unchecked Sendable {
      override var name: String? { "Fake" }
      override var state: CBPeripheralState { .connected }
    }
    let lab = CentralLab()
    let fake = Fake()
    fake.delegate = lab.recorder
    fake.discoverServices(nil)
    fake.readRSSI()
    #expect(fake.name == "Fake" && !fake.canSendWriteWithoutResponse)
    lab.manager.connect(fake)
    lab.waitForQueue()
    #expect(lab.recorder.take() == ["fail"])
  }
}
