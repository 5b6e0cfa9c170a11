import BindruneTransport
import BindruneWire
import NIOCore

/// What the daemon writes to an app, as `AppMessage` is what the app writes. An answer of each kind is a message.
enum DaemonMessage: DeclaredMessage, Sendable {
  enum Number: UInt8, CaseIterable, Sendable {
    case welcome = 64
    case refused, port, portEnded, credit, sdu, sdusAccepted, channelEnded
    case adapter = 72
    case restored, discovered, scanFailed, connected, connectionFailed, disconnected, nameChanged, longestWriteChanged
    case servicesChanged, values, readyToWrite, linkedPeers
    case subscribed, unsubscribed, longestUpdateChanged, readRequested, writeRequested, requestEnded, readyToUpdate
    case advertisingEnded, channelAccepted
    case failed = 112
    case done, rssi, value, notifying, services, includedServices, characteristics, descriptors, published, channel
    case psm
  }
  /// The version that both sides have, and that both write from now on.
  case welcome(version: UInt16)
  /// One sentence with the cause and the remedy. The connection ends.
  case refused(String)
  /// Before the event that gives the app a use for it. `credit`: octets that the daemon takes, with `costOfValue` for
  /// each value.
  case port(UInt32, SendPort.Kind, peer: UUID, longest: Int, credit: Int)
  case portEnded(UInt32)
  /// `octets`: that the daemon takes in addition.
  case credit(port: UInt32, octets: UInt32)
  /// Of the channel's peer. `AppMessage.sdusTaken` returns its credits.
  case sdu(channel: UInt32, ByteBuffer)
  /// The daemon takes this many octets in addition, of SDUs on the channel.
  case sdusAccepted(channel: UInt32, octets: UInt32)
  /// Nothing more comes of the channel, and nothing is to be sent on it. The error nil: either side has closed it.
  case channelEnded(UInt32, BluetoothError?)
  /// The answer `BrokerAnswer.channel`.
  case channel(OperationID, ChannelDescription)
  /// The event `BrokerEvent.channelAccepted`.
  case channelAccepted(ChannelDescription, central: UUID, longestUpdate: Int)
  /// None with a channel, which goes as `channel` or as `channelAccepted`.
  case event(BrokerEvent)

