import BindruneATT
import ArgumentParser
import Bindrune
import BindruneGATT

struct Subscribe: AsyncParsableCommand, EventReporter {
  static let configuration = CommandConfiguration(
    abstract: "Print the values that a device sends by itself.",
    discussion: """
      Connects, subscribes, and prints each notification or indication on a line, until interrupted. With several \
      attributes, each line begins with the attribute as typed and a tab.

        bindrune subscribe --name "Heart*" heart-rate-measurement
        bindrune subscribe --name "Heart*" --format hex --count 1 --duration 30 2A37

      Status 5: fewer values than --count came within --duration. \(DeviceOptions.statuses)
      """)

  @OptionGroup var device: DeviceOptions
  @Option(help: ValueFormat.help) var format = ValueFormat.text
  @Option(help: ArgumentHelp("End after this many values, of all attributes together.", valueName: "number"))
  var count: Int?
  @Option(help: ArgumentHelp("How long to listen; by default until interrupted.", valueName: "seconds"))
  var duration: Seconds?
  @Flag(help: "Request indications, which are confirmed, if the device has notifications, too.")
  var indications = false
  @Argument(help: AttributeName.help) var attributes: [AttributeName]

  func validate() throws {
    if let count, count < 1 { throw ValidationError("--count is 1 or more.") }
  }

  func run() async throws {
    Interruption.watchOutput()
    let progress = Progress(isShown: format != .json)
    try await device.withLink(progress) { link, _ in
      let found = try await link.resolve(attributes, needsUUID: true, progress)
      let printer = ValuePrinter(format: format, limit: count)
      var subscriptions: [(label: String?, attribute: RemoteAttribute, values: Subscription)] = []
      for (name, (_, attribute)) in zip(attributes, found) {
        let (attribute, characteristic) = try attribute.subscribable(name)
        progress("subscribing to \(name.description.printable())")
        let wanted: ClientCharacteristicConfiguration? = indications ? .indication : nil
        let values = try await link.subscribe(to: characteristic, wanted)
        subscriptions.append((attributes.count > 1 ? name.description : nil, attribute, values))
      }
      progress("waiting for values")
      try await untilInterrupted(duration) { [subscriptions] in
        try await withThrowingTaskGroup(of: Void.self) { group in
          for (label, attribute, values) in subscriptions {
            group.addTask {
              for try await value in values {
                if await printer.show(value, of: attribute, label: label) { return }
              }
            }
          }
          try await group.next()
          group.cancelAll()
        }
      }
      // The link ends next, and any subscription that fails to end ends with it.
      for (_, _, values) in subscriptions { try? await values.end() }
      guard let count else { return }
      let printed = await printer.printed
      if printed < count {
        try Task.checkCancellation()
        throw Failure(
          "\(printed) of \(count) values came within \(duration ?? device.timeout): raise --duration.",
          status: .timeOver)
      }
    }
  }
}

extension RemoteAttribute? {
  /// The attribute, and its characteristic, which sends values by itself.
  func subscribable(_ name: AttributeName) throws(Failure) -> (RemoteAttribute, RemoteCharacteristic) {
    if let attribute = self, let characteristic = attribute.characteristic,
      !characteristic.properties.isDisjoint(with: [.notify, .indicate])
    {
      return (attribute, characteristic)
    }
    throw Failure(
      "The device sends no values of \(name.description.printable()) by itself: read it instead.", status: .noAttribute)
  }
}

/// Prints values as they arrive, up to a limit.
actor ValuePrinter {
  private let format: ValueFormat
  private let limit: Int
  private let start = ContinuousClock.now
  private(set) var printed = 0
  init(format: ValueFormat, limit: Int?) {
    self.format = format
    self.limit = limit ?? .max
  }
  /// Returns true after the last value.
  func show(_ value: ReceivedValue, of attribute: RemoteAttribute, label: String?) -> Bool {
    guard printed < limit else { return true }
    printed += 1
    format.show(
      value.value, of: value.handle, attribute, event: value.isIndication ? "indication" : "notification",
      label: label, after: ContinuousClock.now - start)
    return printed == limit
  }
}
