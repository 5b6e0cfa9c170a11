import Bindrune
import BindruneSimulator
import BindruneTransport
import NIOCore
import NIOPosix

/// A radio in the tests' own process, for programs that connect to it over TCP and hosts of the test: without loss, and
/// without connection events, so that data costs no time on the air.
final class Air: Sendable {
  let radio: SimulatedRadio
  private let server: H4Server
  /// The argument of `--hci`.
  var spec: String { "\(server.address)" }

  /// `wrap` puts a layer between a program's connection and its controller.
  init(_ wrap: @escaping @Sendable (H4Stream) -> any HCITransport = { $0 }) async throws {
    let radio = SimulatedRadio(on: MultiThreadedEventLoopGroup.singleton.next(), configuration: .ideal)
    self.radio = radio
    server = try await H4Server.listen(on: .tcp(host: "127.0.0.1", port: 0), loop: radio.eventLoop) { stream in
      radio.attach(wrap(stream))
    }
  }
  func close() async throws {
    await server.close()
    try await radio.eventLoop.submit { self.radio.close() }.get()
  }
}

/// A program's connection, as its controller sees it; the test gets each packet of the program first.
final class Interceptor: ForwardingTransport, @unchecked Sendable {
  private let passes: @Sendable ([UInt8], Interceptor) -> Bool

  /// `passes` decides whether the controller gets the packet, and may answer the program itself.
  init(_ stream: H4Stream, _ passes: @escaping @Sendable (_ packet: [UInt8], _ program: Interceptor) -> Bool) {
    self.passes = passes
    super.init(stream)
  }
  override func received(_ packet: Span<UInt8>) {
    if passes(packet.indices.map { packet[$0] }, self) { super.received(packet) }
  }
}
