import BindruneATT
import BindruneCapture
import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # TraceNames
/// **Overview**: what a trace itself reveals about its numbers: which device is behind a connection handle, and which
/// characteristic or descriptor behind an attribute handle.
///
/// **Function**: it reads the events of connections and the answers of discovery. A device keeps its attributes for its
/// next connection; a private address is resolved with the keys that the reader has. Memory is bounded by
/// ``mostDevices`` and the number of handles.
public struct TraceNames: Sendable {
  public static var mostDevices: Int { 512 }
  /// A key and the name that the reader gives to its device.
  public struct Identity: Sendable {
    public var name: String
    let key: AES128
    /// `irk` is the Identity Resolving Key, most significant octet first.
    public init(name: String, irk: UInt128) {
      self.name = name
      key = AES128(key: irk)
    }
  }
  /// The side of a link that answers requests.
  public enum ServerSide: Hashable, Sendable { case host, peer, unknown }

  private struct Database: Sendable {
    var attributes: [UInt16: BluetoothUUID] = [:]
  }
  private struct Link: Sendable {
    var peer: String?
    /// Places in `databases`.
    var servers: [ServerSide: Int] = [:]
    /// The attribute type of the request in flight.
    var requested: [Asked: BluetoothUUID] = [:]
  }
  /// The side that answers, and the bearer.
  private struct Asked: Hashable, Sendable {
    var side: ServerSide
    var bearer: ChannelID?
  }
  private let identities: [Identity]
  private var links: [UInt64: Link] = [:]
  private var databases: [Database] = []
  /// Databases by the device that has them.
  private var known: [String: Int] = [:]

  public init(identities: [Identity] = []) { self.identities = identities }

  // MARK: Questions

  /// The name of the attribute that `handle` is about in a PDU of `frame`; nil: the trace does not say.
  public func uuid(of handle: AttributeHandle, in frame: TraceFrame, opcode: ATTOpcode) -> BluetoothUUID? {
    guard let link = links[key(frame.adapter, frame.connection)],
      let database = link.servers[server(of: frame, opcode)]
    else { return nil }
    return databases[database].attributes[handle.rawValue]
  }
  /// The device at the other end of a connection.
  public func peer(_ adapter: UInt16, _ connection: UInt32) -> String? { links[key(adapter, connection)]?.peer }
  /// The name for a resolvable private address, if a key resolves it. Vol 6, Part B, §1.3.2.3.
  public func name(of address: DeviceAddress, _ type: AddressType) -> String? {
    guard type == .random, address.randomKind == .resolvablePrivate else { return nil }
    let prand = UInt32(truncatingIfNeeded: address.value >> 24),
      hash = UInt32(truncatingIfNeeded: address.value & 0xFF_FFFF)
    return identities.first { ah($0.key, prand) == hash }?.name
  }

  private func key(_ adapter: UInt16, _ connection: UInt32) -> UInt64 { UInt64(adapter) << 32 | UInt64(connection) }

  /// The side whose attributes a PDU is about: requests, commands and confirmations go to it, the others come from it.
  private func server(of frame: TraceFrame, _ opcode: ATTOpcode) -> ServerSide {
    guard let direction = frame.direction else { return .unknown }
    let goesToServer: Bool
    switch opcode.kind {
    case .command, .request, .confirmation, nil: goesToServer = true
    case .response, .notification, .indication: goesToServer = false
    }
    return (direction == .fromHost) == goesToServer ? .peer : .host
  }

  // MARK: Learning

  /// A packet: a new connection names its device.
  public mutating func learn(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard record.content == .packet, let name = EventName(bytes),
      name == EventName(of: LEConnectionComplete.self) || name == EventName(of: LEEnhancedConnectionComplete.self)
    else { return }
    do throws(WireError) {
      switch try HCIEvent(bytes) {
      case .leConnectionComplete(let event) where event.status == .success:
        connected(record.adapter, event.connectionHandle, event.peerAddress, event.peerAddressType)
      case .leEnhancedConnectionComplete(let event) where event.status == .success:
        connected(record.adapter, event.connectionHandle, event.peerAddress, event.peerAddressType)
      default: break
      }
    } catch {}
  }
  private mutating func connected(
    _ adapter: UInt16, _ handle: ConnectionHandle, _ address: DeviceAddress, _ type: AddressType
  ) {
    let name = name(of: address, type) ?? address.text
    var link = Link(peer: name)
    if let database = known[name] { link.servers[.peer] = database }
    // Our own attributes do not depend on the peer.
    if let database = known["host \(adapter)"] { link.servers[.host] = database }
    links[key(adapter, UInt32(handle.rawValue))] = link
  }

