import BindruneGATT
import Glibc

/// The state of what an adapter serves and advertises for its sessions, and of its clients. `BrokerCore+Peripheral` and
/// `BrokerCore+Advertising` have the behaviour.
struct Serving {
  /// The database that the host serves, or that the next host begins with.
  var database = Database.ofAdapter
  /// By the handles of their declarations.
  var services: [AttributeHandle: Service] = [:]
  /// By the handles of their values.
  private(set) var values: [AttributeHandle: Value] = [:]
  /// The clients, one for each link, in either role of the link layer.
  var clients: [LinkID: Client] = [:]
  /// The requests that wait for their sessions: one at most for each link. Vol 3, Part F, §3.3.2.
  var requests: [ServerRequest: Waiting] = [:]
  /// Pending requests for other connection parameters.
  var updates: [RequestID: LinkID] = [:]
  /// What sessions advertise, or will when their apps' lives allow it.
  var advertising: [SessionID: Advertising] = [:]
  /// In the order of their requests.
  var advertisers: [SessionID] = []
  /// What the host advertises at the session's request.
  var sets: [AdvertisingSetID: AdvertisedSet] = [:]
  /// The controller's number of sets.
  var mostSets = 1
  private var lastRequest: UInt64 = 0
  private var lastSet: UInt32 = 0

  struct Service {
    let session: SessionID
    let description: ServiceDescription
    let published: PublishedService
    let last: AttributeHandle
    /// False: the life of its session's app forbids access to its contents.
    var isEnabled = true
    func contains(_ handle: AttributeHandle) -> Bool {
      published.handle.rawValue...last.rawValue ~= handle.rawValue
    }
  }
  struct Value {
    let session: SessionID
    let properties: CharacteristicProperties
  }
  struct Client {
    let peer: UUID
    /// Value handles, in the order in which the client has subscribed.
    var subscriptions: [AttributeHandle] = []
    /// The sessions that know of the client.
    var sessions: [SessionID] = []
    /// The one of its requests that waits for a session.
    var request: ServerRequest?
    /// The latest wish that came while another one was pending.
    var latency: ConnectionLatency?
  }
  struct Waiting {
    let session: SessionID
    let link: LinkID
    let request: ServerRequestID
    let isRead: Bool
  }
  struct Advertising {
    let data: AdvertisingData
    /// Nil: it is not on the air.
    var set: AdvertisingSetID?
    /// To be completed when the controller advertises.
    var operation: OperationID?
  }
  struct AdvertisedSet: Equatable {
    let sources: [AdvertisingPacker.Source]
    let parameters: AdvertisingParameters
  }

  // MARK: Services

  mutating func add(_ published: PublishedService, _ description: ServiceDescription, of session: SessionID) {
    let last = published.handle.rawValue + UInt16(description.handleCount - 1)
    services[published.handle] = Service(
      session: session, description: description, published: published, last: AttributeHandle(rawValue: last))
    for (characteristic, description) in zip(published.characteristics, description.characteristics) {
      values[characteristic.value] = Value(session: session, properties: description.properties)
    }
  }
  mutating func remove(_ service: AttributeHandle) -> Service? {
    guard let removed = services.removeValue(forKey: service) else { return nil }
    for characteristic in removed.published.characteristics { values[characteristic.value] = nil }
    return removed
  }
  /// In the order of their handles.
  func services(of session: SessionID) -> [AttributeHandle] {
    services.filter { $0.value.session == session }.keys.sorted { $0.rawValue < $1.rawValue }
  }
  /// The database begins anew: what was published is gone.
  mutating func forgetServices() {
    database = .ofAdapter
    services = [:]
    values = [:]
  }

  /// All links have ended.
  mutating func forgetClients() {
    clients = [:]
    requests = [:]
    updates = [:]
  }

  // MARK: Numbers

  mutating func newRequest() -> ServerRequest {
    lastRequest += 1
    return ServerRequest(rawValue: lastRequest)
  }
  /// A new number each time, so that late events of an earlier set are ignored.
  mutating func newSet() -> AdvertisingSetID {
    lastSet &+= 1
    return AdvertisingSetID(rawValue: lastSet)
  }
}

extension Database {
  /// The adapter's own services, before a session has published any.
  static var ofAdapter: Database {
    var builder = DatabaseBuilder()
    // Appearance: generic computer. Assigned Numbers, §2.6.
    builder.genericAccess(name: machineName, appearance: 0x0080)
    builder.genericAttribute()
    // Both services are complete, so building them cannot fail.
    return (try? builder.build()) ?? Database()
  }
  /// At most 248 octets: Vol 3, Part C, §12.1.
  private static var machineName: String {
    let octets = unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 249) { name in
      guard let start = name.baseAddress, unsafe gethostname(start, name.count) == 0 else { return [UInt8]() }
      return unsafe name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
    }
    return octets.isEmpty ? "Linux" : String(decoding: octets, as: UTF8.self)
  }
}
