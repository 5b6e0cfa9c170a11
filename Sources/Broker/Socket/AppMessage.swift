import BindruneControl
import BindruneTransport
import BindruneWire
import NIOCore

/// What an app writes to the daemon, each message once: its number, and its fields in their order. A number is used
/// once, in both directions; 1 was JSON, 5 … 7 are `DaemonFrameKind`. Decision 0066.
enum AppMessage: DeclaredMessage, Equatable, Sendable {
  enum Number: UInt8, CaseIterable, Sendable {
    case hello = 8
    case close, value, sdu, sdusTaken, closeChannel
    case scan = 16
    case stopScan, connect, cancelConnection, readRSSI, discoverServices, discoverIncludedServices
    case discoverCharacteristics, discoverDescriptors, read, write, setNotifying, openChannel
    case addService = 32
    case removeService, removeAllServices, setValue, respond, reject, startAdvertising, stopAdvertising
    case setDesiredLatency, publishChannel, unpublishChannel
  }
  /// The first of every connection.
  case hello(Hello)
  /// The app has released the manager. Without it the end of the connection counts as the end of the process.
  case close
  /// Through a port that the daemon has announced, within its credit.
  case value(port: UInt32, AttributeHandle, ByteBuffer)
  /// To the channel's peer, within the credit that the daemon has granted.
  case sdu(channel: UInt32, ByteBuffer)
  /// The app has done with this many SDUs of the peer.
  case sdusTaken(channel: UInt32, UInt32)
  /// The app has done with the channel, and sends nothing more on it. Not `dropping`: what it has sent leaves first.
  case closeChannel(UInt32, dropping: Bool)
  case request(BrokerRequest)

  struct Hello: Equatable, Sendable {
    var versions = MessageVersions.ofThisProgram
    var manifest: AppManifest
    var manager: ManagerIdentity?
    /// Names the adapter; nil: the daemon's first.
    var adapter: String?
    /// The process was connected before, and has learnt that the adapter is resetting: nothing is restored.
    var isReconnecting = false
  }

