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

  private func path(_ peer: PeerID) -> String {
    let address = peer.firstAddress
    return "\(directory)/\(address.address.text.filter { $0 != ":" })-\(address.isRandom ? "random" : "public").gatt"
  }
  public func database(of peer: PeerID) async -> RemoteDatabase? {
    guard let octets = read(path(peer)) else { return nil }
    return try? RemoteDatabase(cacheText: String(decoding: octets, as: UTF8.self))
  }
  public func keep(_ database: RemoteDatabase?, of peer: PeerID) async {
    let path = path(peer)
    guard let text = database?.cacheText else {
      unsafe unlink(path)
      return
    }
    removeLeftovers(of: path)
    // Whole or not at all, also for another host or process that reads or writes it now.
    let draft = path + "." + hexDigits(UInt64(UInt32.random(in: .min ... .max)), Self.suffixLength)
    // A new file, never one that somebody has put there.
    let file = unsafe open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard file >= 0 else { return }
    let isWritten = write(Array(text.utf8), to: file)
    if close(file) == 0, isWritten, unsafe rename(draft, path) == 0 { return }
    unsafe unlink(draft)
  }

  private static var suffixLength: Int { 8 }

  /// Removes drafts that a process has left that ended while it wrote: a draft lives for milliseconds, these are an hour old.
  private func removeLeftovers(of path: String) {
    guard let folder = unsafe opendir(directory) else { return }
    defer { unsafe closedir(folder) }
    let prefix = path.dropFirst(directory.utf8.count + 1) + "."
    while let entry = unsafe readdir(folder) {
      let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
        unsafe String(cString: UnsafeRawPointer(pointer).assumingMemoryBound(to: CChar.self))
      }
      guard name.hasPrefix(prefix), name.utf8.count == prefix.utf8.count + Self.suffixLength else { continue }
      let leftover = "\(directory)/\(name)"
      var status = stat()
      guard unsafe lstat(leftover, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { continue }
      if status.st_mtim.tv_sec < time(nil) - 3600 { unsafe unlink(leftover) }
    }
  }

  /// A regular file of at most 4 MiB, which is more than 65,535 attributes need. Links are not followed, and nothing is waited
  /// for: a pipe may stand there.
  private func read(_ path: String) -> [UInt8]? {
    let file = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
    guard file >= 0 else { return nil }
    defer { _ = close(file) }
    var status = stat()
    guard unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
    var all: [UInt8] = [], part = [UInt8](repeating: 0, count: 65_536)
    while all.count <= 4 << 20 {
      let count = unsafe part.withUnsafeMutableBytes { unsafe Glibc.read(file, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      if count < 0 { return nil }
      if count == 0 { return all }
      all += part[..<count]
    }
    return nil
  }
  /// True: all of it.
  private func write(_ octets: [UInt8], to file: CInt) -> Bool {
    var done = 0
    while done < octets.count {
      let count = unsafe octets.withUnsafeBytes { bytes in
        unsafe Glibc.write(file, bytes.baseAddress.unsafelyUnwrapped + done, bytes.count - done)
      }
      if count < 0, errno == EINTR { continue }
      if count <= 0 { return false }
      done += count
    }
    return true
  }
}

extension PeerAddress {
  /// The device keeps this address: public, or random static. Vol 6, Part B, §1.3.2.1.
  var isLasting: Bool { !isRandom || address.value >> 46 & 0b11 == 0b11 }
}
