import ArgumentParser
import Bindrune

struct Read: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Read values of a device.",
    discussion: """
      Connects, reads each value in turn, however long it is, and prints it on a line. Of several, each line begins with the \
      attribute as it was typed and a tab.

        bindrune read --name "Heart*" battery-level body-sensor-location
        bindrune read --address 00:00:5E:00:53:01/public --format hex 0x0012

      An attribute that is named by its handle needs no discovery with --format hex and utf8, which saves time on a slow link. \
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
