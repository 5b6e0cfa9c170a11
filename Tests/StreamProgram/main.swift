import CoreBluetooth

// `StreamProgram MANNER`: writes 1,000 octets to a channel whose far end sends all of them back, and reads them, with
// both streams scheduled on the main run loop. Tests cannot do that: their main thread has ended. MANNER:
//
//     default   scheduled in the default mode on the main thread; `RunLoop.main.run()`
//     common    scheduled in the common modes from another queue; `RunLoop.main.run()`
//     turns     scheduled in the default mode; `run(mode:before:)` without a limit, until everything was read
//     poll      scheduled in the default mode; `run(until:)` for a millisecond, again and again
//
// Prints how many octets came back, and whether the delegate was called on the main thread only. Status 0 when the
// streams have been closed and the far end knows it, 2 if that takes too long.

/// Sends back what it takes.
final class Echo: ChannelPipeDriver, @unchecked Sendable {
  // Sendable: used on the queue only, except for the pipe, which is set once.
  private let queue = DispatchQueue(label: "echo")
  private(set) var pipe: ChannelPipe!
  private var refused: [UInt8]?
  init() { pipe = ChannelPipe(inputCapacity: 64, outputCapacity: 64, driver: self) }

  func outputWaits(in pipe: ChannelPipe) { queue.async { self.work() } }
  func inputHasRoom(in pipe: ChannelPipe) { queue.async { self.work() } }
  func inputWasRead(in pipe: ChannelPipe) {}
  func appHasClosed(_ pipe: ChannelPipe) { queue.async { self.work() } }
  private func work() {
    if let sdu = refused {
      guard pipe.offer(sdu.span) else { return }
      refused = nil
    }
    while true {
      var taken = ChannelPipe.Taken.nothing
      let sdu = [UInt8](capacity: 23) { taken = pipe.takeSDU(into: &$0) }
      switch taken {
      case .nothing: return
      case .octets:
        guard pipe.offer(sdu.span) else {
          refused = sdu
          return
        }
      case .finished:
        pipe.end(.closed)
        print("closed")
        exit(0)
      }
    }
  }
}

final class App: NSObject, StreamDelegate {
  let channel: CBL2CAPChannel
  let octets = (0..<1000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
  private(set) var written = 0
  private(set) var read: [UInt8] = []
  private(set) var isOnMainThread = true
  private(set) var isDone = false
  init(_ channel: CBL2CAPChannel) { self.channel = channel }

  func schedule(_ mode: RunLoop.Mode) {
    for stream in [channel.inputStream, channel.outputStream] as [Foundation.Stream] {
      stream.delegate = self
      stream.schedule(in: .main, forMode: mode)
      stream.open()
    }
  }
  func stream(_ aStream: Foundation.Stream, handle eventCode: Foundation.Stream.Event) {
    isOnMainThread = isOnMainThread && Thread.isMainThread
    switch (eventCode, aStream) {
    case (.openCompleted, _): break
    case (.hasSpaceAvailable, let output as OutputStream):
      guard written < octets.count else { break }
      written += unsafe output.write(Array(octets[written...]), maxLength: octets.count - written)
    case (.hasBytesAvailable, let input as InputStream):
      var buffer = [UInt8](repeating: 0, count: 7)
      let count = unsafe input.read(&buffer, maxLength: buffer.count)
      read += buffer.prefix(count)
      if read.count == octets.count { end() }
    default:
      print("event \(eventCode.rawValue)")
      exit(1)
    }
  }
  private func end() {
    print("\(read == octets ? "equal" : "different"): \(read.count), main thread only: \(isOnMainThread)")
    for stream in [channel.inputStream, channel.outputStream] as [Foundation.Stream] {
      stream.close()
      stream.remove(from: .main, forMode: .default)
    }
    isDone = true
  }
}

let echo = Echo()
let app = App(CBL2CAPChannel(psm: 0x80, peer: CBPeripheral(), pipe: echo.pipe))
DispatchQueue.global().asyncAfter(deadline: .now() + 600) { exit(2) }
switch CommandLine.arguments.dropFirst().first {
case "default":
  app.schedule(.default)
  RunLoop.main.run()
case "common":
  nonisolated(unsafe) let app = app
  DispatchQueue.global().async { unsafe app.schedule(.common) }
  // A loop in which nothing is scheduled ends at once.
  let timer = Timer(timeInterval: 1000, repeats: true) { _ in }
  RunLoop.main.add(timer, forMode: .default)
  RunLoop.main.run()
case "turns":
  app.schedule(.default)
  while !app.isDone { _ = RunLoop.main.run(mode: .default, before: .distantFuture) }
case "poll":
  app.schedule(.default)
  while !app.isDone { RunLoop.current.run(until: Date(timeIntervalSinceNow: 0.001)) }
default: exit(64)
}
// The loop has nothing left that is scheduled; the far end exits.
while true { pause() }
