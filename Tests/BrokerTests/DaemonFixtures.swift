import BindruneWire
import Foundation
import BindruneGATT
import NIOCore
import TestSupport

@testable import Bindrune
@testable import BindruneBroker

/// `Fixtures/Daemon`: what daemons and apps of released versions have written, for all later ones to read. Nothing
/// there is changed; a new version adds files.
enum DaemonFixtures {
  static var folder: URL { VectorFile.fixtures.appending(path: "Daemon") }
  static var isRecording: Bool { ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] == "1" }

  /// A frame, as two lines: who has sent which message, with the text of its fields, and its octets.
  struct Line: Equatable {
    var sender: String
    var text: String
    var octets: [UInt8]
    var frame: Frame {
      get throws {
        var buffer = ByteBuffer(bytes: octets)
        guard let frame = try Frame.read(from: &buffer), buffer.readableBytes == 0 else {
          throw CocoaError(.fileReadCorruptFile)
        }
        return frame
      }
    }
    init(sender: String, text: String, octets: [UInt8]) {
      (self.sender, self.text, self.octets) = (sender, text, octets)
    }
    init(app message: AppMessage) throws {
      self.init(sender: "app", text: try Self.text(message), octets: message.frame)
    }
    init(daemon message: DaemonMessage) throws {
      self.init(sender: "daemon", text: try Self.text(message), octets: message.frame)
    }
    static func text(_ message: some DeclaredMessage) throws -> String {
      let number = try MessageLayout(of: message).number ?? 0
      return "\(number) \(try MessageText.of(message))".trimmingCharacters(in: .whitespaces)
    }
  }
  static func lines(_ name: String) throws -> [Line] {
    let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
    let lines = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
    return stride(from: 0, to: lines.count, by: 2).map { place in
      let words = lines[place].split(separator: " ", maxSplits: 1)
      return Line(
        sender: String(words[0]), text: String(words[1]),
        octets: lines[place + 1].split(separator: " ").compactMap { UInt8($0, radix: 16) })
    }
  }
  static func record(_ lines: [Line], _ name: String, _ about: String) throws {
    let text = lines.map { line in
      "\(line.sender) \(line.text)\n" + line.octets.map { String(format: "%02X", $0) }.joined(separator: " ")
    }
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    try Data("# \(about)\n\n\(text.joined(separator: "\n\n"))\n".utf8).write(to: folder.appending(path: name))
  }

  // MARK: What stands in the records of version 1

  private static let peer = UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random)))
  static let small = AppRecord(
    user: 0, manifest: AppManifest(identifier: "x", unit: "lock.service"), mayShareData: false)
  static let full: AppRecord = {
    var central = PreservedManager(identity: ManagerIdentity(.central, restoreIdentifier: "lock"))
    central.scan = .init(
      services: ["180D"], solicitedServices: ["A4E649F4-4BE5-11E5-885D-FEFF819CDC9F"], allowsDuplicates: true)
    central.peers = [
      .init(
        identifier: peer,
        options: ConnectOptions(startDelay: 0.25, reconnects: true, alerts: [.connection, .notification]),
        name: "Rune \u{1F300}\""),
      .init(identifier: peer, options: ConnectOptions(), name: nil),
    ]
    var peripheral = PreservedManager(identity: ManagerIdentity(.peripheral, restoreIdentifier: "pulse"))
    peripheral.services = [
      .init(
        handle: 20,
        description: ServiceDescription(
          uuid: "1805", isPrimary: false, includes: [7],
          characteristics: [
            .init(
              uuid: "12345678", properties: [.read, .notify],
              permissions: AttributePermissions(
                read: .authenticated.withKey(of: 16).withAuthorization, write: .open.orSigned), configuring: .encrypted,
              value: Data((0...40).map { UInt8($0) }), descriptors: [.init(uuid: "2901", value: Data("Name".utf8))]),
            .init(uuid: "2A2B", properties: .read, permissions: .none),
          ])),
      .init(handle: 7, description: ServiceDescription(uuid: "A4E649F4-4BE5-11E5-885D-FEFF819CDC9F")),
    ]
    peripheral.advertisement = .init(localName: "Lock", services: ["1805"])
    return AppRecord(
      user: 1000,
      manifest: AppManifest(
        identifier: "org.example.lock", backgroundModes: [.central, .peripheral],
        relaunch: ["/usr/bin/lock", "--background"]), mayShareData: true,
      managers: [.init(adapter: "hci0", manager: central), .init(adapter: "usb1", manager: peripheral)])
  }()
}
