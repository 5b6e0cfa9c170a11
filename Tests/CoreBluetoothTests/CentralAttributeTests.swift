import BindruneBroker
import BindruneWire
import Foundation
import Testing

@testable import Bindrune
@testable import CoreBluetooth
@testable import BindruneGATT

@Suite struct CentralAttributeTests {
  let refused = BluetoothError(.att, "The device answered Read Not Permitted (0x02).", attError: .readNotPermitted)

  // MARK: Discovery

  @Test("S114, S115, S116: services, all or some; one object for one service as long as the link exists")
  func services() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    #expect(peripheral.services == nil)
    peripheral.discoverServices([CBUUID(string: "180F")])
    let asked = lab.answer(.services([CentralLab.battery]))
    guard case .discoverServices(_, lab.peer, ["180F"]) = asked.first else {
      Issue.record("\(asked)")
      return
    }
    let battery = try #require(peripheral.services?.first)
    #expect(battery.uuid == CBUUID(string: "180F") && battery.isPrimary)
    #expect(battery.peripheral === peripheral)
    #expect(battery.characteristics == nil && battery.includedServices == nil)
    peripheral.discoverServices(nil)
    lab.answer(.services([CentralLab.heartRate, CentralLab.battery]))
    #expect(peripheral.services?.map(\.uuid.uuidString) == ["180D", "180F"])
    #expect(peripheral.services?.last === battery)
    peripheral.discoverServices([CBUUID(string: "180D")])
    lab.answer(.services([CentralLab.heartRate]))
    #expect(peripheral.services?.count == 2)
    peripheral.discoverServices(nil)
    lab.complete(.failure(BluetoothError(.busy, "Too much waits.")))
    #expect(peripheral.services?.count == 2)
    #expect(lab.recorder.errors.map { ($0 as? CBError)?.code } == [nil, nil, nil, .outOfSpace])
    #expect(lab.recorder.take() == ["services", "services", "services", "services"])
  }
  @Test("Generic Access and Generic Attribute are in no list of all services, and are found by UUID")
  func servicesOfTheSystem() throws {
    let lab = CentralLab(), peripheral = try lab.connected()
    let access = FoundService(handle: 0x01, endHandle: 0x05, uuid: "1800", isPrimary: true),
      attribute = FoundService(handle: 0x06, endHandle: 0x09, uuid: "1801", isPrimary: true)
    peripheral.discoverServices(nil)
    lab.answer(.services([access, attribute, CentralLab.heartRate]))
    #expect(peripheral.services?.map(\.uuid.uuidString) == ["180D"])
    lab.deliver(.servicesChanged(lab.peer, HandleRange(0x01, 0x09)))
    #expect(lab.recorder.invalidated.isEmpty)
    peripheral.discoverServices([CBUUID(string: "1800")])
    lab.answer(.services([access]))
    #expect(peripheral.services?.map(\.uuid.uuidString) == ["1800", "180D"])
    peripheral.discoverServices(nil)
    lab.answer(.services([access, attribute, CentralLab.heartRate]))
    #expect(peripheral.services?.map(\.uuid.uuidString) == ["180D"])
  }
  @Test("Included services, which may include each other, and are released at the end")
  func includedServices() throws {
    let lab = CentralLab()
    let (peripheral, service, _) = try lab.explored()
    let battery = try #require(peripheral.services?.last)
    let secondary = FoundService(handle: 0x30, endHandle: 0x3F, uuid: "1801", isPrimary: false)
    peripheral.discoverIncludedServices(nil, for: service)
    let asked = lab.answer(.includedServices([CentralLab.battery, secondary]))
    guard case .discoverIncludedServices(_, lab.peer, 0x10, nil) = asked.first else {
      Issue.record("\(asked)")
      return
    }
    #expect(service.includedServices?.first === battery)
    #expect(service.includedServices?.last?.isPrimary == false)
    #expect(peripheral.services?.count == 2)
    peripheral.discoverIncludedServices([CBUUID(string: "180D")], for: battery)
    lab.answer(.includedServices([CentralLab.heartRate]))
    #expect(battery.includedServices?.first === service)
    #expect(lab.recorder.take() == ["included", "included"])
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 1))
    #expect(service.includedServices == nil && battery.includedServices == nil)
  }
  @Test("S117, S118, S122, S124, S128: characteristics, all or some, with their properties")
  func characteristics() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    peripheral.discoverServices(nil)
    lab.answer(.services([CentralLab.heartRate]))
    let service = try #require(peripheral.services?.first)
    peripheral.discoverCharacteristics([CBUUID(string: "2A38")], for: service)
    let asked = lab.answer(.characteristics([CentralLab.location]))
    guard case .discoverCharacteristics(_, lab.peer, 0x10, ["2A38"]) = asked.first else {
      Issue.record("\(asked)")
      return
    }
    let location = try #require(service.characteristics?.first)
    peripheral.discoverCharacteristics(nil, for: service)
    lab.answer(.characteristics([CentralLab.measurement, CentralLab.location, CentralLab.control]))
    let found = try #require(service.characteristics)
    #expect(found.map(\.uuid.uuidString) == ["2A37", "2A38", "2A39"])
    #expect(found[1] === location)
    let properties: [CBCharacteristicProperties] = [[.notify], [.read], [.write, .writeWithoutResponse]]
    #expect(found.map(\.properties) == properties)
    #expect(found.allSatisfy { $0.service === service && $0.value == nil && !$0.isNotifying && $0.descriptors == nil })
    #expect(lab.recorder.take() == ["services", "characteristics", "characteristics"])
  }
  @Test("Descriptors, and the types of their values")
  func descriptors() throws {
    let lab = CentralLab()
    let (peripheral, _, characteristics) = try lab.explored()
    let uuids: [BluetoothUUID] = ["2900", "2901", "2902", "2903", "2904"]
    let found = uuids.enumerated().map {
      RemoteDescriptor(handle: AttributeHandle(rawValue: 0x13 + UInt16($0)), uuid: $1)
    }
    peripheral.discoverDescriptors(for: characteristics[0])
    lab.answer(.descriptors(found))
    let descriptors = try #require(characteristics[0].descriptors)
    #expect(descriptors.map(\.uuid.uuidString) == ["2900", "2901", "2902", "2903", "2904"])
    #expect(descriptors.allSatisfy { $0.characteristic === characteristics[0] && $0.value == nil })
    peripheral.discoverDescriptors(for: characteristics[0])
    lab.answer(.descriptors(found))
    #expect(characteristics[0].descriptors?.first === descriptors.first)

    for (descriptor, value) in zip(
      descriptors, [[1, 0], Array("Wrist".utf8), [2, 0], [1, 0], [4, 0, 0, 0, 1, 0, 0]])
    {
      peripheral.readValue(for: descriptor)
      let asked = lab.answer(.value(Data(value)))
      guard case .read(_, lab.peer, descriptor.found?.handle) = asked.first else {
        Issue.record("\(asked)")
        return
      }
    }
    #expect(descriptors[0].value as? NSNumber == 1)
    #expect(descriptors[1].value as? String == "Wrist")
    #expect(descriptors[1].value as? NSString == "Wrist")
    #expect(descriptors[2].value as? NSNumber == 2)
    #expect(descriptors[3].value as? Int == 1)
    #expect(descriptors[4].value as? Data == Data([4, 0, 0, 0, 1, 0, 0]))
    peripheral.readValue(for: descriptors[4])
    lab.complete(.failure(refused))
    #expect((lab.recorder.errors.last as? CBATTError)?.code == .readNotPermitted)
    #expect(lab.recorder.take() == ["descriptors", "descriptors"] + Array(repeating: "descriptor value", count: 6))
  }
  @Test("Writing a descriptor; a client's configuration is refused without a request")
  func writeDescriptor() throws {
    let lab = CentralLab()
    let (peripheral, _, characteristics) = try lab.explored()
    peripheral.discoverDescriptors(for: characteristics[0])
    lab.answer(
      .descriptors([RemoteDescriptor(handle: 0x13, uuid: "2902"), RemoteDescriptor(handle: 0x14, uuid: "2901")]))
    let descriptors = try #require(characteristics[0].descriptors)
    _ = lab.recorder.take()
    peripheral.writeValue(Data([1, 0]), for: descriptors[0])
    lab.waitForQueue()
    #expect(lab.asked().isEmpty)
    peripheral.writeValue(Data("Left".utf8), for: descriptors[1])
    let asked = lab.answer(.done)
    guard case .write(_, lab.peer, 0x14, Data("Left".utf8)) = asked.first else {
      Issue.record("\(asked)")
      return
    }
    #expect(lab.recorder.errors.map { ($0 as? CBError)?.code } == [.invalidParameters, nil])
    #expect(lab.recorder.take() == ["descriptor write", "descriptor write"])
  }

  // MARK: Values

  @Test("S119, S120, S121: reading; the value is set before the call; the device's refusal is the error")
  func read() throws {
    let lab = CentralLab()
    let (peripheral, _, characteristics) = try lab.explored()
    peripheral.readValue(for: characteristics[1])
    let asked = lab.answer(.value(Data([1])))
    guard case .read(_, lab.peer, 0x15) = asked.first else {
      Issue.record("\(asked)")
      return
    }
    #expect(lab.recorder.values as? [Data] == [Data([1])])
    peripheral.readValue(for: characteristics[0])
    lab.complete(.failure(refused))
    let error = try #require(lab.recorder.errors.last as? CBATTError)
    #expect(error.code == .readNotPermitted)
    #expect(error.localizedDescription == refused.diagnostics)
    #expect((error as NSError).domain == CBATTErrorDomain && (error as NSError).code == 2)
    #expect(characteristics[0].value == nil && characteristics[1].value == Data([1]))
    peripheral.readValue(for: characteristics[1])
    lab.complete(.failure(BluetoothError(.att, "0x80", attError: ATTError(rawValue: 0x80))))
    #expect((lab.recorder.errors.last as? CBATTError)?.code == CBATTError.Code(rawValue: 0x80))
    #expect(lab.recorder.take() == ["value", "value", "value"])
  }
  @Test("S123, S125: subscribing; every value is delivered in order, with the property set before")
  func notify() throws {
    let lab = CentralLab()
    let (peripheral, _, characteristics) = try lab.explored()
    let measurement = characteristics[0]
    peripheral.setNotifyValue(true, for: measurement)
    let asked = lab.answer(.notifying(true))
    guard case .setNotifying(_, lab.peer, 0x12, true) = asked.first else {
      Issue.record("\(asked)")
      return
    }
    #expect(measurement.isNotifying)
    lab.queue.suspend()
    for value in 0..<100 { lab.session.deliver(.values(lab.peer, 0x12, [Data([UInt8(value)])])) }
    lab.queue.resume()
    lab.waitForQueue()
    #expect(lab.recorder.values.dropFirst().map { $0 as? Data } == (0..<100).map { Data([$0]) })
    lab.deliver(.values(lab.peer, 0x77, [Data([1])]))  // of nothing that was found
    peripheral.setNotifyValue(false, for: measurement)
    lab.answer(.notifying(false))
    #expect(!measurement.isNotifying)
    #expect(lab.recorder.take() == ["notify"] + Array(repeating: "value", count: 100) + ["notify"])
  }
  @Test(
    "Of values that came together, none follows the one with which the app ends the connection, or lets its manager go")
  func valuesTogether() throws {
    let lab = CentralLab()
    var peripheral = try lab.explored().0
    let values = (0..<4).map { Data([$0]) }
    func isThird() -> Bool { lab.recorder.values.last.flatMap { $0 as? Data } == values[2] }
    lab.recorder.then["value"] = { if isThird() { lab.manager.cancelPeripheralConnection(peripheral) } }
    lab.deliver(.values(lab.peer, 0x12, BrokerValues(values)))
    #expect(lab.recorder.take() == ["value", "value", "value"])
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 0))

    peripheral = try lab.explored().0
    _ = lab.recorder.take()
    lab.recorder.then["value"] = { if isThird() { lab.letManagerGo() } }
    lab.deliver(.values(lab.peer, 0x12, BrokerValues(values)))
    #expect(lab.recorder.take() == ["value", "value", "value"])
    withExtendedLifetime(peripheral) {}
  }
  @Test("S123, S124: a characteristic without subscriptions, and a device that refuses")
  func notifyFails() throws {
    let lab = CentralLab()
    let (peripheral, _, characteristics) = try lab.explored()
    peripheral.setNotifyValue(true, for: characteristics[1])
    lab.waitForQueue()
    #expect(lab.asked().isEmpty)
    for error in [
      BluetoothError(.invalidArgument, "There is no configuration."),
      BluetoothError(.att, "The device refuses.", attError: .insufficientEncryption),
      BluetoothError(.timedOut, "The device is silent."),
    ] {
      peripheral.setNotifyValue(true, for: characteristics[0])
      lab.complete(.failure(error))
    }
    #expect(
      lab.recorder.errors.map { ($0 as? CBATTError)?.code } == [
        .requestNotSupported, .attributeNotFound, .insufficientEncryption, nil,
      ])
    #expect((lab.recorder.errors.last as? CBError)?.code == .connectionTimeout)
    #expect(!characteristics[0].isNotifying)
    #expect(lab.recorder.take() == ["notify", "notify", "notify", "notify"])
  }
  @Test("S126: a write with a response reports whether the device has written; more than 512 octets are refused")
  func write() throws {
    let lab = CentralLab()
    let (peripheral, _, characteristics) = try lab.explored()
    let long = Data(repeating: 7, count: 512)
    peripheral.writeValue(long, for: characteristics[2], type: .withResponse)
    let asked = lab.answer(.done)
    guard case .write(_, lab.peer, 0x17, long) = asked.first else {
      Issue.record("\(asked)")
      return
    }
    peripheral.writeValue(Data([1]), for: characteristics[2], type: .withResponse)
    lab.complete(.failure(BluetoothError(.att, "Refused.", attError: .writeNotPermitted)))
    peripheral.writeValue(long + [1], for: characteristics[2], type: .withResponse)
    lab.waitForQueue()
    #expect(lab.asked().isEmpty)
    #expect(
      lab.recorder.errors.map { ($0 as? CBATTError)?.code } == [nil, .writeNotPermitted, .invalidAttributeValueLength])
    #expect(lab.recorder.take() == ["write", "write", "write"])
  }
  @Test(
    "S127: a write without a response goes through the port and has no result; a full port reports when it is ready"
  )
  func writeWithoutResponse() throws {
    let lab = CentralLab()
    let (peripheral, _, characteristics) = try lab.explored()
    let control = characteristics[2]
    #expect(!peripheral.canSendWriteWithoutResponse)
    let port = SendPort(handle: nil, kind: .command, capacity: 600, mtu: 515) { _ in }
    lab.session.open(port, to: lab.peer)
    #expect(peripheral.canSendWriteWithoutResponse)
    peripheral.writeValue(Data([1, 2]), for: control, type: .withoutResponse)
    peripheral.writeValue(Data(repeating: 3, count: 500), for: control, type: .withoutResponse)
    #expect(!peripheral.canSendWriteWithoutResponse)
    peripheral.writeValue(Data([9]), for: characteristics[1], type: .withoutResponse)  // has not the property
    lab.waitForQueue()
    #expect(lab.asked().isEmpty && lab.recorder.calls.isEmpty)
    var sent: [[UInt8]] = []
    var isEdge = false
    for _ in 0..<2 {
      isEdge =
        port.sendNext(now: .zero) { value, handle in
          #expect(handle == 0x17)
          sent.append((0..<value.count).map { value[$0] })
          return true
        }.isEdge || isEdge
    }
    #expect(sent == [[1, 2], Array(repeating: 3, count: 500)])
    #expect(isEdge)
    #expect(port.count == 0)
    lab.deliver(.readyToWrite(lab.peer))
    #expect(lab.recorder.values as? [Bool] == [true])
    #expect(lab.recorder.take() == ["ready"])
  }

  // MARK: Peripheral

  @Test("RSSI: 127 if the controller has no value, and with an error")
  func rssi() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    peripheral.readRSSI()
    lab.answer(.rssi(-71))
    peripheral.readRSSI()
    lab.answer(.rssi(nil))
    peripheral.readRSSI()
    lab.complete(.failure(BluetoothError(.controller, "The controller refuses.")))
    #expect(lab.recorder.rssi == [-71, 127, 127])
    #expect(lab.recorder.errors.map { ($0 as? CBError)?.code } == [nil, nil, .unknown])
  }
  @Test("S113: without a delegate results are dropped; a later delegate gets the next ones")
  func delegate() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    peripheral.delegate = nil
    peripheral.readRSSI()
    lab.answer(.rssi(-71))
    #expect(lab.recorder.calls.isEmpty)
    do {
      let short = CentralRecorder()
      peripheral.delegate = short
    }
    #expect(peripheral.delegate == nil)
    peripheral.delegate = lab.recorder
    peripheral.readRSSI()
    lab.answer(.rssi(-72))
    #expect(lab.recorder.rssi == [-72])
  }
  @Test("Changed services become invalid; the others stay valid")
  func servicesChanged() throws {
    let lab = CentralLab()
    let (peripheral, service, characteristics) = try lab.explored()
    let battery = try #require(peripheral.services?.last)
    lab.deliver(.servicesChanged(lab.peer, HandleRange(0x18, 0x1F)))
    #expect(lab.recorder.take() == ["modify"])
    #expect(lab.recorder.invalidated.count == 1 && lab.recorder.invalidated.first === service)
    #expect(peripheral.services?.count == 1 && peripheral.services?.first === battery)
    lab.deliver(.values(lab.peer, 0x12, [Data([1])]))
    peripheral.readValue(for: characteristics[1])
    lab.waitForQueue()
    #expect(lab.asked().isEmpty)
    #expect((lab.recorder.errors.last as? CBError)?.code == .invalidHandle)
    #expect(lab.recorder.take() == ["value"])
    peripheral.discoverServices(nil)
    lab.answer(.services([CentralLab.heartRate, CentralLab.battery]))
    #expect(peripheral.services?.first !== service && peripheral.services?.last === battery)
    // A range without known services, or an invalid one.
    lab.deliver(
      .servicesChanged(lab.peer, HandleRange(0x50, 0x60)), .servicesChanged(lab.peer, HandleRange(0x60, 0x50)))
    #expect(lab.recorder.invalidated.count == 1)
  }
  @Test("A new name is set before the delegate's call")
  func name() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    lab.deliver(.nameChanged(lab.peer, "Kitchen"))
    #expect(lab.recorder.values as? [String] == ["Kitchen"])
    #expect(peripheral.name == "Kitchen")
  }
  @Test("An L2CAP channel that the device refuses, or that ends with the connection, is an error")
  func channel() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    peripheral.openL2CAPChannel(0x80)
    let asked = lab.complete(.failure(BluetoothError(.refused, "It has no such PSM.")))
    guard case .openChannel(_, lab.peer, psm: 0x80) = asked.first, asked.count == 1 else {
      Issue.record("\(asked)")
      return
    }
    #expect((lab.recorder.errors.first as? CBError)?.code == .operationNotSupported)
    #expect(lab.recorder.take() == ["channel"])
    lab.manager.cancelPeripheralConnection(peripheral)
    peripheral.openL2CAPChannel(0x80)
    lab.waitForQueue()
    #expect((lab.recorder.errors.first as? CBError)?.code == .notConnected)
    #expect(lab.recorder.take() == ["channel"])
  }

  // MARK: Bad input

  @Test("Every request to a peripheral that is not connected fails with notConnected, and sends nothing")
  func notConnected() throws {
    let lab = CentralLab()
    let (peripheral, service, characteristics) = try lab.explored()
    peripheral.discoverDescriptors(for: characteristics[0])
    lab.answer(.descriptors([RemoteDescriptor(handle: 0x14, uuid: "2901")]))
    let descriptor = try #require(characteristics[0].descriptors?.first)
    lab.deliver(.disconnected(lab.peer, nil, isReconnecting: false, seconds: 1))
    _ = lab.recorder.take()
    peripheral.readRSSI()
    peripheral.discoverServices(nil)
    peripheral.discoverIncludedServices(nil, for: service)
    peripheral.discoverCharacteristics(nil, for: service)
    peripheral.discoverDescriptors(for: characteristics[0])
    peripheral.readValue(for: characteristics[1])
    peripheral.readValue(for: descriptor)
    peripheral.writeValue(Data(), for: characteristics[2], type: .withResponse)
    peripheral.writeValue(Data(), for: characteristics[2], type: .withoutResponse)
    peripheral.writeValue(Data(), for: descriptor)
    peripheral.setNotifyValue(true, for: characteristics[0])
    lab.waitForQueue()
    #expect(lab.asked().isEmpty)
    #expect(lab.recorder.errors.allSatisfy { ($0 as? CBError)?.code == .notConnected })
    #expect(
      lab.recorder.take() == [
        "rssi", "services", "included", "characteristics", "descriptors", "value", "descriptor value", "write",
        "descriptor write", "notify",
      ])
  }
  @Test("Attributes of another peripheral, or of this device, are invalid parameters")
  func foreign() throws {
    let lab = CentralLab()
    let (peripheral, _, _) = try lab.explored()
    let other = CentralLab()
    let (stranger, service, characteristics) = try other.explored()
    peripheral.readValue(for: characteristics[1])
    peripheral.discoverCharacteristics(nil, for: service)
    peripheral.setNotifyValue(true, for: characteristics[1])
    peripheral.writeValue(Data([1]), for: characteristics[2], type: .withoutResponse)
    peripheral.discoverIncludedServices(nil, for: CBService(uuid: CBUUID(string: "180D")))
    peripheral.readValue(for: CBDescriptor(uuid: CBUUID(string: "2901")))
    lab.waitForQueue()
    #expect(lab.asked().isEmpty && other.asked().isEmpty)
    #expect(lab.recorder.errors.allSatisfy { ($0 as? CBError)?.code == .invalidParameters })
    #expect(lab.recorder.take() == ["value", "characteristics", "notify", "included", "descriptor value"])
    withExtendedLifetime(stranger) {}
  }
  @Test("An answer to another question is an error, not a trap")
  func wrongAnswer() throws {
    let lab = CentralLab()
    let peripheral = try lab.connected()
    peripheral.discoverServices(nil)
    lab.answer(.rssi(1))
    lab.deliver(.completed(OperationID(rawValue: 4711), .success(.done)))
    #expect((lab.recorder.errors.first as? CBError)?.code == .unknown)
    #expect(lab.recorder.take() == ["services"])
  }
  @Test("Objects print as Apple's do")
  func descriptions() throws {
    let lab = CentralLab()
    let (peripheral, service, characteristics) = try lab.explored()
    characteristics[1].setValue(Data([6, 0x48]))
    #expect(peripheral.description.hasPrefix("<CBPeripheral: 0x"))
    #expect(
      peripheral.description.hasSuffix(
        ", identifier = \(lab.peer), name = Thermostat, mtu = 23, state = connected>"))
    #expect(service.description.hasSuffix(", isPrimary = YES, UUID = Heart Rate>"))
    #expect(
      characteristics[1].description.hasSuffix(
        ", UUID = Body Sensor Location, properties = 0x2, value = {length = 2, bytes = 0x0648}, notifying = NO>"))
  }
}
