import ATT
import BindruneWire
import GAP
import GATT
import Glibc
import Synchronization
import SystemPackage

/// Where a host keeps what it knows of the databases of its peers, so that the next connection need not discover them.
///
/// A host asks for a peer's database when `Link.discover` has read the Database Hash, and takes it only if it has that hash:
/// a cache that forgets, or remembers too much, costs round trips and nothing else. Only peers that keep their address are
/// remembered. By peer and not by hash: the hash is no secret, and one device could make up the database of another.
///
///     let host = try await BluetoothHost.open("hci0", databaseCache: FileDatabaseCache(directory: "/var/lib/thermostat"))
public protocol DatabaseCache: Sendable {
  func database(of peer: PeerID) async -> RemoteDatabase?
  /// Keeps `database` instead of the one before; `nil` drops that.
  func keep(_ database: RemoteDatabase?, of peer: PeerID) async
}

/// Remembers as long as it lives, the `capacity` peers met last.
public final class MemoryDatabaseCache: DatabaseCache {
  private let capacity: Int
  private let entries = Mutex<[(peer: PeerID, database: RemoteDatabase)]>([])
  public init(capacity: Int = 64) { self.capacity = capacity }

  public func database(of peer: PeerID) async -> RemoteDatabase? {
    entries.withLock { entries in entries.first { $0.peer == peer }?.database }
  }
  public func keep(_ database: RemoteDatabase?, of peer: PeerID) async {
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

  private func path(_ peer: PeerID) -> FilePath {
    let address = peer.firstAddress
    let name = "\(address.address.text.filter { $0 != ":" })-\(address.isRandom ? "random" : "public").gatt"
    return FilePath(text: directory).appending(name)
  }
  public func database(of peer: PeerID) async -> RemoteDatabase? {
    guard let octets = try? read(path(peer)) else { return nil }
    return try? RemoteDatabase(cacheText: String(decoding: octets, as: UTF8.self))
  }
  public func keep(_ database: RemoteDatabase?, of peer: PeerID) async {
    let path = path(peer)
    guard let text = database?.cacheText else {
      try? path.remove()
      return
    }
    removeLeftovers(of: path)
    // Whole or not at all, also for another host or process that reads or writes it now.
    let draft = FilePath("\(path).\(hexDigits(UInt64(UInt32.random(in: .min ... .max)), Self.suffixLength))")
    // A new file, never one that somebody has put there.
    guard
      let file = try? FileDescriptor.open(
        draft, .writeOnly, options: [.create, .exclusiveCreate, .noFollow, .closeOnExec], permissions: .ownerReadWrite)
    else { return }
    do {
      try file.closeAfter { _ = try file.writeAll(text.utf8) }
      try draft.rename(to: path)
    } catch { try? draft.remove() }
  }

  private static var suffixLength: Int { 8 }

  /// Removes drafts that a process has left that ended while it wrote: a draft lives for milliseconds, these are an hour old.
  private func removeLeftovers(of path: FilePath) {
    let folder = path.removingLastComponent(), prefix = (path.lastComponent?.string ?? "") + "."
    for name in (try? folder.names()) ?? []
    where name.hasPrefix(prefix) && name.utf8.count == prefix.utf8.count + Self.suffixLength {
      let leftover = folder.appending(name)
      guard let status = try? leftover.stat(followTargetSymlink: false), status.type == .regular else { continue }
      if status.st_mtim.tv_sec < time(nil) - 3600 { try? leftover.remove() }
    }
  }

  /// A regular file of at most 4 MiB, which is more than 65,535 attributes need. Links are not followed, and nothing is waited
  /// for: a pipe may stand there.
  private func read(_ path: FilePath) throws -> [UInt8]? {
    let file = try FileDescriptor.open(
      path, .readOnly, options: [.closeOnExec, .noFollow, .nonBlocking, .noControllingTerminal])
    return try file.closeAfter {
      guard try file.stat().type == .regular else { return nil }
      let octets = try file.readAll(upTo: 4 << 20 + 1)
      return octets.count <= 4 << 20 ? octets : nil
    }
  }
}

extension PeerAddress {
  /// The device keeps this address: public, or random static. Vol 6, Part B, §1.3.2.1.
  var isLasting: Bool { !isRandom || address.value >> 46 & 0b11 == 0b11 }
}
