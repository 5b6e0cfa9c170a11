import BindruneBroker
import CoreBluetooth
import Foundation
import BindruneGATT
import Testing

@testable import CoreBluetooth

private let heartRate = CBUUID(string: "180D")
private let measurement = CBUUID(string: "2A37")
private let location = CBUUID(string: "2A38")
private let control = CBUUID(string: "2A39")

/// The heart rate service of Apple's examples.
private func heartRateService() -> CBMutableService {
  let service = CBMutableService(type: heartRate, primary: true)
  service.characteristics = [
    CBMutableCharacteristic(type: measurement, properties: .notify, value: nil, permissions: []),
    CBMutableCharacteristic(type: location, properties: .read, value: Data([1]), permissions: .readable),
    CBMutableCharacteristic(type: control, properties: .write, value: nil, permissions: .writeable),
  ]
  return service
}

@Suite struct PeripheralServiceTests {
  @Test("S76, S77, S81, S82, S83, S84, S137: a tree is published as it was built")
  func tree() throws {
    let script = PeripheralScript(), service = heartRateService()
    let words = CBMutableDescriptor(
      type: CBUUID(string: CBUUIDCharacteristicUserDescriptionString), value: "Brustgurt ♥")
    // Vol 3, Part G, §3.3.3.5: uint8, exponent 0, beats a minute, of the Bluetooth SIG.
    let format = CBMutableDescriptor(
      type: CBUUID(string: CBUUIDCharacteristicFormatString), value: Data([0x04, 0, 0xAF, 0x27, 1, 0, 0]))
    service.characteristics?[1].setForTest([words, format])
    #expect(service.isPrimary && service.uuid == heartRate)
    #expect(service.characteristics?.allSatisfy { $0.service === service } == true)
    #expect(words.characteristic === service.characteristics?[1])
    script.manager.add(service)
    let requests = script.session.takeRequests()
    let expected = ServiceDescription(
      uuid: BluetoothUUID(0x180D),
      characteristics: [
        .init(uuid: BluetoothUUID(0x2A37), properties: .notify, permissions: .none),
        .init(
          uuid: BluetoothUUID(0x2A38), properties: .read, permissions: .readable, value: Data([1]),
          descriptors: [
            .init(uuid: BluetoothUUID(0x2901), value: Data("Brustgurt ♥".utf8)),
            .init(uuid: BluetoothUUID(0x2904), value: Data([0x04, 0, 0xAF, 0x27, 1, 0, 0])),
          ]),
        .init(uuid: BluetoothUUID(0x2A39), properties: .write, permissions: .writable),
      ])
    #expect(requests == [.addService(OperationID(rawValue: 1), expected)])
  }

  @Test("S82: a value requires encryption if its permissions or properties say so")
  func encryption() throws {
    let script = PeripheralScript(), service = CBMutableService(type: heartRate, primary: false)
    service.characteristics = [
      CBMutableCharacteristic(
        type: measurement, properties: [.read, .write, .notifyEncryptionRequired], value: nil,
        permissions: [.readable, .readEncryptionRequired, .writeEncryptionRequired]),
      CBMutableCharacteristic(
        type: location, properties: .indicateEncryptionRequired, value: nil, permissions: []),
    ]
    script.manager.add(service)
    guard case .addService(_, let description) = script.session.takeRequests().first else {
      Issue.record("nothing was added")
      return
    }
    #expect(!description.isPrimary)
    #expect(description.characteristics[0].permissions == AttributePermissions(read: .encrypted, write: .encrypted))
    #expect(description.characteristics[0].configuring == .encrypted)
    #expect(description.characteristics[0].properties == [.read, .write, .notify])
    #expect(description.characteristics[1].properties == .indicate)
    #expect(description.characteristics[1].configuring == .encrypted)
  }

