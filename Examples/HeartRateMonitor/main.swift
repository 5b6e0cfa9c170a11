// The heart rate of the first sensor in reach:  swift run HeartRateMonitor hci0
import Bindrune
import BindruneWire
import BindruneGATT

let host = try await BluetoothHost.open(CommandLine.arguments.dropFirst().first ?? "hci0")
for try await advertisement in host.scan(services: ["180D"]) {
  // A name is whatever the device sends.
  let name = (advertisement.name ?? "?").unicodeScalars.map { $0.escaped(asASCII: true) }.joined()
  let link = try await host.connect(to: advertisement.peer)
  guard let characteristic = try await link.discover().characteristic("2A37") else {
    try await link.disconnect()
    continue
  }
  for try await value in link.notifications(of: characteristic) {
    let measurement = try WireDecoder.decode(HeartRateMeasurement.self, value.value.span)
    print("\(name): \(measurement.heartRate) beats per minute")
  }
}