  static func empty(_ number: Number) -> DaemonMessage {
    switch number {
    case .welcome: .welcome(version: 0)
    case .refused: .refused("")
    case .port: .port(0, .empty, peer: .empty, longest: 0, credit: 0)
    case .portEnded: .portEnded(0)
    case .credit: .credit(port: 0, octets: 0)
    case .sdu: .sdu(channel: 0, ByteBuffer())
    case .sdusAccepted: .sdusAccepted(channel: 0, octets: 0)
    case .channelEnded: .channelEnded(0, nil)
    case .adapter: .event(.adapter(.empty))
    case .restored: .event(.restored(.empty))
    case .discovered: .event(.discovered(.empty))
    case .scanFailed: .event(.scanFailed(.empty))
    case .connected: .event(.connected(.empty, name: nil, longestWrite: 0))
    case .connectionFailed: .event(.connectionFailed(.empty, .empty))
    case .disconnected: .event(.disconnected(.empty, nil, isReconnecting: false, seconds: 0))
    case .nameChanged: .event(.nameChanged(.empty, nil))
    case .longestWriteChanged: .event(.longestWriteChanged(.empty, 0))
    case .servicesChanged: .event(.servicesChanged(.empty, .empty))
    case .values: .event(.values(.empty, .empty, .empty))
    case .readyToWrite: .event(.readyToWrite(.empty))
    case .linkedPeers: .event(.linkedPeers([]))
    case .subscribed: .event(.subscribed(.empty, .empty, longestUpdate: 0))
    case .unsubscribed: .event(.unsubscribed(.empty, .empty))
    case .longestUpdateChanged: .event(.longestUpdateChanged(.empty, 0))
    case .readRequested: .event(.readRequested(.empty, central: .empty, .empty, offset: 0, longestUpdate: 0))
    case .writeRequested: .event(.writeRequested(.empty, central: .empty, [], longestUpdate: 0))
    case .requestEnded: .event(.requestEnded(.empty))
    case .readyToUpdate: .event(.readyToUpdate(.empty))
    case .advertisingEnded: .event(.advertisingEnded(.empty))
    case .channelAccepted: .channelAccepted(.empty, central: .empty, longestUpdate: 0)
    case .failed: .event(.completed(.empty, .failure(.empty)))
    case .done: .event(.completed(.empty, .success(.done)))
    case .rssi: .event(.completed(.empty, .success(.rssi(nil))))
    case .value: .event(.completed(.empty, .success(.value(.empty))))
    case .notifying: .event(.completed(.empty, .success(.notifying(false))))
    case .services: .event(.completed(.empty, .success(.services([]))))
    case .includedServices: .event(.completed(.empty, .success(.includedServices([]))))
    case .characteristics: .event(.completed(.empty, .success(.characteristics([]))))
    case .descriptors: .event(.completed(.empty, .success(.descriptors([]))))
    case .published: .event(.completed(.empty, .success(.published(.empty))))
    case .channel: .channel(.empty, .empty)
    case .psm: .event(.completed(.empty, .success(.psm(0))))
    }
  }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    switch self {
    case .welcome(version: var version):
      visitor.begin(Number.welcome.rawValue)
      try visitor.field("Version", &version)
      self = .welcome(version: version)
    // The same in every version.
    case .refused(var why):
      visitor.begin(Number.refused.rawValue)
      try visitor.field("Sentence", &why)
      self = .refused(why)
    case .port(var number, var kind, peer: var peer, longest: var longest, credit: var credit):
      visitor.begin(Number.port.rawValue)
      try visitor.field("Port", &number)
      try visitor.field("Kind", &kind)
      try visitor.field("Peer", &peer)
      try visitor.field("Longest Value", &longest)
      try visitor.field("Credit", &credit)
      self = .port(number, kind, peer: peer, longest: longest, credit: credit)
    case .portEnded(var number):
      visitor.begin(Number.portEnded.rawValue)
      try visitor.field("Port", &number)
      self = .portEnded(number)
    case .credit(port: var number, octets: var octets):
      visitor.begin(Number.credit.rawValue)
      try visitor.field("Port", &number)
      try visitor.field("Octets", &octets)
      self = .credit(port: number, octets: octets)
    case .sdu(channel: var number, var sdu):
      visitor.begin(Number.sdu.rawValue)
      try visitor.field("Channel", &number)
      try visitor.field("SDU", &sdu)
      self = .sdu(channel: number, sdu)
    case .sdusAccepted(channel: var number, octets: var octets):
      visitor.begin(Number.sdusAccepted.rawValue)
      try visitor.field("Channel", &number)
      try visitor.field("Octets", &octets)
      self = .sdusAccepted(channel: number, octets: octets)
    case .channelEnded(var number, var error):
      visitor.begin(Number.channelEnded.rawValue)
      try visitor.field("Channel", &number)
      try visitor.field("Error", &error)
      self = .channelEnded(number, error)
    case .channel(var id, var channel):
      visitor.begin(Number.channel.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Channel", &channel)
      self = .channel(id, channel)
    case .channelAccepted(var channel, central: var central, longestUpdate: var longest):
      visitor.begin(Number.channelAccepted.rawValue)
      try visitor.field("Channel", &channel)
      try visitor.field("Central", &central)
      try visitor.field("Longest Update", &longest)
      self = .channelAccepted(channel, central: central, longestUpdate: longest)
    case .event(.adapter(var state)):
      visitor.begin(Number.adapter.rawValue)
      try visitor.field("State", &state)
      self = .event(.adapter(state))
    case .event(.restored(var state)):
      visitor.begin(Number.restored.rawValue)
      try visitor.field("State", &state)
      self = .event(.restored(state))
    case .event(.discovered(var device)):
      visitor.begin(Number.discovered.rawValue)
      try visitor.field("Device", &device)
      self = .event(.discovered(device))
    case .event(.scanFailed(var error)):
      visitor.begin(Number.scanFailed.rawValue)
      try visitor.field("Error", &error)
      self = .event(.scanFailed(error))
    case .event(.connected(var peer, name: var name, longestWrite: var longest)):
      visitor.begin(Number.connected.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Name", &name)
      try visitor.field("Longest Write", &longest)
      self = .event(.connected(peer, name: name, longestWrite: longest))
    case .event(.connectionFailed(var peer, var error)):
      visitor.begin(Number.connectionFailed.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Error", &error)
      self = .event(.connectionFailed(peer, error))
    case .event(.disconnected(var peer, var error, isReconnecting: var isReconnecting, seconds: var seconds)):
      visitor.begin(Number.disconnected.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Error", &error)
      try visitor.field("Reconnecting", &isReconnecting)
      try visitor.field("Seconds", &seconds)
      self = .event(.disconnected(peer, error, isReconnecting: isReconnecting, seconds: seconds))
    case .event(.nameChanged(var peer, var name)):
      visitor.begin(Number.nameChanged.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Name", &name)
      self = .event(.nameChanged(peer, name))
    case .event(.longestWriteChanged(var peer, var longest)):
      visitor.begin(Number.longestWriteChanged.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Longest Write", &longest)
      self = .event(.longestWriteChanged(peer, longest))
    case .event(.servicesChanged(var peer, var range)):
      visitor.begin(Number.servicesChanged.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Handles", &range)
      self = .event(.servicesChanged(peer, range))
    case .event(.values(var peer, var handle, var values)):
      visitor.begin(Number.values.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Handle", &handle)
      try visitor.field("Values", &values)
      self = .event(.values(peer, handle, values))
    case .event(.readyToWrite(var peer)):
      visitor.begin(Number.readyToWrite.rawValue)
      try visitor.field("Peer", &peer)
      self = .event(.readyToWrite(peer))
    case .event(.linkedPeers(var peers)):
      visitor.begin(Number.linkedPeers.rawValue)
      try visitor.field("Peers", &peers)
      self = .event(.linkedPeers(peers))
    case .event(.subscribed(var peer, var handle, longestUpdate: var longest)):
      visitor.begin(Number.subscribed.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Handle", &handle)
      try visitor.field("Longest Update", &longest)
      self = .event(.subscribed(peer, handle, longestUpdate: longest))
    case .event(.unsubscribed(var peer, var handle)):
      visitor.begin(Number.unsubscribed.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Handle", &handle)
      self = .event(.unsubscribed(peer, handle))
    case .event(.longestUpdateChanged(var peer, var longest)):
      visitor.begin(Number.longestUpdateChanged.rawValue)
      try visitor.field("Peer", &peer)
      try visitor.field("Longest Update", &longest)
      self = .event(.longestUpdateChanged(peer, longest))
    case .event(
      .readRequested(var request, central: var central, var handle, offset: var offset, longestUpdate: var longest)):
      visitor.begin(Number.readRequested.rawValue)
      try visitor.field("Request", &request)
      try visitor.field("Central", &central)
      try visitor.field("Handle", &handle)
      try visitor.field("Offset", &offset)
      try visitor.field("Longest Update", &longest)
      self = .event(.readRequested(request, central: central, handle, offset: offset, longestUpdate: longest))
    case .event(.writeRequested(var request, central: var central, var writes, longestUpdate: var longest)):
      visitor.begin(Number.writeRequested.rawValue)
      try visitor.field("Request", &request)
      try visitor.field("Central", &central)
      try visitor.field("Writes", &writes)
      try visitor.field("Longest Update", &longest)
      self = .event(.writeRequested(request, central: central, writes, longestUpdate: longest))
    case .event(.requestEnded(var request)):
      visitor.begin(Number.requestEnded.rawValue)
      try visitor.field("Request", &request)
      self = .event(.requestEnded(request))
    case .event(.readyToUpdate(var peer)):
      visitor.begin(Number.readyToUpdate.rawValue)
      try visitor.field("Peer", &peer)
      self = .event(.readyToUpdate(peer))
    case .event(.advertisingEnded(var error)):
      visitor.begin(Number.advertisingEnded.rawValue)
      try visitor.field("Error", &error)
      self = .event(.advertisingEnded(error))
    case .event(.completed(var id, .failure(var error))):
      visitor.begin(Number.failed.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Error", &error)
      self = .event(.completed(id, .failure(error)))
    case .event(.completed(var id, .success(.done))):
      visitor.begin(Number.done.rawValue)
      try visitor.field("Operation", &id)
      self = .event(.completed(id, .success(.done)))
    case .event(.completed(var id, .success(.rssi(var rssi)))):
      visitor.begin(Number.rssi.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("RSSI", &rssi)
      self = .event(.completed(id, .success(.rssi(rssi))))
    case .event(.completed(var id, .success(.value(var value)))):
      visitor.begin(Number.value.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Value", &value)
      self = .event(.completed(id, .success(.value(value))))
    case .event(.completed(var id, .success(.notifying(var isOn)))):
      visitor.begin(Number.notifying.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Notifying", &isOn)
      self = .event(.completed(id, .success(.notifying(isOn))))
    case .event(.completed(var id, .success(.services(var services)))):
      visitor.begin(Number.services.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Services", &services)
      self = .event(.completed(id, .success(.services(services))))
    case .event(.completed(var id, .success(.includedServices(var services)))):
      visitor.begin(Number.includedServices.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Services", &services)
      self = .event(.completed(id, .success(.includedServices(services))))
    case .event(.completed(var id, .success(.characteristics(var characteristics)))):
      visitor.begin(Number.characteristics.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Characteristics", &characteristics)
      self = .event(.completed(id, .success(.characteristics(characteristics))))
    case .event(.completed(var id, .success(.descriptors(var descriptors)))):
      visitor.begin(Number.descriptors.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Descriptors", &descriptors)
      self = .event(.completed(id, .success(.descriptors(descriptors))))
    case .event(.completed(var id, .success(.published(var service)))):
      visitor.begin(Number.published.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("Service", &service)
      self = .event(.completed(id, .success(.published(service))))
    case .event(.completed(var id, .success(.psm(var psm)))):
      visitor.begin(Number.psm.rawValue)
      try visitor.field("Operation", &id)
      try visitor.field("PSM", &psm)
      self = .event(.completed(id, .success(.psm(psm))))
    case .event(.completed(_, .success(.channel))), .event(.channelAccepted):
      throw FrameError("a channel without its number")
    }
  }
}

/// A channel of L2CAP, as the daemon announces it.
struct ChannelDescription: MessageRecord, Equatable, Sendable {
  /// Names it in later messages. It only grows.
  var number: UInt32
  var psm: UInt16
  /// The longest SDUs of the peer, and of the app.
  var mtu: UInt16
  var longestSDU: UInt16
  /// Octets of SDUs that the daemon takes, with `Frame.costOfSDU` for each.
  var credit: UInt32

  static var empty: ChannelDescription { ChannelDescription(number: 0, psm: 0, mtu: 0, longestSDU: 0, credit: 0) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Number", &number)
    try visitor.field("PSM", &psm)
    try visitor.field("MTU", &mtu)
    try visitor.field("Longest SDU", &longestSDU)
    try visitor.field("Credit", &credit)
  }
}
