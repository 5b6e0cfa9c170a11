import BindruneTrace
import BindruneWire
import BindruneHCI
import BindruneSMP

/// # ReportPairings
/// **Overview**: each pairing of a trace as a story: who proposes what, which method follows, which keys are exchanged,
/// and what somebody could know who listened.
///
/// **Function**: the method follows from the features by the tables of Vol 3, Part H, §2.3.5.1. What a listener could
/// know is the Specification's own statement about the method; the trace is not attacked.
struct ReportPairings {
  struct Story {
    var link: Int
    var steps: [(record: Int, isFromInitiator: Bool?, text: String)] = []
    var request: PairingFeatures?
    var response: PairingFeatures?
    var keys: [(record: Int, isFromInitiator: Bool, text: String)] = []
    var failure = ""
    var isEncrypted = false
    var isSecure: Bool { request?.authReq.contains(.sc) == true && response?.authReq.contains(.sc) == true }
    var method: PairingMethod? {
      guard let request, let response else { return nil }
      return MethodTable.method(request: request, response: response)
    }
  }
  private(set) var list: [Story] = []
  private var current: [Int: Int] = [:]

  /// Steps of one pairing; a peer that repeats itself adds no more.
  private static var mostSteps: Int { 200 }

  private mutating func story(_ link: Int, isNew: Bool = false) -> Int {
    if let place = current[link], !isNew { return place }
    list.append(Story(link: link))
    current[link] = list.count - 1
    return list.count - 1
  }
  private mutating func step(_ place: Int, _ record: Int, _ isFromInitiator: Bool?, _ text: String) {
    guard list[place].steps.count < Self.mostSteps else { return }
    list[place].steps.append((record, isFromInitiator, text))
  }

  /// `role`: of the recording host; the Central is the initiator. nil: not known, then the request's sender is.
  mutating func receive(
    _ pdu: SMPPDU, _ payload: Span<UInt8>, link: Int, _ record: Int, _ direction: HCIDirection?, _ role: LinkRole?
  ) {
    let fromInitiator: Bool? =
      switch (direction, role) {
      case (.fromHost, .central), (.fromController, .peripheral): true
      case (.fromHost, .peripheral), (.fromController, .central): false
      default: nil
      }
    if case .pairingRequest(let request) = pdu {
      // A Security Request before it belongs to the same story.
      let isNew = current[link].map { list[$0].request != nil } ?? true
      let place = story(link, isNew: isNew)
      list[place].request = request.features
      return step(place, record, true, "proposes to pair: " + Self.words(request.features))
    }
    if case .securityRequest(let request) = pdu {
      let isNew = current[link].map { list[$0].request != nil } ?? true
      return step(
        story(link, isNew: isNew), record, false, "asks for security: " + Self.words(request.authReq))
    }
    let place = story(link), isSecure = list[place].isSecure, method = list[place].method
    func key(_ name: String, _ purpose: String) {
      if list[place].keys.count < 16 { list[place].keys.append((record, fromInitiator ?? false, name)) }
      step(place, record, fromInitiator, "hands over its \(name): \(purpose)")
    }
    switch pdu {
    case .pairingRequest, .securityRequest: break
    case .pairingResponse(let response):
      list[place].response = response.features
      step(place, record, false, "answers: " + Self.words(response.features))
    case .pairingPublicKey:
      step(
        place, record, fromInitiator,
        """
        sends its public key, a point of P-256. Everybody may know it; the shared secret follows only from it and a \
        private key.
        """
      )
    case .pairingConfirm:
      let text: String
      switch (isSecure, method) {
      case (true, .passkeyEntry): text = "commits to a random number and one bit of the passkey"
      case (true, _): text = "commits to a random number, so that it cannot choose it later"
      case (false, _): text = "commits to a random number, mixed with the temporary key"
      }
      step(place, record, fromInitiator, text)
    case .pairingRandom:
      step(place, record, fromInitiator, "reveals the random number; the other side checks the commitment")
    case .pairingDHKeyCheck:
      step(
        place, record, fromInitiator,
        "proves that it has computed the same key, from the shared secret, the random numbers, the features and both addresses"
      )
    case .encryptionInformation: key("Long Term Key", "it encrypts later connections")
    case .centralIdentification:
      step(place, record, fromInitiator, "names the key: EDIV and Rand select it in later connections")
    case .identityInformation: key("Identity Resolving Key", "it resolves the private addresses")
    case .identityAddressInformation(let information):
      step(place, record, fromInitiator, "tells its identity address, \(information.bdADDR.text)")
    case .signingInformation: key("Connection Signature Resolving Key", "it verifies signed writes")
    case .pairingFailed(let failed):
      list[place].failure = failed.reason.description
      step(place, record, fromInitiator, "gives up: \(failed.reason.description)")
    case .pairingKeypressNotification:
      step(place, record, fromInitiator, "reports a key that the user pressed")
    }
  }

