import BindruneTransport
import Logging
import NIOCore

extension TransportSpec {
  /// Opens a transport to a controller. `sim` is a new controller on `radio`, which must be on `loop`; `trace` is the
  /// path of a btsnoop file that records every packet; `tracesCalls`: with the calls that cause them, see
  /// `BluetoothHost.open`.
  ///
  /// `takesDown`: takes down an adapter that is up, and so used by the kernel and bluetoothd, to open it, and brings it
  /// up again after it is closed (but not if the process is killed).
  public func open(
    on loop: any EventLoop, radio: SimulatedRadio? = nil, takesDown: Bool = false, trace: String? = nil,
    tracesCalls: Bool = false, logger: Logger = .silent
  ) async throws(TransportError) -> any HCITransport {
    // Opens the file first: if that fails, there is no controller to close.
    guard let trace else { return try await open(on: loop, radio, takesDown, logger) }
    let writer = try BTSnoopWriter(path: trace, recordsCalls: tracesCalls)
    return TracingTransport(try await open(on: loop, radio, takesDown, logger), writer: writer)
  }

  private func open(
    on loop: any EventLoop, _ radio: SimulatedRadio?, _ takesDown: Bool, _ logger: Logger
  ) async throws(TransportError) -> any HCITransport {
    switch self {
    case .adapter(let number):
      let socket = try await UserChannelSocket.open(number, takesDown: takesDown, on: loop)
      logger.debug("\(self) is ours", metadata: ["receive buffer": "\(socket.receiveBuffer)"])
      return socket
    case _ where takesDown: throw .unsuitable(self, "only an adapter of this machine, such as hci0, is taken down")
    case .sim:
      guard let radio else { throw .unsuitable(self, "this program has no radio of its own") }
      return radio.controller()
    default: return try await H4Stream.connect(to: self, on: loop)
    }
  }
}

extension Logger {
  /// Discards all messages: the default of a library.
  public static var silent: Logger { Logger(label: "bindrune", factory: { _ in SwiftLogNoOpLogHandler() }) }
}
