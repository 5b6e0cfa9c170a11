import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneSMP

extension Bond {
  /// The bond as octets, to be stored: its keys too. They begin with the number of their format.
  ///
  /// An address is stored as public or random, the client's record as it is.
  public var octets: [UInt8] {
    var arena: [UInt8] = [], record = BondRecord()
    record.peer = peer.firstAddress.address
    record.isPeerRandom = peer.firstAddress.isRandom
    record.address = address.address
    record.isAddressRandom = address.isRandom
    record.isAuthenticated = strength.isAuthenticated
    record.isSecureConnections = strength.isSecureConnections
    record.keySize = strength.size
    record.ours = KeyFields(ours)
    record.peers = KeyFields(peers)
    record.ourSignCounter = ourSignCounter
    record.peersSignCounter = peersSignCounter
    record.client = Octets(client, in: &arena)
    // Cannot fail: every field has a value, every range is one of the arena.
    do throws(WireError) { return try record.encoded(from: arena.span) } catch { return [] }
  }

  /// The bond of these ``octets``. Throws for another format, and names the field that is cut or has an invalid value.
  ///
  /// Does not look into the client's record: GATT's server checks that when it takes it, and the keys are of use
  /// without it.
  public init(_ octets: Span<UInt8>) throws(WireError) {
    // First, because another format's fields have no meaning here.
    if !octets.isEmpty, octets[0] != BondRecord.format { throw .unknown("Format", Int(octets[0])) }
    let record = try WireDecoder.decode(BondRecord.self, octets)
    self.init(
      peer: PeerID(PeerAddress(record.peer, record.isPeerRandom ? .random : .public)),
      address: PeerAddress(record.address, record.isAddressRandom ? .random : .public),
      strength: KeyStrength(
        isAuthenticated: record.isAuthenticated, isSecureConnections: record.isSecureConnections, size: record.keySize),
      ours: record.ours.keys, peers: record.peers.keys)
    ourSignCounter = record.ourSignCounter
    peersSignCounter = record.peersSignCounter
    client = record.client.array(in: octets)
  }
}

/// A stored ``Bond``. A key's octets are least significant first, as in the PDU that brought it: Vol 3, Part H, §3.6.
struct BondRecord: WireRecord {
  static var format: UInt8 { 1 }
  var format = BondRecord.format
  /// The address that the `PeerID` was made from.
  var peer = DeviceAddress()
  var isPeerRandom = false
  var address = DeviceAddress()
  var isAddressRandom = false
  var isAuthenticated = false
  var isSecureConnections = false
  var keySize = EncryptionKeySize.longest
  var ours = KeyFields()
  var peers = KeyFields()
  var ourSignCounter: UInt32 = 0
  var peersSignCounter: UInt32 = 0
  var client = Octets()

  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Format", &format)
    try visit.value("Peer", &peer)
    try visit.value("Peer, random", &isPeerRandom)
    try visit.value("Address", &address)
    try visit.value("Address, random", &isAddressRandom)
    try visit.value("Authenticated", &isAuthenticated)
    try visit.value("Secure Connections", &isSecureConnections)
    try visit.value("Encryption Key Size", &keySize)
    try visit.value("Our Sign Counter", &ourSignCounter)
    try visit.value("Peer's Sign Counter", &peersSignCounter)
    try visit.bits("Our Keys", &ours.present, 4)
    try visit.bits("Peer's Keys", &peers.present, 4)
    if ours.present.contains(.longTermKey) {
      try visit.value("Our Long Term Key", &ours.longTermKey)
      try visit.value("Our EDIV", &ours.ediv)
      try visit.value("Our Rand", &ours.rand)
    }
    if ours.present.contains(.irk) { try visit.value("Our Identity Resolving Key", &ours.irk) }
    if ours.present.contains(.identityAddress) {
      try visit.value("Our Identity Address", &ours.identityAddress)
      try visit.value("Our Identity Address, random", &ours.isIdentityAddressRandom)
    }
    if ours.present.contains(.csrk) { try visit.value("Our Signature Key", &ours.csrk) }
    if peers.present.contains(.longTermKey) {
      try visit.value("Peer's Long Term Key", &peers.longTermKey)
      try visit.value("Peer's EDIV", &peers.ediv)
      try visit.value("Peer's Rand", &peers.rand)
    }
    if peers.present.contains(.irk) { try visit.value("Peer's Identity Resolving Key", &peers.irk) }
    if peers.present.contains(.identityAddress) {
      try visit.value("Peer's Identity Address", &peers.identityAddress)
      try visit.value("Peer's Identity Address, random", &peers.isIdentityAddressRandom)
    }
    if peers.present.contains(.csrk) { try visit.value("Peer's Signature Key", &peers.csrk) }
    try visit.octets("Client Record", &client)
  }
}

/// The keys of one device in a ``BondRecord``: those that `present` has.
struct KeyFields: BitwiseCopyable, Sendable {
  struct Present: OptionSet, OpenNumber {
    var rawValue: UInt8
    static var longTermKey: Present { Present(rawValue: 1) }
    static var irk: Present { Present(rawValue: 2) }
    static var identityAddress: Present { Present(rawValue: 4) }
    static var csrk: Present { Present(rawValue: 8) }
  }
  var present: Present = []
  var longTermKey = SecretNumber()
  var ediv: UInt16 = 0
  var rand: UInt64 = 0
  var irk = SecretNumber()
  var identityAddress = DeviceAddress()
  var isIdentityAddressRandom = false
  var csrk = SecretNumber()
  init() {}

  init(_ keys: DistributedKeys) {
    if let key = keys.longTermKey {
      present.insert(.longTermKey)
      longTermKey = SecretNumber(key.key.number)
      (ediv, rand) = (key.ediv, key.rand)
    }
    if let key = keys.irk {
      present.insert(.irk)
      irk = SecretNumber(key.number)
    }
    if let identity = keys.identityAddress {
      present.insert(.identityAddress)
      (identityAddress, isIdentityAddressRandom) = (identity.address, identity.isRandom)
    }
    if let key = keys.csrk {
      present.insert(.csrk)
      csrk = SecretNumber(key.number)
    }
  }

  var keys: DistributedKeys {
    var keys = DistributedKeys()
    if present.contains(.longTermKey) {
      keys.longTermKey = LongTermKey(key: SecurityKey(longTermKey.number), ediv: ediv, rand: rand)
    }
    if present.contains(.irk) { keys.irk = SecurityKey(irk.number) }
    if present.contains(.identityAddress) {
      keys.identityAddress = PairingAddress(identityAddress, isRandom: isIdentityAddressRandom)
    }
    if present.contains(.csrk) { keys.csrk = SecurityKey(csrk.number) }
    return keys
  }
}
