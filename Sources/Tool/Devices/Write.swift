import BindruneATT
import ArgumentParser
import Bindrune

struct Write: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Write a value of a device.",
    discussion: """
      Connects, writes the value, and ends when the device has confirmed it. If the command line has no value, reads \
      one from standard input: hexadecimal digits, or with --format utf8 each octet as it is.

        bindrune write --name "Heart*" heart-rate-control-point 01
        printf 'Kitchen' | bindrune write --name Belt --format utf8 device-name
        bindrune write --name Lock --signed FFE2 01

      \(DeviceOptions.statuses)
      """)

  @OptionGroup var device: DeviceOptions
  @Option(help: "The form of the value: hex, two digits for each octet, with or without spaces and colons; or utf8.")
  var format = WrittenFormat.hex
  @Flag(
    help: """
      Write without response: the device does not answer, even if it refuses the value; the tool checks that it arrived.
      """)
  var withoutResponse = false
  @Flag(
    help: """
      Write without response and without encryption, with a signature by the key of the bond: "bindrune pair" makes \
      the bond. For values that take signed writes.
      """)
  var signed = false
  @Argument(help: AttributeName.help) var attribute: AttributeName
  @Argument(help: "The value; by default read from standard input.") var value: String?

  func validate() throws {
    if let value {
      _ = try format.octets(value)
    } else if StandardInput.isTerminal {
      throw ValidationError("There is no value: give one after the attribute, or on standard input.")
    }
    if signed, withoutResponse {
      throw ValidationError("--signed is a write without response already: leave --without-response out.")
    }
  }

  func run() async throws {
    let octets: [UInt8]
    if let value { octets = try format.octets(value) } else { octets = try await input() }
    let progress = Progress(isShown: true)
    var configuration = HostConfiguration()
    configuration.encryptsBondedLinks = !signed
    try await device.withLink(progress, configuration) { link, _ in
      let (handle, _) = try await link.resolve([attribute], needsUUID: false, progress)[0]
      progress("writing \(attribute.description.printable())")
      if signed {
        try await link.confirm { try await link.writeSigned(octets, to: handle) }
      } else if withoutResponse {
        try await link.confirm { try await link.writeWithoutResponse(octets, to: handle) }
      } else {
        try await link.write(octets, to: handle)
      }
    }
  }
  private func input() async throws -> [UInt8] {
    guard let octets = try await StandardInput.all(upTo: 65_536) else {
      throw Failure("Standard input has more than 65536 octets, and a value at most 512: give less.")
    }
    if format == .utf8 { return octets }
    guard let value = HexOctets(argument: String(decoding: octets, as: UTF8.self)) else {
      throw Failure("Standard input is not hexadecimal digits, two for each octet: add --format utf8 for text.")
    }
    return value.octets
  }
}

/// The form of a value to write.
enum WrittenFormat: String, CaseIterable, ExpressibleByArgument {
  case hex, utf8

  func octets(_ text: String) throws(ValidationError) -> [UInt8] {
    if self == .utf8 { return Array(text.utf8) }
    guard let value = HexOctets(argument: text) else {
      throw ValidationError(
        "\"\(text.printable(limit: 60))\" is not hexadecimal digits, two for each octet: add --format utf8 for text.")
    }
    return value.octets
  }
}

extension Link {
  /// Has `write`, a write without response, send, and returns when the value has arrived at the device.
  func confirm(_ write: @Sendable () async throws -> Bool) async throws {
    while try await !write() { _ = try await discoverServices("1800") }
    // ATT keeps the order: the answer to a later request shows that the value has arrived. Vol 3, Part F, §3.3.2.
    _ = try await discoverServices("1800")
  }
}