  @Test("S85: didAdd reports success, or the cause of a failure")
  func answers() throws {
    let script = PeripheralScript(), service = heartRateService()
    try script.publish(service, at: 0x10)
    let other = CBMutableService(type: CBUUID(string: "180F"), primary: true)
    script.manager.add(other)
    guard case .addService(let id, _) = script.session.takeRequests().first else {
      Issue.record("nothing was added")
      return
    }
    script.deliver(.completed(id, .failure(BluetoothError(.busy, "There is no room."))))
    #expect(script.calls() == ["added 180F CBError 4"])
    // It may be added elsewhere.
    try script.publish(other, at: 0x20)
  }

  /// Where Apple raises an exception, the delegate gets an error.
  @Test("the header's rules: an invalid service is refused, with the cause", arguments: Rule.allCases)
  func rules(rule: Rule) throws {
    let script = PeripheralScript(), service = CBMutableService(type: heartRate, primary: true)
    let (characteristic, cause) = rule.tree
    service.characteristics = [characteristic]
    let causes = Causes()
    script.delegate.onCall = { _, _ in }
    script.manager.delegate = causes
    script.manager.add(service)
    script.waitForQueue()
    #expect(script.session.takeRequests().isEmpty)
    #expect(causes.errors.map { $0.code } == [.invalidParameters])
    #expect(causes.errors.first?.localizedDescription.contains(cause) == true, "\(causes.errors)")
    // The manager retains nothing of it: it may be changed.
    service.characteristics = []
    #expect(service.characteristics?.isEmpty == true)
  }
  enum Rule: CaseIterable {
    case cachedAndWritable, cachedAndNotified, broadcast, extended, tooLong, configuration, extendedProperties
    case serverConfiguration, description, format, report, foreign
    var tree: (CBCharacteristic, String) {
      func described(_ uuid: String, _ value: Any?) -> CBCharacteristic {
        let characteristic = CBMutableCharacteristic(
          type: measurement, properties: .read, value: nil, permissions: .readable)
        characteristic.descriptors = [CBMutableDescriptor(type: CBUUID(string: uuid), value: value)]
        return characteristic
      }
      func plain(
        _ properties: CBCharacteristicProperties, _ value: Data?, _ permissions: CBAttributePermissions = .readable
      ) -> CBCharacteristic {
        CBMutableCharacteristic(type: measurement, properties: properties, value: value, permissions: permissions)
      }
      return switch self {
      case .cachedAndWritable: (plain([.read, .write], Data([1]), [.readable, .writeable]), "only be read")
      case .cachedAndNotified: (plain([.read, .notify], Data([1])), "only be read")
      case .broadcast: (plain([.read, .broadcast], nil), "broadcast")
      case .extended: (plain([.read, .extendedProperties], nil), "extended properties")
      case .tooLong: (plain(.read, Data(count: 513)), "513 octets")
      case .configuration: (described("2902", NSNumber(value: 1)), "cannot be published")
      case .extendedProperties: (described("2900", Data([1, 0])), "cannot be published")
      case .serverConfiguration: (described("2903", Data([1, 0])), "cannot be published")
      case .report: (described("2908", "text"), "2908 is a Data")
      case .description: (described("2901", Data([0x41])), "2901 is a String")
      case .format: (described("2904", "text"), "2904 is a Data")
      case .foreign: (CBCharacteristic(uuid: measurement), "not a CBMutableCharacteristic")
      }
    }
  }

