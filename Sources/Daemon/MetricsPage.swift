import ArgumentParser
import BindruneTransport
import BindruneWire
import NIOCore
import NIOHTTP1
import NIOPosix

/// An HTTP server with one page, `/metrics`, for Prometheus.
struct MetricsPage: Sendable {
  private let listener: StreamListener

  /// `place`: HOST:PORT; an IPv6 address in brackets. Throws a sentence.
  static func serve(_ place: String, page: @escaping @Sendable () async -> String) async throws -> MetricsPage {
    guard let colon = place.lastIndex(of: ":"), let port = UInt16(place[place.index(after: colon)...]) else {
      throw ValidationError("--metrics is \"\(place.printable(limit: 60))\": write HOST:PORT, such as 127.0.0.1:9464.")
    }
    var host = String(place[..<colon])
    if host.hasPrefix("["), host.hasSuffix("]") { host = String(host.dropFirst().dropLast()) }
    let loop = EventLoops.next()
    do {
      let socket = try await NIOThreadPool.singleton.runIfActive { [host] in
        try StreamSocket.listening(atHost: host, port: Int(port))
      }
      let listener = StreamListener(socket) { connection in
        loop.execute {
          _ = ClientBootstrap(group: loop).channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
              try channel.pipeline.syncOperations.configureHTTPServerPipeline(withErrorHandling: true)
              try channel.pipeline.syncOperations.addHandler(Answerer(page))
            }
          }.withConnectedSocket(connection.rawValue)
        }
      }
      return MetricsPage(listener: listener)
    } catch {
      throw ValidationError(
        "--metrics \(place.printable(limit: 60)) cannot be used (\(error)): name another address or port.")
    }
  }
  func close() async { await listener.close() }

  /// One request for each connection, which then ends.
  private final class Answerer: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart
    private let page: @Sendable () async -> String
    private var head: HTTPRequestHead?
    private var isAnswered = false
    init(_ page: @escaping @Sendable () async -> String) { self.page = page }

    func handlerAdded(context: ChannelHandlerContext) {
      let channel = context.channel
      context.eventLoop.scheduleTask(in: .seconds(10)) { channel.close(promise: nil) }
    }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      switch unwrapInboundIn(data) {
      case .head(let head): self.head = head
      case .body: break
      case .end:
        guard let head, !isAnswered else { return }
        isAnswered = true
        let isKnown = head.uri == "/metrics" || head.uri.hasPrefix("/metrics?")
        let channel = context.channel, page = page
        guard head.method == .GET, isKnown else { return Self.answer(channel, .notFound, "The page is /metrics.\n") }
        let promise = context.eventLoop.makePromise(of: String.self)
        promise.completeWithTask { await page() }
        promise.futureResult.whenSuccess { Self.answer(channel, .ok, $0) }
      }
    }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    private static func answer(_ channel: any Channel, _ status: HTTPResponseStatus, _ text: String) {
      let headers: HTTPHeaders = [
        "Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Content-Length": "\(text.utf8.count)",
        "Connection": "close",
      ]
      channel.write(
        HTTPServerResponsePart.head(HTTPResponseHead(version: .http1_1, status: status, headers: headers)), promise: nil
      )
      channel.write(HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(string: text))), promise: nil)
      channel.writeAndFlush(HTTPServerResponsePart.end(nil)).whenComplete { _ in channel.close(promise: nil) }
    }
  }
}
