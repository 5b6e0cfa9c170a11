import BindruneATT
import Bindrune
import BindruneWire
import BindruneGAP
import BindruneGATT

/// The sensor of `serve`, `demo` and the transport `sim`: Heart Rate Service 1.0, Battery Service, Device Information.
struct HeartRateSensor {
  let database: Database
  let measurement: AttributeHandle
  let battery: AttributeHandle
  let controlPoint: AttributeHandle

  init(name: String, serverFeatures: [UInt8]? = nil) {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: name, appearance: 0x0341)  // Heart Rate Belt: Assigned Numbers, §2.6
    builder.genericAttribute(serverFeatures: serverFeatures)
    (measurement, controlPoint) = builder.service("180D") { service in
      let measurement = service.characteristic("2A37", .notify)
      service.characteristic("2A38", .read, value: [1])  // chest
      let controlPoint = service.characteristic("2A39", .write, value: .dynamic)
      return (measurement.value, controlPoint.value)
    }
    battery = builder.service("180F") { $0.characteristic("2A19", [.read, .notify], value: [87]).value }
    builder.service("180A") { service in
      service.characteristic("2A29", .read, value: .text("Bindrune"))
      service.characteristic("2A24", .read, value: .text("Virtual Heart Rate Belt"))
    }
    do { database = try builder.build() } catch { preconditionFailure("the sensor's own database: \(error)") }
  }

  func advertisingData(name: String) -> AdvertisingData {
    AdvertisingData(localName: name, serviceUUIDs: ["180D", "180F"])
  }

  /// Heart Rate Measurement with an 8-bit value. The rate at rest, which varies slightly each second.
  static func measurement(_ count: Int) -> [UInt8] { [0x00, UInt8(62 + (count * 7 + count * count) % 11)] }

  /// A notified value as a line. Heart Rate Service, §3.1.
  static func text(_ measurement: [UInt8]) -> String {
    "Heart Rate Measurement " + (BluetoothUUID("2A37").text(of: measurement.span) ?? "that cannot be decoded")
  }

  /// Advertises as `name`, answers the clients of `host` and notifies once a `period`, until cancelled or the host
  /// fails. Calls `begun` when clients can connect.
  func run(
    on host: BluetoothHost, name: String, period: Duration, begun: @Sendable () async -> Void = {},
    _ report: @escaping @Sendable (String) -> Void = { _ in }
  ) async throws {
    let events = await host.events  // before it advertises: a client may connect at once
    try await host.advertise(advertisingData(name: name))
    await begun()
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        for try await event in events {
          switch event {
          case .connected(let link): report("connected: \(link.peer)")
          case .disconnected(_, let reason): report("disconnected: \(reason)")
          case .subscriptionChanged(_, let handle, let configuration):
            report("attribute \(handle.text): \(configuration.isEmpty ? "unsubscribed" : "subscribed")")
          case .written(_, let handle, let value, _):
            report("attribute \(handle.text) written: \(hexText(value, separator: " "))")
          case .writeRequested(let request):
            // Heart Rate Service, §3.3: 1 resets the energy expended; else 0x80, Control Point Not Supported.
            if request.value == [1] {
              try? await request.accept()
            } else {
              try? await request.reject(ATTError(rawValue: 0x80))
            }
            report("attribute \(request.handle.text) written: \(hexText(request.value, separator: " "))")
          case .readRequested(let request): try? await request.reject(.readNotPermitted)
          case .advertisingStopped(_, let end): try end.check()
          case .requestUnanswered: break
          }
        }
      }
      group.addTask {
        var count = 0
        while true {
          try await Task.sleep(for: period)
          await host.notify(Self.measurement(count), of: measurement)
          count += 1
        }
      }
      try await group.next()
      group.cancelAll()
    }
  }
}
