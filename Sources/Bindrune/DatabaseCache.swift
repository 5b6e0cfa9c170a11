import ATT
import BindruneWire
import GAP
import GATT
import Glibc
import Synchronization

/// Where a host keeps what it knows of the databases of its peers, so that the next connection need not discover them.
///
/// A host asks for a peer's database when `Link.discover` has read the Database Hash, and takes it only if it has that hash:
/// a cache that forgets, or remembers too much, costs round trips and nothing else. Only peers that keep their address are
/// remembered. By peer and not by hash: the hash is no secret, and one device could make up the database of another.
///
///     let host = try await Host.open("hci0", databaseCache: FileDatabaseCache(directory: "/var/lib/thermostat"))
public protocol DatabaseCache: Sendable {
  func database(of peer: PeerAddress) async -> RemoteDatabase?
  /// Keeps `database` instead of the one before; `nil` drops that.
  func keep(_ database: RemoteDatabase?, of peer: PeerAddress) async
}

/// Remembers as long as it lives, the `capacity` peers met last.
public final class MemoryDatabaseCache: DatabaseCache {
  private let capacity: Int
  private let entries = Mutex<[(peer: PeerAddress, database: RemoteDatabase)]>([])
  public init(capacity: Int = 64) { self.capacity = capacity }

  public func database(of peer: PeerAddress) async -> RemoteDatabase? {
    entries.withLock { entries in entries.first { $0.peer == peer }?.database }
  }
  public func keep(_ database: RemoteDatabase?, of peer: PeerAddress) async {
    entries.withLock { entries in
      entries.removeAll { $0.peer == peer }
      guard let database else { return }
      entries.append((peer, database))
      if entries.count > capacity { entries.removeFirst() }
    }
  }
}

/// Remembers in a directory, a file for each peer: `F0F1F2F3F4F5-random.gatt`, in the text form that
/// `RemoteDatabase.cacheText` describes. A file that cannot be read, or says nothing sensible, counts as none; one that
/// cannot be written is missed at the next connection.
public struct FileDatabaseCache: DatabaseCache {
  public let directory: String
  /// The directory must exist.
  public init(directory: String) { self.directory = directory }

  private func path(_ peer: PeerAddress) -> String {
    "\(directory)/\(peer.address.text.filter { $0 != ":" })-\(peer.isRandom ? "random" : "public").gatt"
  }
  public func database(of peer: PeerAddress) async -> RemoteDatabase? {
    guard let octets = read(path(peer)) else { return nil }
    return try? RemoteDatabase(cacheText: String(decoding: octets, as: UTF8.self))
  }
  public func keep(_ database: RemoteDatabase?, of peer: PeerAddress) async {
    let path = path(peer)
    guard let text = database?.cacheText else {
      unsafe unlink(path)
      return
    }
    // Whole or not at all, also for another process that reads it now.
    let draft = "\(path).\(getpid())"
    if write(Array(text.utf8), to: draft), unsafe rename(draft, path) == 0 { return }
    unsafe unlink(draft)
  }

  /// At most 4 MiB, which is more than 65,535 attributes need.
  private func read(_ path: String) -> [UInt8]? {
    let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { _ = close(file) }
    var all: [UInt8] = [], part = [UInt8](repeating: 0, count: 65_536)
    while all.count <= 4 << 20 {
      let count = unsafe part.withUnsafeMutableBytes { unsafe Glibc.read(file, $0.baseAddress, $0.count) }
      if count < 0 { return nil }
      if count == 0 { return all }
      all += part[..<count]
    }
    return nil
  }
  private func write(_ octets: [UInt8], to path: String) -> Bool {
    let file = unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    guard file >= 0 else { return false }
    var done = 0
    while done < octets.count {
      let count = unsafe octets.withUnsafeBytes { bytes in
        unsafe Glibc.write(file, bytes.baseAddress.unsafelyUnwrapped + done, bytes.count - done)
      }
      if count <= 0 { break }
      done += count
    }
    return close(file) == 0 && done == octets.count
  }
}

extension PeerAddress {
  /// The device keeps this address: public, or random static. Vol 6, Part B, §1.3.2.1.
  var isLasting: Bool { !isRandom || address.value >> 46 & 0b11 == 0b11 }
}
