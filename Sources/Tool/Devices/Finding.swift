import ArgumentParser
import Bindrune
import BindruneWire
import BindruneGAP
import BindruneHCI

/// A device as the command line selects it.
enum WantedDevice: Sendable {
  case address(WantedAddress)
  /// The first match is used. See `ScanFilter.Name.init(argument:)`.
  case name(String)
  case service(BluetoothUUID, called: String)

  /// `device named "Belt"`.
  var text: String {
    switch self {
    case .address(let wanted): "device \(wanted.address.text)"
    case .name(let name):
      switch ScanFilter.Name(argument: name) {
      case .exact(let name): "device named \"\(name.printable())\""
      case .prefix(let beginning): "device whose name begins with \"\(beginning.printable())\""
      }
    case .service(_, let name): "device with \(name)"
    }
  }

  /// Its address and type; scans for it if necessary. Throws, with `remedy`, if it was not heard within `limit`.
  func find(
    by host: BluetoothHost, within limit: Seconds, remedy: String = "check that it advertises"
  ) async throws -> PeerAddress {
    if case .address(let wanted) = self, let type = wanted.type { return PeerAddress(wanted.address, type) }
    let found: PeerAddress? = try await withLimit(limit.duration) {
      for try await advertisement in host.scan(filter: filter) where isMet(by: advertisement) {
        return advertisement.address
      }
      throw CancellationError()
    }
    guard let found else {
      throw Failure("No \(text) was heard in \(limit): \(remedy), or raise --timeout.", status: .notReached)
    }
    return found
  }
  private var filter: ScanFilter {
    switch self {
    case .address: ScanFilter()
    case .name(let name): ScanFilter(name: ScanFilter.Name(argument: name))
    case .service(let uuid, _): ScanFilter(services: [uuid])
    }
  }
  private func isMet(by advertisement: Advertisement) -> Bool {
    switch self {
    case .address(let wanted): wanted.address == advertisement.address.address
    case .name: true  // `filter` lets no other name through.
    // A bit in the overflow area is not enough.
    case .service(let uuid, _): advertisement.data.serviceUUIDs.contains(uuid)
    }
  }
}

extension ScanFilter.Name {
  /// The spelling in every verb: the exact name, or the beginning of a name and *.
  init(argument: String) { self = argument.hasSuffix("*") ? .prefix(String(argument.dropLast())) : .exact(argument) }
}

/// An address as the user types it.
struct WantedAddress: ExpressibleByArgument, Sendable {
  var address: DeviceAddress
  var type: AddressType?
  init?(argument: String) {
    let parts = argument.split(separator: "/", omittingEmptySubsequences: false)
    switch parts.count == 2 ? parts[1] : "" {
    case "public": type = .public
    case "random": type = .random
    case "" where parts.count == 1: type = nil
    default: return nil
    }
    let octets = parts[0].split(separator: ":", omittingEmptySubsequences: false)
    guard octets.count == 6, octets.allSatisfy({ $0.utf8.count == 2 }) else { return nil }
    var value: UInt64 = 0
    for octet in octets {
      guard let number = UInt8(octet, radix: 16) else { return nil }
      value = value << 8 | UInt64(number)
    }
    address = DeviceAddress(value)
  }
}

extension BluetoothHost {
  /// Connects and runs `first` on the link. If the peer missed the connection's first packets, repeats both on a new
  /// link, three attempts at most: Vol 6, Part B, §4.5.
  nonisolated func reach<Result>(
    _ peer: PeerAddress, _ parameters: ConnectionParameters = .balanced, within limit: Seconds, attempts: Int = 3,
    _ first: (Link) async throws -> Result
  ) async throws -> Result {
    guard let link = try await withLimit(limit.duration, { try await self.connect(to: peer, parameters) }) else {
      throw Failure(
        "\(peer) did not answer in \(limit): bring it closer, or raise --timeout.", status: .notReached)
    }
    do {
      return try await first(link)
    } catch let error as BluetoothError where error.status == .connectionFailedToBeEstablished && attempts > 1 {}
    return try await reach(peer, parameters, within: limit, attempts: attempts - 1, first)
  }
}
