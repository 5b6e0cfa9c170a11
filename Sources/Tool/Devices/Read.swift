import ArgumentParser
import Bindrune

struct Read: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Read values of a device.",
    discussion: """
      Connects, reads each value in turn, whatever its length, and prints it on a line. With several attributes, each \
      line begins with the attribute as typed and a tab.

        bindrune read --name "Heart*" battery-level body-sensor-location
        bindrune read --address 00:00:5E:00:53:01/public --format hex 0x0012

      With --format hex or utf8, a handle needs no discovery, which saves time on a slow link. \
      \(DeviceOptions.statuses)
      """)

  @OptionGroup var device: DeviceOptions
  @Option(help: ValueFormat.help) var format = ValueFormat.text
  @Argument(help: AttributeName.help) var attributes: [AttributeName]

  func run() async throws {
    let progress = Progress(isShown: format != .json)
    try await device.withLink(progress) { link, _ in
      let found = try await link.resolve(attributes, needsUUID: format.needsUUID, progress)
      for (name, (handle, attribute)) in zip(attributes, found) {
        progress("reading \(name.description.printable())")
        let value = try await link.read(handle)
        let label = attributes.count > 1 ? name.description : nil
        format.show(value, of: handle, attribute, label: label)
      }
    }
  }
}