  /// The link's encryption changed. Without a pairing before, the key is one of an earlier connection.
  mutating func encrypted(_ link: Int, _ record: Int, _ text: String, isOn: Bool) {
    let place = story(link)
    list[place].isEncrypted = list[place].isEncrypted || isOn
    step(place, record, nil, "The link's encryption: \(text)")
  }
  /// A new connection with this link's handle begins anew.
  mutating func asked(_ link: Int, _ record: Int) {
    let place = story(link)
    step(place, record, nil, "The Central's host asks its controller to encrypt the link")
  }

  // MARK: Words

  private static func words(_ features: PairingFeatures) -> String {
    var words = [
      features.ioCapability.name.map { "\($0)" } ?? "a reserved IO capability", words(features.authReq),
      features.oobDataFlag == .present ? "out-of-band data" : "no out-of-band data",
      "keys of at most \(features.maximumEncryptionKeySize.text) octets",
    ]
    words.append("initiator's keys: " + keys(features.initiatorKeyDistribution))
    words.append("responder's: " + keys(features.responderKeyDistribution))
    return words.joined(separator: "; ")
  }
  private static func words(_ request: AuthReq) -> String {
    [
      request.contains(.sc) ? "LE Secure Connections" : "legacy pairing",
      request.contains(.mitm) ? "protection against a man in the middle" : "no protection against a man in the middle",
      request.contains(.bonding) ? "bonding" : "no bonding",
    ].joined(separator: ", ")
  }
  private static func keys(_ keys: KeyDistribution) -> String {
    var words: [String] = []
    if keys.contains(.encKey) { words.append("LTK") }
    if keys.contains(.idKey) { words.append("IRK") }
    if keys.contains(.signKey) { words.append("CSRK") }
    if keys.contains(.linkKey) { words.append("link key") }
    return words.isEmpty ? "none" : words.joined(separator: " ")
  }

