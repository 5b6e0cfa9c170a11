/// A way in which two correct hosts may differ, which a replay therefore does not count as a divergence.
public enum ReplayFreedom: String, Sendable, CaseIterable {
  case connectionBefore = "connection before the trace"
  case subscriptionBefore = "subscription before the trace"
  case keysBefore = "keys before the trace"
  case database = "database that the trace does not show"
  case servicesChanged = "services changed by the application"
  case serviceChangedTime = "time of Service Changed"
  case applicationValue = "value set by the application"
  case entries = "fewer entries than fit"
  case errorHandle = "handle of an error about none"
  case optionalRequest = "optional request refused"
  case uuidForm = "short UUID in its 128-bit form"
  case discovery = "discovery strategy"
  case mtuExchange = "time of the MTU exchange"
  case noCall = "request without a call of our client"
  case order = "order of PDUs"
  case parameters = "parameters chosen by policy"
  case keyDistribution = "key distribution"
  case ownAddress = "own address"
  case randomValues = "random values and keys"
  case pairingComputed = "pairing that depends on random values"
  case pairingNotCompared = "pairing before the trace"
  case refusal = "refusal by the user"
  case channelRefusal = "refusal of a channel"
  case channels = "credit-based channels"
  case bondRemoved = "bond removed by the user"
  case repeatedDisconnect = "repeated HCI_Disconnect"
  case deadBearer = "bearer dead after a time-out"
  case endOfLink = "end of the link"

  /// What the freedom permits, in a sentence.
  public var meaning: String {
    switch self {
    case .connectionBefore: "The trace begins on this link: our host was given a connection of the same role."
    case .subscriptionBefore:
      "The host sends values to which no client subscribed in the trace: our host was subscribed."
    case .keysBefore: "The trace does not show the pairing: our host was given the key that the recorded host used."
    case .database: "The trace shows values without their declarations: our host was given a characteristic for them."
    case .applicationValue:
      "The recorded server returned another value than the one last read or written: our application set that value."
    case .servicesChanged:
      "A search finds services that an earlier one did not find, or no longer finds them: our application changed them."
    case .entries:
      "The recorded server's list ends earlier than ours; the client asks for the rest."
    case .errorHandle:
      "One of the two names no handle, 0x0000, in Unlikely Error or Insufficient Resources, the other that of the request."
    case .optionalRequest:
      "The recorded server supports fewer requests, or reads no part of a value that is not long: both are optional."
    case .discovery: "Our client asks further or other questions to discover the same attributes."
    case .mtuExchange:
      """
      Our client exchanges the MTU first, the recorded one later or never: the exchange took place where it was \
      recorded, so that lists and values have the recorded lengths.
      """
    case .uuidForm: "The recorded host writes a UUID of 16 bits in its form of 128 bits, which is the same UUID."
    case .noCall: "Our client sends no such request, or not alone; the peer's answer was kept from it."
    case .order: "PDUs that do not depend on each other leave in another order."
    case .serviceChangedTime:
      "Service Changed was indicated on the same link at another time, such as before the encryption."
    case .keyDistribution:
      "Which keys a host offers, asks for or sends, such as the link key of BR/EDR, or any without a bond."
    case .parameters: "Values that a host chooses: MTU, pairing features, connection parameters."
    case .ownAddress: "The trace does not show the host's address, which the pairing contains."
    case .randomValues: "Both hosts draw their own random numbers and keys: only code and length were compared."
    case .pairingComputed:
      "The peer's values depend on the host's random numbers: they were computed again for those of our host."
    case .pairingNotCompared: "The trace begins in the middle of this pairing, which was not compared."
    case .refusal: "The recorded host's user refused a pairing: so did ours."
    case .channelRefusal:
      "The recorded host rejects requests for channels, which it does not support: ours refuses for lack of a service."
    case .channels:
      "Credit-based channels are an application's, enhanced bearers of ATT too: our host has none, and nothing was compared."
    case .bondRemoved:
      "The recorded host behaves as one that has no bond any more, without a contrary sign: ours was removed."
    case .repeatedDisconnect: "The recorded host repeats HCI_Disconnect while the link still ends."
    case .deadBearer:
      """
      A transaction had no end within 30 s, so the bearer is dead (Vol 3, Part F, §3.3.3): ours ends the link, and what \
      comes after it on the link was not compared.
      """
    case .endOfLink: "The link ended before the recorded host sent what ours had ready."
    }
  }
}
