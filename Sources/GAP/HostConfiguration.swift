import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneSMP

/// The properties of a host. The driver provides identity and randomness.
public struct HostConfiguration: Sendable {
  /// The ATT_MTU that we offer: 23 … 517.
  public var preferredMTU = Bearer.largestMTU
  /// Exchange the MTU without being asked to: as Central when a link comes up, as Peripheral before the client's first
  /// request. A replay does it when the recorded host did: the length of a list or a value depends on it.
  package var exchangesMTU = true
  /// Octets of outgoing notifications and commands that may wait on one link: at least one value of the greatest
  /// length, or 16 short ones. Small, so that a value leaves soon after it was accepted: producers wait at their ports.
  /// Set it to more for a program that notifies several long values in one call. Decision 0046.
  public var queueCapacity = 528
  /// The random static address for a controller without a public one. The driver makes it with a good generator and
  /// keeps it: its two most significant bits are 1 (Vol 6, Part B, §1.3.2.1).
  public var randomStaticAddress = DeviceAddress(0xC000_0000_0001)
  /// Which of our addresses is on the air.
  public var addressPolicy = AddressPolicy.identity
  /// Advertise, scan and connect with the extended commands if the controller has all of them; else, or when this is
  /// off, with the legacy ones. They must not be mixed (Vol 4, Part E, §3.1.1). Extended commands send and hear legacy
  /// PDUs too: turn them off for a controller that implements them incorrectly.
  public var prefersExtendedCommands = true
  /// How to answer peers that ask for other connection parameters.
  public var parameterPolicy = ParameterPolicy.accept
  /// What pairings offer and demand, unless `HostCore.pair` says otherwise. Our identity is added by the core.
  /// By default with signature keys, for signed writes.
  public var pairing: PairingSettings = {
    var settings = PairingSettings()
    settings.distributes.insert(.signKey)
    settings.requests.insert(.signKey)
    return settings
  }()
  /// Pair when a Peripheral asks for security, or when a server refuses a request of our client for lack of it. With a
  /// bond the host encrypts instead.
  public var pairsOnDemand = true
  /// Believe a link to a bonded peer only when it is encrypted, in either role: until then GATT's client sends no
  /// request and no command, signed writes excepted, and drops values; a failure of the encryption ends the link, with
  /// its reason. As Central, encrypt the link when it comes up; as Peripheral, ask the Central to when the client has
  /// something to send. Off: encrypt only on demand, and talk to any device that has the peer's address. Decision 0059.
  public var encryptsBondedLinks = true
  /// One more forgets the longest unused of those without authentication. If all have it, a bond without is not made,
  /// and one with it forgets the longest unused of all. Decision 0060.
  public var maximumBonds = 128
  /// After several failures with any peers, peers that begin to pair are answered with Repeated Attempts for a while,
  /// because an attacker may change its address. Off: each peer waits for its own failures only. Vol 3, Part H, §2.3.6.
  public var limitsPairings = true
  /// Enhanced bearers of ATT that a link may have, 0 … 5: with them several requests are answered at once. If there may
  /// be any, the Central opens them on a link that has been encrypted, and either side accepts the peer's. The database
  /// should say so (`DatabaseBuilder.genericAttribute(serverFeatures:)`): many clients look there first.
  public var enhancedBearers = 0
  public init() {}

  /// Of every bearer.
  var bearer: BearerConfiguration {
    var bearer = BearerConfiguration()
    bearer.preferredMTU = preferredMTU
    bearer.queueCapacity = queueCapacity
    return bearer
  }
}
