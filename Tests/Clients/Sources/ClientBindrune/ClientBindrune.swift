import Bindrune
import Foundation
import OtherNames

// `import Bindrune` brings only names of its own interface: unqualified names here are Foundation's, the standard
// library's, or the other module's.

struct Reading: Codable, Equatable {
  var id: UUID
  var time: Date
  var octets: Data

  init(_ octets: Data) {
    (id, time, self.octets) = (UUID(), Date(), octets)
  }
  enum CodingKeys: CodingKey { case id, time, octets }
  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    id = try container.decode(UUID.self, forKey: .id)
    time = try container.decode(Date.self, forKey: .time)
    octets = try container.decode(Data.self, forKey: .octets)
  }
  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(id, forKey: .id)
    try container.encode(time, forKey: .time)
    try container.encode(octets, forKey: .octets)
  }
}

struct Names {
  var host = Host(), list = List(), layout = Layout(), measure = Measure(), describer = Describer()
  var client = Client(), server = Server(), read = ReadRequest(), write = WriteRequest()
  var disconnect = Disconnect(), reset = Reset(), world = World(), machine = Machine(), adapter = Adapter()
}

/// One import brings everything that a central and a peripheral need.
func readings(of uuid: BluetoothUUID, from peer: PeerID, _ host: BluetoothHost) async throws -> [Reading] {
  try await host.withLink(to: peer, .balanced, timeout: .seconds(10)) { link in
    let database: RemoteDatabase = try await link.discover()
    guard let characteristic: RemoteCharacteristic = database.characteristic(uuid) else { return [] }
    var readings: [Reading] = []
    for try await value in link.notifications(of: characteristic) {
      readings.append(Reading(Data(value.value)))
      if readings.count == 10 { break }
    }
    return readings
  }
}
func serve(_ spec: String) async throws -> BluetoothError {
  var builder = DatabaseBuilder()
  builder.genericAccess(name: "Client")
  let handle: AttributeHandle = builder.service("180F") {
    $0.characteristic("2A19", [.read, .notify], value: [100]).value
  }
  let host = try await BluetoothHost.open(spec, database: try builder.build())
  try await host.advertise(
    AdvertisingData(localName: "Client", serviceUUIDs: ["180F"]), AdvertisingParameters(interval: .fast))
  for try await event in await host.events {
    switch event {
    case .connected(let link):
      await link.setAuthorized(true)
      let parameters = ConnectionParameters(
        interval: ConnectionInterval(.milliseconds(50)), supervisionTimeout: SupervisionTimeout(.seconds(4)))
      try await link.updateParameters(parameters)
      return await link.closed
    case .readRequested(let request): try await request.respond(JSONEncoder().encode(["level": 1]).map { $0 })
    case .writeRequested(let request): try await request.reject(.writeNotPermitted)
    case .subscriptionChanged(_, let changed, _): if changed == handle { await host.notify([99], of: handle) }
    case .disconnected(_, let reason): return .linkWentDown(reason)
    case .written, .requestUnanswered, .advertisingStopped: break
    @unknown default: break
    }
  }
  throw CancellationError()
}

/// The controller that this program takes, or why there is none, as values.
func open() async throws -> BluetoothHost? {
  do {
    let adapter: BluetoothAdapter = try BluetoothHost.firstUsableAdapter()
    return try await BluetoothHost.open(adapter.name)
  } catch let error as AdapterError {
    if case .noCapability = error { return nil }
    throw error
  } catch let error as BluetoothError {
    if case .adapter(.taken)? = error.transportError { return nil }
    throw error
  }
}
