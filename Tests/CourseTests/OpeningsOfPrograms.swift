import Bindrune
import BindruneAdapters
import BindruneBroker
import CoreBluetooth

// Examples that need an adapter: the compiler checks them, and nothing calls them.

private func bindrune() async throws {
  // example Bindrune: Bindrune
  let host = try await BluetoothHost.open("hci0")
  for try await advertisement in host.scan(services: ["180D"]) {
    let link = try await host.connect(to: advertisement.peer)
    let database = try await link.discover()
    if let rate = database.characteristic("2A37") {
      for try await value in link.notifications(of: rate) { print(value.value) }
    }
  }
  // end
}

private func adapters() {
  // example BindruneAdapters: BindruneAdapters
  let survey = AdapterSurvey()
  for adapter in survey.adapters {
    print(adapter.name, adapter.bus ?? "?", adapter.product ?? "")
    if let obstacle = survey.obstacle(to: adapter.number) { print("  \(obstacle)") }
  }
  // end
}

private func broker() {
  // example BindruneBroker: BindruneBroker
  final class Reader: EventQueueReader {
    func eventsWait(in queue: EventQueue) {
      for case .discovered(let device)? in queue.takeAll() { print(device.peer) }
    }
    func eventsDropped(_ count: Int, from _: EventQueue) { print("this reader is late: \(count) events are lost") }
  }
  let reader = Reader(), events = EventQueue()
  events.reader = reader
  let session = DirectSession(adapter: "hci0", events: events)
  session.send(.scan(services: ["180D"], solicitedServices: [], allowsDuplicates: false))
  // end
  withExtendedLifetime(reader) { session.close() }
}

private func coreBluetooth() {
  // example CoreBluetooth: CoreBluetooth
  final class Finder: NSObject, CBCentralManagerDelegate {
    func centralManagerDidUpdateState(_ central: CBCentralManager) {
      if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) }
    }
    func centralManager(
      _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
      rssi: NSNumber
    ) {
      print(peripheral.name ?? "?", rssi)
    }
  }
  let finder = Finder()
  let manager = CBCentralManager(delegate: finder, queue: nil)
  RunLoop.main.run()
  // end
  withExtendedLifetime(manager) {}
}
