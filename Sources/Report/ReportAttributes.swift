import BindruneATT
import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

/// # ReportAttributes
/// **Overview**: the attributes of each server that a trace shows, as its clients discover them, and where the values
/// of each stand in the packets.
///
/// **Function**: it reads the answers of discovery and every PDU that carries a value. A server is the host of an
/// adapter, or a peer; a peer keeps its attributes for its next connection. The page forms the tree: declarations
/// precede what they declare. Memory is bounded by ``mostServers`` and the number of handles.
struct ReportAttributes {
  static var mostServers: Int { 512 }
  /// How a value travels. The page has the same list.
  enum Way: Int { case read, part, write, command, notification, indication, signed, prepared }
  struct Attribute {
    var type: BluetoothUUID?
    /// A service declaration: its last handle. A characteristic declaration: the handle of the value.
    var other: UInt16 = 0
    var properties: UInt8 = 0
    /// A declaration's: of the service or characteristic.
    var uuid: BluetoothUUID?
    /// Record, first octet, count, ``Way``, for each value.
    var values: [Int] = []
  }
  struct Server {
    var owner: String
    var isHost: Bool
    var link: Int
    var attributes: [UInt16: Attribute] = [:]
  }
  private(set) var servers: [Server] = []
  private var places: [String: Int] = [:]
  /// Where a request is in flight: one a bearer and side.
  private struct Asked: Hashable { var link: Int, isHost: Bool, bearer: ChannelID? }
  /// The attribute type, or the handle, that it asks for.
  private var types: [Asked: BluetoothUUID] = [:]
  private var handles: [Asked: UInt16] = [:]

  /// Learns from a PDU. `offset`: where `payload` begins in the record's octets; nil: the record is not shown.
  mutating func learn(
    _ frame: TraceFrame, _ pdu: ATTPDU, in payload: Span<UInt8>, link: Int, peer: String, record: Int, offset: Int?
  ) {
    // A link-layer capture does not tell the sides apart: both are one.
    let isFromHost = frame.direction == .fromHost
    let goesToServer: Bool
    switch pdu.opcode.kind {
    case .command, .request, .confirmation, nil: goesToServer = true
    case .response, .notification, .indication: goesToServer = false
    }
    let isHost = frame.direction != nil && isFromHost != goesToServer
    let asked = Asked(link: link, isHost: isHost, bearer: frame.bearer)
    func server() -> Int? {
      let owner = isHost ? "host \(frame.adapter)" : peer.isEmpty ? "link \(link)" : "\(frame.adapter) \(peer)"
      if let place = places[owner] { return place }
      guard servers.count < Self.mostServers else { return nil }
      servers.append(Server(owner: isHost ? "" : peer, isHost: isHost, link: link))
      places[owner] = servers.count - 1
      return servers.count - 1
    }
    func note(_ handle: AttributeHandle, _ change: (inout Attribute) -> Void) {
      guard let server = server() else { return }
      change(&servers[server].attributes[handle.rawValue, default: Attribute()])
    }
    func value(_ handle: UInt16?, _ octets: Octets, _ way: Way) {
      guard let handle, let offset else { return }
      note(AttributeHandle(rawValue: handle)) {
        $0.values += [record, offset + Int(octets.offset), Int(octets.count), way.rawValue]
      }
    }
    func value(_ handle: AttributeHandle, _ octets: Octets, _ way: Way) { value(handle.rawValue, octets, way) }
    switch pdu {
    case .readByTypeRequest(let request): types[asked] = request.attributeType
    case .readByGroupTypeRequest(let request): types[asked] = request.attributeGroupType
    case .findByTypeValueRequest(let request):
      types[asked] = request.attributeType.rawValue == 0x2800 ? uuid(request.attributeValue, payload) : nil
    case .readRequest(let request): handles[asked] = request.attributeHandle.rawValue
    case .readBlobRequest(let request): handles[asked] = request.attributeHandle.rawValue
    case .readByGroupTypeResponse(let response):
      var cursor = response.attributeDataList.cursor
      while let entry = cursor.next(in: payload) {
        note(entry.attributeHandle) {
          $0.type = types[asked] ?? .short(0x2800)
          $0.other = entry.endGroupHandle.rawValue
          $0.uuid = uuid(entry.attributeValue, payload)
        }
      }
    case .findByTypeValueResponse(let response):
      guard let service = types[asked] else { return }
      var cursor = response.handlesInformationList.cursor
      while let entry = cursor.next(in: payload) {
        note(entry.foundAttributeHandle) {
          $0.type = .short(0x2800)
          $0.other = entry.groupEndHandle.rawValue
          $0.uuid = service
        }
      }
    case .readByTypeResponse(let response):
      guard let type = types[asked] else { return }
      var cursor = response.attributeDataList.cursor
      while let entry = cursor.next(in: payload) {
        let at = Int(entry.attributeValue.offset), count = Int(entry.attributeValue.count)
        note(entry.attributeHandle) { $0.type = type }
        // A characteristic declaration: properties, value handle, UUID. Vol 3, Part G, §3.3.1.
        if type == .short(0x2803), count >= 5 {
          let handle = UInt16(payload[at + 1]) | UInt16(payload[at + 2]) << 8
          let uuid = uuid(Octets(at + 3, count - 3), payload)
          note(entry.attributeHandle) {
            $0.properties = payload[at]
            $0.other = handle
            $0.uuid = uuid
          }
          note(AttributeHandle(rawValue: handle)) { $0.type = uuid ?? $0.type }
        } else if type == .short(0x2802), count >= 4 {
          note(entry.attributeHandle) { $0.uuid = count == 6 ? uuid(Octets(at + 4, 2), payload) : nil }
        } else {
          value(entry.attributeHandle, entry.attributeValue, .read)
        }
      }
    case .findInformationResponse(let response):
      var cursor = response.informationData.cursor
      while let entry = cursor.next(in: payload) { note(entry.handle) { $0.type = $0.type ?? entry.uuid } }
    case .readResponse(let response): value(handles.removeValue(forKey: asked), response.attributeValue, .read)
    case .readBlobResponse(let response): value(handles.removeValue(forKey: asked), response.partAttributeValue, .part)
    case .errorResponse: handles[asked] = nil
    case .writeRequest(let request): value(request.attributeHandle, request.attributeValue, .write)
    case .writeCommand(let command): value(command.attributeHandle, command.attributeValue, .command)
    case .signedWriteCommand(let command): value(command.attributeHandle, command.attributeValue, .signed)
    case .prepareWriteRequest(let request): value(request.attributeHandle, request.partAttributeValue, .prepared)
    case .handleValueNotification(let pdu): value(pdu.attributeHandle, pdu.attributeValue, .notification)
    case .handleValueIndication(let pdu): value(pdu.attributeHandle, pdu.attributeValue, .indication)
    case .multipleHandleValueNotification(let pdu):
      var cursor = pdu.handleLengthValueTupleList.cursor
      while let entry = cursor.next(in: payload) { value(entry.attributeHandle, entry.attributeValue, .notification) }
    default: break
    }
  }