  static func empty(_ number: Number) -> AppMessage {
    switch number {
    case .hello: .hello(Hello(manifest: .empty))
    case .close: .close
    case .value: .value(port: 0, .empty, ByteBuffer())
    case .sdu: .sdu(channel: 0, ByteBuffer())
    case .sdusTaken: .sdusTaken(channel: 0, 0)
    case .closeChannel: .closeChannel(0, dropping: false)
    case .scan: .request(.central(.scan(services: [], solicitedServices: [], allowsDuplicates: false)))
    case .stopScan: .request(.central(.stopScan))
    case .connect: .request(.central(.connect(.empty, .empty)))
    case .cancelConnection: .request(.central(.cancelConnection(.empty)))
    case .readRSSI: .request(.central(.readRSSI(.empty, .empty)))
    case .discoverServices: .request(.central(.discoverServices(.empty, .empty, nil)))
    case .discoverIncludedServices: .request(.central(.discoverIncludedServices(.empty, .empty, .empty, nil)))
    case .discoverCharacteristics: .request(.central(.discoverCharacteristics(.empty, .empty, .empty, nil)))
    case .discoverDescriptors: .request(.central(.discoverDescriptors(.empty, .empty, .empty)))
    case .read: .request(.central(.read(.empty, .empty, .empty)))
    case .write: .request(.central(.write(.empty, .empty, .empty, .empty)))
    case .setNotifying: .request(.central(.setNotifying(.empty, .empty, .empty, false)))
    case .openChannel: .request(.central(.openChannel(.empty, .empty, psm: 0)))
    case .addService: .request(.peripheral(.addService(.empty, .empty)))
    case .removeService: .request(.peripheral(.removeService(.empty)))
    case .removeAllServices: .request(.peripheral(.removeAllServices))
    case .setValue: .request(.peripheral(.setValue(.empty, .empty)))
    case .respond: .request(.peripheral(.respond(.empty, central: .empty, nil)))
    case .reject: .request(.peripheral(.reject(.empty, central: .empty, .empty)))
    case .startAdvertising: .request(.peripheral(.startAdvertising(.empty, localName: nil, services: [])))
    case .stopAdvertising: .request(.peripheral(.stopAdvertising))
    case .setDesiredLatency: .request(.peripheral(.setDesiredLatency(.empty, .empty)))
    case .publishChannel: .request(.peripheral(.publishChannel(.empty, isEncrypted: false)))
    case .unpublishChannel: .request(.peripheral(.unpublishChannel(.empty, psm: 0)))
    }
  }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    switch self {
    case .hello(var hello):
      visitor.begin(Number.hello.rawValue)
      // Every version begins so.
      try visitor.field("Lowest Version", &hello.versions.lowest)
      try visitor.field("Highest Version", &hello.versions.highest)
      try visitor.field("Manifest", &hello.manifest)
      try visitor.field("Manager", &hello.manager)
      try visitor.field("Adapter", &hello.adapter)
      try visitor.field("Reconnecting", &hello.isReconnecting)
      self = .hello(hello)
    case .close: visitor.begin(Number.close.rawValue)
    case .value(port: var port, var handle, var value):
      visitor.begin(Number.value.rawValue)
      try visitor.field("Port", &port)
      try visitor.field("Handle", &handle)
      try visitor.field("Value", &value)
      self = .value(port: port, handle, value)
    case .sdu(channel: var channel, var sdu):
      visitor.begin(Number.sdu.rawValue)
      try visitor.field("Channel", &channel)
      try visitor.field("SDU", &sdu)
      self = .sdu(channel: channel, sdu)
    case .sdusTaken(channel: var channel, var count):
      visitor.begin(Number.sdusTaken.rawValue)
      try visitor.field("Channel", &channel)
      try visitor.field("SDUs", &count)
      self = .sdusTaken(channel: channel, count)
    case .closeChannel(var channel, dropping: var isDropping):
      visitor.begin(Number.closeChannel.rawValue)
      try visitor.field("Channel", &channel)
      try visitor.field("Dropping", &isDropping)
      self = .closeChannel(channel, dropping: isDropping)
    case .request(
      .central(.scan(services: var services, solicitedServices: var solicited, allowsDuplicates: var duplicates))):
      visitor.begin(Number.scan.rawValue)
      try visitor.field("Services", &services)
      try visitor.field("Solicited Services", &solicited)
      try visitor.field("Allows Duplicates", &duplicates)
      self = .request(.central(.scan(services: services, solicitedServices: solicited, allowsDuplicates: duplicates)))
    case .request(.central(.stopScan)):
      visitor.begin(Number.stopScan.rawValue)
    case .request(.central(.connect(var peer, var options))):
      visitor.begin(Number.connect.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Options", &options)
      self = .request(.central(.connect(peer, options)))
    case .request(.central(.cancelConnection(var peer))):
      visitor.begin(Number.cancelConnection.rawValue)
      try visitor.field("Peer", &peer)
      self = .request(.central(.cancelConnection(peer)))
    case .request(.central(.readRSSI(var id, var peer))):
      visitor.begin(Number.readRSSI.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      self = .request(.central(.readRSSI(id, peer)))
    case .request(.central(.discoverServices(var id, var peer, var uuids))):
      visitor.begin(Number.discoverServices.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("UUIDs", &uuids)
      self = .request(.central(.discoverServices(id, peer, uuids)))
    case .request(.central(.discoverIncludedServices(var id, var peer, var handle, var uuids))):
      visitor.begin(Number.discoverIncludedServices.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("Service", &handle)
      try visitor.field("UUIDs", &uuids)
      self = .request(.central(.discoverIncludedServices(id, peer, handle, uuids)))
    case .request(.central(.discoverCharacteristics(var id, var peer, var handle, var uuids))):
      visitor.begin(Number.discoverCharacteristics.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("Service", &handle)
      try visitor.field("UUIDs", &uuids)
      self = .request(.central(.discoverCharacteristics(id, peer, handle, uuids)))
    case .request(.central(.discoverDescriptors(var id, var peer, var handle))):
      visitor.begin(Number.discoverDescriptors.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("Characteristic", &handle)
      self = .request(.central(.discoverDescriptors(id, peer, handle)))
    case .request(.central(.read(var id, var peer, var handle))):
      visitor.begin(Number.read.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("Handle", &handle)
      self = .request(.central(.read(id, peer, handle)))
    case .request(.central(.write(var id, var peer, var handle, var value))):
      visitor.begin(Number.write.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("Handle", &handle)
      try visitor.field("Value", &value)
      self = .request(.central(.write(id, peer, handle, value)))
    case .request(.central(.setNotifying(var id, var peer, var handle, var isOn))):
      visitor.begin(Number.setNotifying.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("Handle", &handle)
      try visitor.field("Notifying", &isOn)
      self = .request(.central(.setNotifying(id, peer, handle, isOn)))
    case .request(.central(.openChannel(var id, var peer, psm: var psm))):
      visitor.begin(Number.openChannel.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Peer", &peer)
      try visitor.field("PSM", &psm)
      self = .request(.central(.openChannel(id, peer, psm: psm)))
    case .request(.peripheral(.addService(var id, var description))):
      visitor.begin(Number.addService.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Service", &description)
      self = .request(.peripheral(.addService(id, description)))
    case .request(.peripheral(.removeService(var handle))):
      visitor.begin(Number.removeService.rawValue)
      try visitor.field("Service", &handle)
      self = .request(.peripheral(.removeService(handle)))
    case .request(.peripheral(.removeAllServices)):
      visitor.begin(Number.removeAllServices.rawValue)
    case .request(.peripheral(.setValue(var handle, var value))):
      visitor.begin(Number.setValue.rawValue)
      try visitor.field("Handle", &handle)
      try visitor.field("Value", &value)
      self = .request(.peripheral(.setValue(handle, value)))
    case .request(.peripheral(.respond(var request, central: var central, var value))):
      visitor.begin(Number.respond.rawValue)
      try visitor.field("Request", &request)
      try visitor.field("Central", &central)
      try visitor.field("Value", &value)
      self = .request(.peripheral(.respond(request, central: central, value)))
    case .request(.peripheral(.reject(var request, central: var central, var error))):
      visitor.begin(Number.reject.rawValue)
      try visitor.field("Request", &request)
      try visitor.field("Central", &central)
      try visitor.field("ATT Error", &error)
      self = .request(.peripheral(.reject(request, central: central, error)))
    case .request(.peripheral(.startAdvertising(var id, localName: var name, services: var services))):
      visitor.begin(Number.startAdvertising.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Local Name", &name)
      try visitor.field("Services", &services)
      self = .request(.peripheral(.startAdvertising(id, localName: name, services: services)))
    case .request(.peripheral(.stopAdvertising)):
      visitor.begin(Number.stopAdvertising.rawValue)
    case .request(.peripheral(.setDesiredLatency(var peer, var latency))):
      visitor.begin(Number.setDesiredLatency.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Latency", &latency)
      self = .request(.peripheral(.setDesiredLatency(peer, latency)))
    case .request(.peripheral(.publishChannel(var id, isEncrypted: var isEncrypted))):
      visitor.begin(Number.publishChannel.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Encrypted", &isEncrypted)
      self = .request(.peripheral(.publishChannel(id, isEncrypted: isEncrypted)))
    case .request(.peripheral(.unpublishChannel(var id, psm: var psm))):
      visitor.begin(Number.unpublishChannel.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("PSM", &psm)
      self = .request(.peripheral(.unpublishChannel(id, psm: psm)))
    }
  }
}
