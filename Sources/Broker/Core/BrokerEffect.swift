import Logging

/// Identifies a session of a broker. No number is used twice in a process.
struct SessionID: Hashable, Sendable {
  var rawValue: Int
}

/// Identifies a port: one for each session, direction and peer, by the identifier that the session uses for the peer.
struct PortName: Hashable, Sendable {
  var session: SessionID
  var kind: SendPort.Kind
  var peer: UUID
}

/// What the driver of a `BrokerCore` does, in this order.
enum BrokerEffect: Sendable {
  /// Open the controller and start a host that serves this database; `.opened` answers.
  case open(Database)
  /// Close the host; `.closed` answers.
  case close
  /// There are no more sessions, and no host.
  case retire
  case host(HostCommand)
  /// A time of day in the event is zero: the driver has the clock.
  case deliver(SessionID, BrokerEvent)
  case lendPort(PortName, on: LinkID)
  case takePort(PortName)
  /// All that the session has.
  case takePorts(SessionID)
  /// The session gets the channel.
  case lendChannel(ArrivedChannel, SessionID, ChannelUse)
  /// Nobody does, and it closes.
  case dropChannel(ArrivedChannel)
  /// Those of the session with this peer.
  case endChannels(SessionID, UUID)
  /// The session's app does not run, or runs again: its events wait, or are offered.
  case hold(SessionID, Bool)
  /// An event is reason enough to run the app, which is suspended or terminated. The text names the event.
  case wake(AppID, String)
  case alert(AppID, AppAlert)
  case log(Logger.Level, String)
}

/// Commands of the core to its host. The core chooses all numbers, and uses none twice.
enum HostCommand: Sendable {
  /// `.completed` answers. `isPlaced`: it leaves after the values that the session offered before the request that is
  /// being carried out.
  case begin(RequestID, HostOperation, isPlaced: Bool)
  case cancel(RequestID)
  case beginScan(ScanID, ScanParameters, ScanFilter)
  case endScan(ScanID)
  case advertise(AdvertisingSetID, [AdvertisingPacker.Source], AdvertisingParameters)
  case stopAdvertising(AdvertisingSetID)
  case insert(DatabaseBuilder)
  /// With the Include declarations that name it.
  case remove(service: AttributeHandle)
  case setValue(AttributeHandle, Data)
  /// The contents of the service answer, or every access to them fails.
  case setEnabled(Bool, service: AttributeHandle)
  /// To a client's request, after the values that the session offered before.
  case answer(ServerRequestID, LinkID, ServerAnswer)
  /// Accept channels to a PSM that the host chooses; `.listening` answers.
  case listen(RequestID, isEncrypted: Bool)
  case stopListening(psm: UInt16)
}

enum ServerAnswer: Equatable, Sendable {
  /// The value from the request's offset on.
  case value(Data)
  case written
  case rejected(ATTError, about: AttributeHandle? = nil)
}

/// The events of the host of a `BrokerCore`: a `HostEvent` without the host.
enum BrokerHostEvent: Sendable {
  /// The answer to `.open`: the host runs, and its controller advertises this many sets at once.
  case opened(advertisingSets: Int)
  /// The other answer to `.open`.
  case openingFailed(OpeningFailure)
  /// The answer to `.close`.
  case closed
  /// The host has ended by itself.
  case failed(BluetoothError)

  case linkUp(LinkID, PeerID, LinkRole, mtu: Int)
  case linkDown(LinkID, HCIStatus)
  case mtuChanged(LinkID, Int)
  case peerIdentified(LinkID, PeerAddress)
  /// The link could not be encrypted with the key of the bond.
  case encryptionFailed(LinkID, HCIStatus)
  /// The core adds the device's name, and the identifier that the session uses for it.
  case discovered(ScanID, PeerID, DiscoveredPeer)
  case scanFailed(ScanID, BluetoothError)
  case completed(RequestID, Result<HostAnswer, BluetoothError>)
  /// With the remaining database.
  case servicesChanged(LinkID, HandleRange, RemoteDatabase)
  case rediscovered(LinkID, RemoteDatabase)

  case advertisingStarted(AdvertisingSetID)
  /// Advertising did not begin, or ended without being stopped.
  case advertisingEnded(AdvertisingSetID, BluetoothError)
  case subscriptionChanged(LinkID, AttributeHandle, ClientCharacteristicConfiguration)
  /// Without a response.
  case written(LinkID, ServerWrite)
  case readRequested(ServerRequestID, LinkID, AttributeHandle, offset: Int)
  case writeRequested(ServerRequestID, LinkID, [ServerWrite])
  /// No answer within 25 s.
  case requestUnanswered(LinkID)
  /// The PSM that the host has chosen.
  case listening(RequestID, Result<UInt16, BluetoothError>)
  /// A peer has opened a channel.
  case channelAccepted(ArrivedChannel, psm: UInt16, LinkID)
}

/// The result of a command that was begun.
enum HostAnswer: Sendable {
  case done
  case linked(PeerID)
  case rssi(Int8?)
  case value([UInt8])
  /// Everything that is known of the link's server.
  case database(RemoteDatabase)
  case channel(ArrivedChannel)
}
