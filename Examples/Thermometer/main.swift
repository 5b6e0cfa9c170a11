// A thermometer that notifies each second:  swift run Thermometer hci0
import Bindrune

var builder = DatabaseBuilder()
builder.genericAccess(name: "Thermometer")
let temperature = builder.service("181A") { $0.characteristic("2A6E", [.read, .notify], value: [0xD0, 0x07]).value }

let host = try await BluetoothHost.open(
  CommandLine.arguments.dropFirst().first ?? "hci0", database: try builder.build())
try await host.advertise(AdvertisingData(localName: "Thermometer", serviceUUIDs: ["181A"]))
while true {
  let centidegrees = Int16.random(in: 1950...2050)  // little-endian, hundredths of a degree Celsius
  let value = [UInt8(truncatingIfNeeded: centidegrees), UInt8(truncatingIfNeeded: centidegrees >> 8)]
  await host.setValue(value, of: temperature)
  await host.notify(value, of: temperature)
  try await Task.sleep(for: .seconds(1))
}
