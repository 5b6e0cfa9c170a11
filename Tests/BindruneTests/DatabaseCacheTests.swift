import Bindrune
import BindruneWire
import Foundation
import Glibc
import TestSupport
import Testing

@Suite struct DatabaseCacheTests {
  /// The cache neither writes through foreign files in its directory nor blocks on them.
  @Test(.hang) func aCacheAmongStrangersFiles() async throws {
    let directory = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path()
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let cache = FileDatabaseCache(directory: directory),
      peer = PeerID(PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .random))
    let text = "bindrune-gatt 1\nhash \(DatabaseHash(low: 1, high: 2))\nservice 0001 0009 primary 180D\nend 3\n"
    let database = try RemoteDatabase(cacheText: text), path = directory + "/F0F1F2F3F4F5-random.gatt"
    let manager = FileManager.default
    // A pipe, and a link to a good file: both count as absent.
    #expect(unsafe mkfifo(path, 0o600) == 0)
    #expect(await cache.database(of: peer) == nil)
    unsafe unlink(path)
    try text.write(toFile: directory + "/other", atomically: true, encoding: .utf8)
    try manager.createSymbolicLink(atPath: path, withDestinationPath: directory + "/other")
    #expect(await cache.database(of: peer) == nil)
    // Where a draft might be: a link, and a pipe.
    let victim = directory + "/victim"
    try "mine".write(toFile: victim, atomically: true, encoding: .utf8)
    try manager.createSymbolicLink(atPath: "\(path).\(getpid())", withDestinationPath: victim)
    await cache.keep(database, of: peer)
    #expect(await cache.database(of: peer) == database)
    #expect(try String(contentsOfFile: victim, encoding: .utf8) == "mine")
    #expect(try manager.attributesOfItem(atPath: path)[.type] as? FileAttributeType == .typeRegular)
    #expect(try manager.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o600)
    // The cache removes drafts older than an hour, and keeps new drafts and other files.
    let old = [FileAttributeKey.modificationDate: Date(timeIntervalSinceNow: -7200)]
    let names = [".0123ABCD", ".longer890", ".0123ABCE"]
    for name in names { try "draft".write(toFile: path + name, atomically: false, encoding: .utf8) }
    for name in names.prefix(2) { try manager.setAttributes(old, ofItemAtPath: path + name) }
    try manager.setAttributes(old, ofItemAtPath: directory + "/other")
    await cache.keep(database, of: peer)
    #expect(names.map { manager.fileExists(atPath: path + $0) } == [false, true, true])
    #expect(manager.fileExists(atPath: directory + "/other"))
  }

  /// Another user could have written what it would read: it counts as absent, and nothing is written there.
  @Test func aPlantedCache() async throws {
    let directory = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path()
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let cache = FileDatabaseCache(directory: directory),
      peer = PeerID(PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .random))
    let database = try RemoteDatabase(
      cacheText: "bindrune-gatt 1\nhash \(DatabaseHash(low: 1, high: 2))\nservice 0001 0009 primary 180D\nend 3\n")
    let path = directory + "/F0F1F2F3F4F5-random.gatt"
    await cache.keep(database, of: peer)
    #expect(await cache.database(of: peer) == database && cache.warning == nil)
    func isKnown() async -> Bool { await cache.database(of: peer) != nil }
    #expect(unsafe chmod(path, 0o646) == 0)
    #expect(await !isKnown())
    #expect(unsafe chmod(path, 0o600) == 0)
    #expect(unsafe chmod(directory, 0o1777) == 0)
    #expect(await !isKnown())
    #expect(cache.warning?.contains("other users may write to \(directory)") == true)
    await cache.keep(nil, of: peer)
    #expect(unsafe chmod(directory, 0o700) == 0)
    #expect(await isKnown(), "not removed")
    guard geteuid() == 0 else { return }
    #expect(unsafe chown(path, 65_534, 65_534) == 0)
    #expect(await !isKnown())
  }

  /// Hosts of one process that store the same peer at once: each reads one complete file.
  @Test func twoHostsKeepOnePeer() async throws {
    let directory = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path()
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let peer = PeerID(PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .random))
    let databases = try [1, 400].map { count in
      let services = (1...count).map { hexDigits(UInt64($0), 4) }.map { "service \($0) \($0) primary 180D\n" }
      return try RemoteDatabase(
        cacheText: "bindrune-gatt 1\nhash \(DatabaseHash(low: 1, high: 2))\n\(services.joined())end \(count + 2)\n")
    }
    await withTaskGroup(of: Void.self) { group in
      for database in databases + databases {
        group.addTask {
          let cache = FileDatabaseCache(directory: directory)
          for _ in 0..<100 {
            await cache.keep(database, of: peer)
            let found = await cache.database(of: peer)
            #expect(found != nil && databases.contains { $0 == found })
          }
        }
      }
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory).count == 1)
  }
}