  private func uuid(_ octets: Octets, _ payload: Span<UInt8>) -> BluetoothUUID? {
    let at = Int(octets.offset)
    func number(_ from: Int, _ count: Int) -> UInt64 {
      (0..<count).reduce(0) { $0 | UInt64(payload[from + $1]) << UInt64(8 * $1) }
    }
    switch octets.count {
    case 2: return .short(UInt16(number(at, 2)))
    case 16: return .long(low: number(at, 8), high: number(at + 8, 8))
    default: return nil
    }
  }

  /// Each server: owner, the tree's attributes in the order of their handles, and their values.
  /// `first`: the first record that is shown.
  func write(into json: inout ReportJSON, _ strings: inout ReportStrings, first: Int) {
    json.list("servers") { json in
      for server in servers where !server.attributes.isEmpty {
        json.object { json in
          json.add("owner", strings.place(server.owner))
          json.add("host", server.isHost ? 1 : 0)
          json.add("link", server.link)
          json.list("attributes") { json in
            for (handle, attribute) in server.attributes.sorted(by: { $0.key < $1.key }) {
              json.list { json in
                json.add(nil, Int(handle))
                json.add(nil, attribute.type.map { strings.place("\($0)") } ?? 0)
                json.add(nil, strings.place(attribute.type?.assignedName ?? ""))
                json.add(nil, attribute.uuid.map { strings.place("\($0)") } ?? 0)
                json.add(nil, strings.place(attribute.uuid?.assignedName ?? ""))
                json.add(nil, Int(attribute.other))
                json.add(nil, strings.place(Self.properties(attribute.properties)))
                json.add(nil, attribute.values.indices.lazy.map { attribute.values[$0] - ($0 % 4 == 0 ? first : 0) })
              }
            }
          }
        }
      }
    }
  }
  /// Vol 3, Part G, §3.3.1.1.
  private static func properties(_ bits: UInt8) -> String {
    let names = [
      "broadcast", "read", "write without response", "write", "notify", "indicate", "signed write", "extended",
    ]
    return names.indices.filter { bits >> UInt8($0) & 1 == 1 }.map { names[$0] }.joined(separator: ", ")
  }
}