  /// Method, why, what a listener could know, and the section.
  private static func verdict(_ story: Story) -> (title: String, reason: String, listener: String, section: String) {
    guard let request = story.request, let response = story.response else {
      if story.request == nil, story.response == nil, story.isEncrypted {
        return (
          "A key of an earlier pairing", "The trace shows no pairing on this connection: the key was known before.",
          "Only somebody who has the key, for example from listening to an unsafe pairing, could read the connection.",
          "Vol 3, Part H, §2.4.4.1"
        )
      }
      return ("A pairing that the trace shows in part", "The features of one side are missing.", "", "")
    }
    let kind = story.isSecure ? "LE Secure Connections" : "Legacy pairing"
    guard let method = story.method else {
      return ("\(kind), no method", "An IO capability is reserved.", "", "Vol 3, Part H, §2.3.5.1")
    }
    let wantsProtection = request.authReq.union(response.authReq).contains(.mitm)
    let capabilities =
      "\(request.ioCapability.name.map { "\($0)" } ?? "?") and \(response.ioCapability.name.map { "\($0)" } ?? "?")"
    let reason: String
    switch method {
    case .outOfBand: reason = "Out-of-band data is present, and precedes every other method."
    case .justWorks where !wantsProtection:
      reason = "Neither side asks for protection against a man in the middle, so the IO capabilities do not count."
    case .justWorks: reason = "The table has Just Works for the IO capabilities \(capabilities)."
    default: reason = "A side asks for protection; the table has this method for the IO capabilities \(capabilities)."
    }
    let unsafe =
      """
      Everything. The pairing's temporary key is zero, so a listener who heard these packets computes the short term \
      key, decrypts the keys that follow, and reads this connection and all later ones.
      """
    let title: String, listener: String, section: String
    switch (story.isSecure, method) {
    case (false, .justWorks): (title, listener, section) = ("Just Works", unsafe, "Vol 3, Part H, §2.3.5.2")
    case (false, .numericComparison): (title, listener, section) = ("Numeric Comparison", "", "")
    case (false, .passkeyEntry(let entry)):
      title = "Passkey Entry, \(words(entry))"
      listener =
        """
        Everything, after a moment. The passkey has a million values; a computer tries all of them against the \
        recorded commitment in seconds, and then has the same keys.
        """
      section = "Vol 3, Part H, §2.3.5.3"
    case (false, .outOfBand):
      title = "Out of Band"
      listener = "Nothing of the keys, as long as the listener did not get the 128-bit out-of-band data."
      section = "Vol 3, Part H, §2.3.5.4"
    case (true, .justWorks):
      title = "Just Works"
      listener =
        """
        Nothing of the keys: they follow from a Diffie-Hellman secret that is never sent. But nobody compared \
        anything, so an attacker in the middle could have paired with each side.
        """
      section = "Vol 3, Part H, §2.3.5.6.2"
    case (true, .numericComparison):
      title = "Numeric Comparison"
      listener =
        """
        Nothing of the keys. An attacker in the middle would be noticed, except once in a million attempts, if the \
        users compared the six digits.
        """
      section = "Vol 3, Part H, §2.3.5.6.2"
    case (true, .passkeyEntry(let entry)):
      title = "Passkey Entry, \(words(entry))"
      listener =
        """
        The passkey, after the pairing: each of its 20 bits can be computed from the commitments and random numbers. \
        The keys stay secret, but the same passkey must not be used again.
        """
      section = "Vol 3, Part H, §2.3.5.6.3"
    case (true, .outOfBand):
      title = "Out of Band"
      listener = "Nothing of the keys, and an attacker in the middle would need the out-of-band data."
      section = "Vol 3, Part H, §2.3.5.6.4"
    }
    return ("\(kind), \(title)", reason, listener, section)
  }
  private static func words(_ entry: PasskeyEntry) -> String {
    switch entry {
    case .initiatorDisplays: "the initiator shows it, the responder enters it"
    case .responderDisplays: "the responder shows it, the initiator enters it"
    case .bothEnter: "both users enter it"
    }
  }

  func write(into json: inout ReportJSON, _ strings: inout ReportStrings, _ record: (Int) -> Int?) {
    json.list("pairings") { json in
      for story in list {
        let verdict = Self.verdict(story)
        json.object { json in
          json.add("link", story.link)
          json.add("title", strings.place(verdict.title))
          json.add("reason", strings.place(verdict.reason))
          json.add("listener", strings.place(verdict.listener))
          json.add("section", strings.place(verdict.section))
          json.add("failure", strings.place(story.failure))
          json.add("encrypted", story.isEncrypted ? 1 : 0)
          json.list("steps") { json in
            for step in story.steps {
              let side = step.isFromInitiator.map { $0 ? 1 : 2 } ?? 0
              json.add(nil, [record(step.record) ?? -1, side, strings.place(step.text)])
            }
          }
          json.list("keys") { json in
            for key in story.keys {
              json.add(nil, [record(key.record) ?? -1, key.isFromInitiator ? 1 : 2, strings.place(key.text)])
            }
          }
        }
      }
    }
  }
}
