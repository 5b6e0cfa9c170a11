import Bindrune
import Synchronization
import TestSupport
import Testing

/// Stores bonds in memory, counts, and fails when it should.
private final class SpyStore: BondStore {
  private let memory = MemoryBondStore()
  private let state = Mutex((saved: 0, isFull: false))
  var saved: Int { state.withLock { $0.saved } }
  var isFull: Bool {
    get { state.withLock { $0.isFull } }
    set { state.withLock { $0.isFull = newValue } }
  }
  func bonds(of adapter: PeerAddress) async throws(BluetoothError) -> [Bond] { await memory.bonds(of: adapter) }
  func save(_ bond: Bond, of adapter: PeerAddress) async throws(BluetoothError) -> [PeerID] {
    let isFull = state.withLock { state in
      state.saved += 1
      return state.isFull
    }
    if isFull { throw BluetoothError(.storage, "The disk is full: free some space.") }
    return await memory.save(bond, of: adapter)
  }
  func remove(_ peer: PeerID, of adapter: PeerAddress) async throws(BluetoothError) {
    await memory.remove(peer, of: adapter)
  }
}

/// Signed writes between two hosts, with their stores. Vol 3, Part G, §4.9.2.
@Suite("Signed writes", .virtualTime, .hang) struct SignedWriteTests {
  private struct Ends {
    let store = SpyStore()
    let lock: BluetoothHost
    let value: AttributeHandle
    let key: BluetoothHost
    var link: Link
    var events: ServerEventSequence.AsyncIterator

    init(_ lab: Lab) async throws {
      var builder = DatabaseBuilder()
      value = builder.service("FFE0") { $0.characteristic("FFE1", .authenticatedSignedWrites).value }
      lock = BluetoothHost(lab.radio.controller(), database: try builder.build())
      try await lock.start()
      try await lock.advertiseFast("Lock")
      key = try await Self.host(lab, store)
      link = try await key.connect(to: lock.ownAddress, .fast)
      events = await lock.events.makeAsyncIterator()
    }
    /// A host that leaves links to bonded devices unencrypted, until more is needed.
    private static func host(_ lab: Lab, _ store: SpyStore) async throws -> BluetoothHost {
      var configuration = HostConfiguration()
      configuration.encryptsBondedLinks = false
      let host = BluetoothHost(lab.radio.controller(), configuration: configuration, bondStore: store)
      try await host.start()
      return host
    }
    mutating func reconnect() async throws {
      try await link.disconnect()
      try await lock.advertiseFast("Lock")
      link = try await key.connect(to: lock.ownAddress, .fast)
    }
    /// The next value that the lock gets.
    mutating func written() async throws -> [UInt8]? {
      while let event = try await events.next() {
        if case .written(_, value, let octets, _) = event { return octets }
      }
      return nil
    }
    func close() async {
      await key.close()
      await lock.close()
    }
  }

  @Test func arriveOnceEach() async throws {
    var ends = try await Ends(Lab())
    do throws(BluetoothError) {
      _ = try await ends.link.writeSigned([0], to: ends.value)
      Issue.record("signed without a key")
    } catch {
      #expect(error.code == .pairing, "\(error)")
    }
    try await ends.link.pair()
    // Encrypted: a Write Command, which the value also takes then.
    #expect(try await ends.link.writeSigned([1], to: ends.value))
    #expect(try await ends.written() == [1])
    try await ends.reconnect()
    let security = await ends.link.security
    #expect(security.isBonded && !security.isEncrypted)
    let before = ends.store.saved
    for number in 2..<70 as Range<UInt8> {
      while try await !ends.link.writeSigned([number], to: ends.value) {
        _ = try await ends.link.discoverServices("FFE0")
      }
      #expect(try await ends.written() == [number])
    }
    // 68 writes, of which 64 and then 4 have been reserved.
    #expect(ends.store.saved - before == 2)
    #expect(await ends.lock.bonds.first?.peersSignCounter == 68)
    #expect(await ends.link.unpair())
    #expect(await !ends.link.unpair())
    #expect(await ends.key.bonds.isEmpty)
    await ends.close()
  }
  /// A counter that cannot be reserved signs nothing.
  @Test func aFullStore() async throws {
    var ends = try await Ends(Lab())
    try await ends.link.pair()
    try await ends.reconnect()
    ends.store.isFull = true
    do throws(BluetoothError) {
      _ = try await ends.link.writeSigned([1], to: ends.value)
      Issue.record("signed with a counter that is not stored")
    } catch {
      #expect(error.code == .storage, "\(error)")
    }
    ends.store.isFull = false
    #expect(try await ends.link.writeSigned([2], to: ends.value))
    #expect(try await ends.written() == [2])
    await ends.close()
  }
}
