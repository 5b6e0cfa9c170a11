import BindruneATT
import BindruneSystem
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneGATT
import Glibc
import Synchronization
import SystemPackage

/// Stores the databases of a host's peers, so that the next connection need not discover them.
///
/// `Link.discover` reads the Database Hash, looks up the peer's database here, and uses it only if the hashes match: a
/// missing or outdated entry costs round trips and nothing else. The host stores only peers that keep their address.
/// The key is the peer and not the hash: the hash is no secret, so one device could forge the database of another.
///
///     let host = try await BluetoothHost.open("hci0", databaseCache: FileDatabaseCache(directory: "/var/lib/thermostat"))
public protocol DatabaseCache: Sendable {
  func database(of peer: PeerID) async -> RemoteDatabase?
  /// Stores `database` in place of the previous one; `nil` removes that.
  func keep(_ database: RemoteDatabase?, of peer: PeerID) async
}

/// Stores the databases of the last `capacity` peers in memory.
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

/// Stores the databases in a directory, a file for each peer: `F0F1F2F3F4F5-random.gatt`, in the text form that
/// `RemoteDatabase.cacheText` describes. An unreadable or malformed file counts as absent; if a file cannot be written,
/// the next connection discovers again. The same holds where another user could have written the file, or can write to
/// the directory: `warning` says so.
public struct FileDatabaseCache: DatabaseCache {
  public let directory: String
  /// The directory must exist.
  public init(directory: String) { self.directory = directory }

  /// Why the directory is not used: one sentence with the cause and the cure. Nil: it is.
  public var warning: String? { (try? FilePath(text: directory).planted(.folder))?.description }

  private func path(_ peer: PeerID) -> FilePath {
    let address = peer.firstAddress
    let name = "\(address.address.text.filter { $0 != ":" })-\(address.isRandom ? "random" : "public").gatt"
    return FilePath(text: directory).appending(name)
  }
  public func database(of peer: PeerID) async -> RemoteDatabase? {
    // 65,535 attributes need less.
    guard warning == nil, let octets = try? path(peer).trustedContents(upTo: 4 << 20) else { return nil }
    return try? RemoteDatabase(cacheText: String(decoding: octets, as: UTF8.self))
  }
  public func keep(_ database: RemoteDatabase?, of peer: PeerID) async {
    if warning != nil { return }
    let path = path(peer)
    guard let text = database?.cacheText else {
      try? path.remove()
      return
    }
    removeLeftovers(of: path)
    // Atomic, also for another host or process that reads or writes the file now.
    let draft = FilePath("\(path).\(hexDigits(UInt64(UInt32.random(in: .min ... .max)), Self.suffixLength))")
    do throws(Errno) { try draft.create(Array(text.utf8)) } catch { return }
    do throws(Errno) { try draft.rename(to: path) } catch { try? draft.remove() }
  }

  private static var suffixLength: Int { 8 }

  /// Removes drafts of processes that ended while writing: a draft exists for milliseconds, these are an hour old.
  private func removeLeftovers(of path: FilePath) {
    let folder = path.removingLastComponent(), prefix = (path.lastComponent?.string ?? "") + "."
    for name in (try? folder.names()) ?? []
    where name.hasPrefix(prefix) && name.utf8.count == prefix.utf8.count + Self.suffixLength {
      let leftover = folder.appending(name)
      guard let status = try? leftover.stat(followTargetSymlink: false), status.type == .regular else { continue }
      if status.st_mtim.tv_sec < time(nil) - 3600 { try? leftover.remove() }
    }
  }
}

extension PeerAddress {
  /// The device keeps this address: public, or random static. Vol 6, Part B, §1.3.2.1.
  var isLasting: Bool { !isRandom || address.value >> 46 & 0b11 == 0b11 }
}
