import BindruneWire
import BindruneHCI

// What AirMonitor tells about devices, connections, values and controllers. Times are nanoseconds since the first
// record.

/// Numbers, gathered for each of the last ``length`` seconds.
public struct SecondSeries: Sendable {
  public static var length: Int { 60 }
  private struct Sample {
    var second: Int, sum: Int, count: Int
  }
  /// The seconds in which there was something, the latest last.
  private var samples: [Sample] = []

  mutating func add(_ value: Int, at second: Int) {
    if let last = samples.last, last.second == second {
      samples[samples.count - 1].sum += value
      samples[samples.count - 1].count += 1
      return
    }
    if samples.count == Self.length { samples.removeFirst() }
    samples.append(Sample(second: second, sum: value, count: 1))
  }
  /// How many numbers a second has; seconds count from 0.
  public func count(at second: Int) -> Int { samples.last { $0.second == second }?.count ?? 0 }
  /// Their mean; nil: there was none.
  public func mean(at second: Int) -> Int? {
    samples.last { $0.second == second }.map { Int((Double($0.sum) / Double($0.count)).rounded()) }
  }
}

/// What ``AirMonitor`` counts.
public enum AirLayer: String, CaseIterable, Sendable {
  /// HCI packets from the host and from the controller, by their type.
  case command, event
  case dataSent = "acl_sent", dataReceived = "acl_received"
  /// Advertising reports: an event has one or more. In a link-layer capture the advertising PDUs.
  case advertising
  /// L2CAP frames, and those on the three channels that every LE link has.
  case l2cap, signaling = "sig", att, smp
  /// Packets of a link-layer capture.
  case linkLayer = "ll"
}

/// A device that advertises.
public struct AirDevice: Sendable {
  public let address: DeviceAddress
  public let type: AddressType
  /// Its number in the order of discovery, from 1.
  public let place: Int
  /// As the device sent it: it may hold control characters.
  public internal(set) var name: String?
  /// Of the last report, in dBm; nil: not known.
  public internal(set) var rssi: Int?
  /// The RSSI of each second, in dBm.
  public internal(set) var strengths = SecondSeries()
  public internal(set) var reports = 0
  public internal(set) var lastHeard: Int64 = 0
  var hasCompleteName = false
}

/// A connection. A field that is nil is not known.
public struct AirLink: Sendable {
  public let adapter: UInt16
  /// The connection handle; in a link-layer capture the access address.
  public let connection: UInt32
  public internal(set) var isLE: Bool?
  public internal(set) var peer: DeviceAddress?
  public internal(set) var peerType: AddressType?
  /// The host's.
  public internal(set) var role: LinkRole?
  public internal(set) var interval: ConnectionInterval?
  /// Connection events that the Peripheral may sleep through.
  public internal(set) var latency: UInt16?
  public internal(set) var supervisionTimeout: SupervisionTimeout?
  /// ATT_MTU, in octets.
  public internal(set) var mtu: Int?
  public internal(set) var txPHY: PHY?
  public internal(set) var rxPHY: PHY?
  /// The longest payload of a link-layer packet, in octets.
  public internal(set) var maxTXOctets: Int?
  public internal(set) var maxRXOctets: Int?
  public internal(set) var isEncrypted: Bool?
  /// ACL packets that the host has sent and the controller has not completed: they wait in its buffers. nil: the trace
  /// lacks the link's beginning, or directions.
  public var inController: Int? { countsWaiting ? waiting : nil }
  var waiting = 0, countsWaiting = false
  /// ACL packets; of a link-layer capture, L2CAP frames, all as received.
  public internal(set) var sent = 0
  public internal(set) var received = 0
  public internal(set) var packets = SecondSeries()
  /// The trace shows its beginning.
  public internal(set) var isFromStart = false
  public internal(set) var opened: Int64 = 0
  /// When it ended; nil: it exists.
  public internal(set) var ended: Int64?
  public internal(set) var reason: HCIStatus?
  /// The credit-based channels that the trace shows the beginning of, also those that have ended.
  public var channels: [ChannelStatistics] { book.channels }
  var book = ChannelBook()
  /// The MTU of a request without an answer: the peer's, the host's.
  var requestedMTU: [Int?] = [nil, nil]

  init(adapter: UInt16, connection: UInt32) {
    self.adapter = adapter
    self.connection = connection
  }
}

/// The last value of an attribute that the trace shows.
public struct AirValue: Sendable {
  public enum Cause: String, Sendable {
    case read, written, notified, indicated
  }
  public let adapter: UInt16
  public let connection: UInt32
  public let side: TraceNames.ServerSide
  public let handle: UInt16
  /// What the attribute is, if the trace shows its discovery.
  public internal(set) var uuid: BluetoothUUID?
  /// At most ``AirMonitor/mostOctets`` of its octets.
  public internal(set) var octets: [UInt8] = []
  /// All its octets.
  public internal(set) var length = 0
  public internal(set) var cause = Cause.read
  /// How often it has been sent.
  public internal(set) var count = 0
  public internal(set) var time: Int64 = 0
}

/// A controller, and how much the host may send to it now. A field that is nil is not known.
public struct AirAdapter: Sendable {
  public let number: UInt16
  /// Commands that the host may send. Vol 4, Part E, §4.4.
  public internal(set) var commandCredits: Int?
  /// Buffers for ACL packets of LE links; where LE shares those of BR/EDR, their number. Vol 4, Part E, §4.1.1.
  public var buffers: Int? { sharesBuffers ? buffersClassic : buffersLE }
  /// Those that hold a packet. nil also if the trace lacks directions, or the beginning of a link.
  public internal(set) var used: Int?
  var buffersLE: Int?, buffersClassic: Int?
  var sharesBuffers: Bool { buffersLE == 0 || buffersLE == nil }
  /// Every ACL packet so far had a direction.
  var knowsDirections = true

  init(_ number: UInt16) { self.number = number }
}

/// Something that changed.
public struct AirChange: Sendable {
  public enum LinkField: Sendable {
    case parameters, mtu, phy, dataLength, encryption
  }
  public enum Kind: Sendable {
    /// A device was heard for the first time, or its name.
    case device(AirDevice)
    case opened(AirLink)
    case changed(AirLink, LinkField)
    case ended(AirLink)
    /// A credit-based channel of the link has opened, or has closed.
    case channel(AirLink, ChannelStatistics)
    /// A value is new, or another one than before.
    case value(AirValue)
  }
  public var time: Int64
  public var kind: Kind
}