  @Test("Every descriptor but 2900, 2902 and 2903 is published: a HID report's reference, one of 128 bits")
  func descriptors() throws {
    let script = PeripheralScript(), service = CBMutableService(type: CBUUID(string: "1812"), primary: true)
    let report = CBMutableCharacteristic(
      type: CBUUID(string: "2A4D"), properties: [.read, .notify], value: nil, permissions: .readable)
    let types = ["2908", "2907", "2905", "2906", "290A", "0000BEEF-1212-EFDE-1523-785FEF13D123"]
    report.descriptors = types.map { CBMutableDescriptor(type: CBUUID(string: $0), value: Data([1, 1])) }
    service.characteristics = [report]
    script.manager.add(service)
    guard case .addService(_, let description) = script.session.takeRequests().first else {
      Issue.record("nothing was added")
      return
    }
    #expect(
      description.characteristics.first?.descriptors
        == types.map { .init(uuid: CBUUID(string: $0).uuid, value: Data([1, 1])) })
  }

  @Test("512 octets are the most that a cached value has, Vol 3, Part F, §3.2.9")
  func longestValue() throws {
    let script = PeripheralScript(), service = CBMutableService(type: heartRate, primary: true)
    service.characteristics = [
      CBMutableCharacteristic(type: measurement, properties: .read, value: Data(count: 512), permissions: .readable)
    ]
    try script.publish(service, at: 0x10)
  }

  @Test("Generic Access and Generic Attribute are the adapter's own", arguments: ["1800", "1801"])
  func reserved(uuid: String) {
    let script = PeripheralScript()
    script.manager.add(CBMutableService(type: CBUUID(string: uuid), primary: true))
    #expect(script.calls() == ["added \(uuid) CBError 8"])
  }

  @Test("S138, S140: included services are published first, and removed last; a service waits for one being published")
  func included() throws {
    let script = PeripheralScript()
    let battery = CBMutableService(type: CBUUID(string: "180F"), primary: false), service = heartRateService()
    service.includedServices = [battery]
    script.manager.add(service)
    #expect(script.calls() == ["added 180D CBError 1"])
    #expect(script.session.takeRequests().isEmpty)

    script.manager.add(battery)
    script.manager.add(service)
    guard case .addService(let first, _) = script.session.takeRequests().first else {
      Issue.record("nothing was added")
      return
    }
    #expect(script.session.takeRequests().isEmpty)
    script.deliver(.completed(first, .success(.published(PublishedService(handle: handle(0x40))))))
    #expect(script.calls() == ["added 180F ok"])
    guard case .addService(let second, let description) = script.session.takeRequests().first else {
      Issue.record("nothing was added")
      return
    }
    #expect(description.includes == [handle(0x40)])
    script.deliver(
      .completed(
        second,
        .success(
          .published(
            PublishedService(
              handle: handle(0x50),
              characteristics: [0x52, 0x55, 0x57].map { .init(value: handle($0)) })))))
    #expect(script.calls() == ["added 180D ok"])

    // S140: they are removed in the other order.
    script.manager.remove(battery)
    #expect(script.session.takeRequests().isEmpty)
    #expect(script.misuses().last?.contains("Heart Rate includes it") == true)
    script.manager.remove(service)
    script.manager.remove(battery)
    #expect(script.session.takeRequests() == [.removeService(handle(0x50)), .removeService(handle(0x40))])
  }
  @Test("a service whose included one could not be published fails too")
  func includedFails() throws {
    let script = PeripheralScript()
    let battery = CBMutableService(type: CBUUID(string: "180F"), primary: false), service = heartRateService()
    service.includedServices = [battery]
    script.manager.add(battery)
    script.manager.add(service)
    guard case .addService(let first, _) = script.session.takeRequests().first else {
      Issue.record("nothing was added")
      return
    }
    script.deliver(.completed(first, .failure(BluetoothError(.busy, "There is no room."))))
    #expect(script.calls() == ["added 180F CBError 4", "added 180D CBError 1"])
    #expect(script.session.takeRequests().isEmpty)
  }

  @Test("S139: two instances of a service are two; each is removed by itself, once")
  func duplicates() throws {
    let script = PeripheralScript(), first = heartRateService(), second = heartRateService()
    try script.publish(first, at: 0x10)
    try script.publish(second, at: 0x20)
    // The same instance a second time is none.
    script.manager.add(first)
    #expect(script.calls() == ["added 180D CBError 1"])
    script.manager.remove(second)
    #expect(script.session.takeRequests() == [.removeService(handle(0x20))])
    script.manager.remove(second)
    #expect(script.session.takeRequests().isEmpty)
    #expect(script.misuses().last?.contains("has not been added here") == true)
    try script.publish(second, at: 0x30)
    script.manager.removeAllServices()
    #expect(script.session.takeRequests() == [.removeAllServices])
    try script.publish(first, at: 0x40)
  }

  @Test("a service removed before it is published is never published")
  func removedEarly() throws {
    let script = PeripheralScript(), service = heartRateService()
    script.manager.add(service)
    script.manager.remove(service)
    guard case .addService(let id, _) = script.session.takeRequests().first else {
      Issue.record("nothing was added")
      return
    }
    // It may be added again at once; the first request is answered first.
    script.manager.add(service)
    script.deliver(
      .completed(
        id,
        .success(
          .published(
            PublishedService(
              handle: handle(0x10), characteristics: [0x12, 0x15, 0x17].map { .init(value: handle($0)) })))))
    #expect(script.calls() == ["added 180D CBError 5"])
    let requests = script.session.takeRequests()
    #expect(requests.first == .removeService(handle(0x10)))
    guard requests.count == 2, case .addService = requests[1] else {
      Issue.record("\(requests)")
      return
    }
  }

  @Test("a service belongs to one manager at a time")
  func twoManagers() throws {
    let first = PeripheralScript(), second = PeripheralScript(), service = heartRateService()
    try first.publish(service, at: 0x10)
    second.manager.add(service)
    #expect(second.calls() == ["added 180D CBError 1"])
    second.manager.remove(service)
    #expect(second.misuses().last?.contains("has not been added here") == true)
    first.releaseManager()
    try second.publish(service, at: 0x10)
  }

  @Test("a published service cannot be changed, but the value of a dynamic characteristic belongs to the program")
  func unchangeable() throws {
    let script = PeripheralScript(), service = heartRateService()
    try script.publish(service, at: 0x10)
    service.characteristics = []
    service.includedServices = []
    #expect(service.characteristics?.count == 3 && service.includedServices == nil)
    #expect(script.misuses(of: service).count == 2)
    let characteristics = try #require(service.characteristics as? [CBMutableCharacteristic])
    characteristics[1].value = Data([2])
    characteristics[1].permissions = .writeable
    characteristics[1].properties = .write
    characteristics[1].descriptors = []
    #expect(characteristics[1].value == Data([1]) && characteristics[1].permissions == .readable)
    #expect(characteristics[1].properties == .read && characteristics[1].descriptors == nil)
    #expect(script.misuses(of: characteristics[1]).count == 4)
    // Apple's example: `myCharacteristic.value = request.value`.
    characteristics[2].value = Data([7])
    #expect(characteristics[2].value == Data([7]))
    #expect(script.misuses(of: characteristics[2]).isEmpty)
    script.manager.remove(service)
    service.characteristics = []
    #expect(service.characteristics?.isEmpty == true)
  }

  @Test("below poweredOff the database is cleared; above it, it stays")
  func cleared() throws {
    let script = PeripheralScript(), service = heartRateService()
    try script.publish(service, at: 0x10)
    script.deliver(.adapter(.poweredOff("It is off.")))
    script.deliver(.adapter(.poweredOn))
    _ = script.calls()
    script.manager.add(service)
    #expect(script.calls() == ["added 180D CBError 1"])
    let waiting = CBMutableService(type: CBUUID(string: "180F"), primary: true)
    script.manager.add(waiting)
    script.deliver(.adapter(.resetting("The controller is being reset.")))
    #expect(script.calls() == ["state 1", "added 180F CBError 0"])
    script.deliver(.adapter(.poweredOn))
    try script.publish(service, at: 0x10)
    try script.publish(waiting, at: 0x20)
  }
}

/// A delegate with only the required method and the one for errors of services.
private final class Causes: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
  private let lock = NSLock()
  private var seen: [CBError] = []
  var errors: [CBError] { lock.withLock { seen } }
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {}
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    if let error = error as? CBError { lock.withLock { seen.append(error) } }
  }
}
extension CBCharacteristic {
  fileprivate func setForTest(_ descriptors: [CBDescriptor]) {
    (self as? CBMutableCharacteristic)?.descriptors = descriptors
  }
}