  /// A frame of the Attribute Protocol: an answer of discovery names attributes.
  public mutating func learn(_ frame: TraceFrame, _ pdu: ATTPDU, in payload: Span<UInt8>) {
    let place = key(frame.adapter, frame.connection), side = server(of: frame, pdu.opcode)
    let asked = Asked(side: side, bearer: frame.bearer)
    guard links[place] != nil || links.count < Self.mostDevices else { return }
    switch pdu {
    case .readByTypeRequest(let request): links[place, default: Link()].requested[asked] = request.attributeType
    case .readByGroupTypeRequest(let request):
      links[place, default: Link()].requested[asked] = request.attributeGroupType
    case .findByTypeValueRequest(let request):
      let uuid: BluetoothUUID? =
        switch request.attributeValue.count {
        case 2: .short(payload.little16(Int(request.attributeValue.offset)))
        default: nil
        }
      links[place, default: Link()].requested[asked] = uuid
    case .readByGroupTypeResponse(let response):
      var cursor = response.attributeDataList.cursor
      while let entry = cursor.next(in: payload) {
        note(entry.attributeHandle, uuid(entry.attributeValue, payload), place, side)
      }
    case .findByTypeValueResponse(let response):
      guard let uuid = links[place]?.requested[asked] else { return }
      var cursor = response.handlesInformationList.cursor
      while let entry = cursor.next(in: payload) { note(entry.foundAttributeHandle, uuid, place, side) }
    case .readByTypeResponse(let response):
      guard let type = links[place]?.requested[asked] else { return }
      var cursor = response.attributeDataList.cursor
      while let entry = cursor.next(in: payload) {
        // A characteristic declaration: properties, value handle, UUID. Vol 3, Part G, §3.3.1.
        if type == .short(0x2803), entry.attributeValue.count >= 5 {
          let at = Int(entry.attributeValue.offset)
          note(entry.attributeHandle, type, place, side)
          note(
            AttributeHandle(rawValue: payload.little16(at + 1)),
            uuid(Octets(at + 3, Int(entry.attributeValue.count) - 3), payload), place, side)
        } else {
          note(entry.attributeHandle, type, place, side)
        }
      }
    case .findInformationResponse(let response):
      var cursor = response.informationData.cursor
      while let entry = cursor.next(in: payload) {
        // The declaration has said more about a value than its own type.
        note(entry.handle, entry.uuid, place, side)
      }
    default: break
    }
  }
  private func uuid(_ octets: Octets, _ payload: Span<UInt8>) -> BluetoothUUID? {
    switch octets.count {
    case 2: .short(payload.little16(Int(octets.offset)))
    case 16:
      octets.withBytes(in: payload) { bytes in
        var low: UInt64 = 0, high: UInt64 = 0
        for index in 0..<8 {
          low |= UInt64(bytes[index]) << (8 * index)
          high |= UInt64(bytes[index + 8]) << (8 * index)
        }
        return .long(low: low, high: high)
      }
    default: nil
    }
  }
  private mutating func note(_ handle: AttributeHandle, _ uuid: BluetoothUUID?, _ place: UInt64, _ side: ServerSide) {
    guard let uuid else { return }
    var link = links[place] ?? Link()
    let database: Int
    if let found = link.servers[side] {
      database = found
    } else {
      guard databases.count < Self.mostDevices else { return }
      database = databases.count
      databases.append(Database())
      link.servers[side] = database
      let owner: String? =
        switch side {
        case .host: "host \(place >> 32)"
        case .peer: link.peer
        case .unknown: nil
        }
      if let owner { known[owner] = database }
      links[place] = link
    }
    databases[database].attributes[handle.rawValue] = uuid
  }
}
