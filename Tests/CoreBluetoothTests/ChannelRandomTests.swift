import Foundation
import TestSupport
import Testing

@testable import CoreBluetooth

/// Writers and readers on both sides of a pipe with random sizes, each on its thread, and an end at a random time: what
/// is read is what was written, in order, and nothing hangs.
@Suite(.realTime, .hang) struct ChannelRandomTests {
  /// How the app uses its streams.
  enum Manner: CaseIterable { case blocking, scheduled, polled }
  /// Who ends the channel.
  enum Ending: CaseIterable { case app, appRelease, peer, linkLoss }
  /// One channel and its sizes.
  struct Run: Sendable {
    var manner: Manner, ending: Ending
    var capacity: Int, mtu: Int, chunk: Int
    /// Octets after which each side ends.
    var limit: Int
  }

  /// `BINDRUNE_SEEDS` of them, 60 if it is not set.
  private static let seeds = ProcessInfo.processInfo.environment["BINDRUNE_SEEDS"].flatMap { UInt64($0) } ?? 60

  @Test("octets are equal and in order, and nothing hangs")
  func runs() async {
    // One after another: those that poll would take the processor from the others.
    for seed in 1...Self.seeds {
      var random = SplitMix64(seed: seed)
      let run = Run(
        manner: Manner.allCases.randomElement(using: &random)!, ending: Ending.allCases.randomElement(using: &random)!,
        capacity: .random(in: 1...300, using: &random), mtu: .random(in: 1...100, using: &random),
        chunk: .random(in: 1...200, using: &random), limit: .random(in: 0...1000, using: &random))
      let failure = await onThread { Self.carryOut(run, seed) }
      #expect(failure == nil, "seed \(seed): \(run)")
    }
  }

  /// What is wrong; nil: nothing.
  private static func carryOut(_ run: Run, _ seed: UInt64) -> String? {
    let far = FarEnd(inputCapacity: run.capacity, outputCapacity: run.capacity)
    let channel = Shared<CBL2CAPChannel?>(far.channel())
    let input = Shared(channel.value!.inputStream!), output = Shared(channel.value!.outputStream!)
    let farSide = Worker { farEnd(far, run, SplitMix64(seed: seed &+ 1_000_000)) }
    let app: App?
    switch run.manner {
    case .blocking: app = blocking(input, output, channel, run, seed)
    case .scheduled: app = scheduled(input.value, output.value, run, seed)
    case .polled: app = polled(input.value, output.value, run, seed)
    }
    channel.value = nil
    guard let app else { return "the app waited in vain" }
    guard let other = farSide.value ?? nil else { return "the far end waited in vain" }
    guard app.read == ramp(app.read.count) && app.read.count <= other.offered else { return "the app has read others" }
    guard other.taken == ramp(other.taken.count) && other.taken.count <= app.written else { return "others were sent" }
    switch run.ending {
    // All that was written before the app closed has been sent.
    case .app, .appRelease:
      return other.taken.count == app.written ? nil : "\(app.written) written, \(other.taken.count) sent"
    // All that arrived before the end has been read.
    case .peer, .linkLoss:
      return app.read.count == other.offered ? nil : "\(other.offered) arrived, \(app.read.count) read"
    }
  }

  /// Takes and offers by turns until the app has closed, or until it ends the channel itself. Nil: it waited in vain.
  private static func farEnd(
    _ far: FarEnd, _ run: Run, _ chance: SplitMix64
  ) -> (taken: [UInt8], offered: Int)? {
    var random = chance, taken: [UInt8] = [], offered = 0
    let isEnding = run.ending == .peer || run.ending == .linkLoss
    while true {
      var isIdle = true
      if Bool.random(using: &random) {
        let count = Int.random(in: 0...min(run.mtu, run.capacity), using: &random)
        // As much as the app offers to read is not known here: the app that ends stops reading at its limit.
        if far.offer(ramp(count, from: offered)) {
          offered += count
          isIdle = false
        }
      }
      guard let sdu = far.take(.random(in: 1...run.mtu, using: &random)) else {
        far.pipe.end(.closed)
        return (taken, offered)
      }
      taken += sdu
      if !sdu.isEmpty { isIdle = false }
      if isEnding, taken.count + offered >= run.limit {
        far.pipe.end(run.ending == .peer ? .closed : .failed(CBError(.connectionTimeout)))
        return (taken, offered)
      }
      guard isIdle else { continue }
      // Nothing was taken. If nothing was offered either, this offer is refused, or there is no need to wait.
      if far.offer(ramp(1, from: offered)) {
        offered += 1
      } else {
        guard far.wait(for: .inputHasRoom, .outputWaits, .appHasClosed) else { return nil }
      }
    }
  }

  /// What the app has written and read.
  private typealias App = (written: Int, read: [UInt8])

  /// Two threads, of which one waits for octets and the other for room. Nil: they waited in vain.
  private static func blocking(
    _ input: Shared<InputStream>, _ output: Shared<OutputStream>, _ channel: Shared<CBL2CAPChannel?>, _ run: Run,
    _ seed: UInt64
  ) -> App? {
    input.value.open()
    output.value.open()
    let reader = Worker { () -> [UInt8] in
      var random = SplitMix64(seed: seed &+ 2_000_000), read: [UInt8] = []
      while let octets = input.value.read(.random(in: 1...run.chunk, using: &random)), !octets.isEmpty {
        read += octets
      }
      return read
    }
    let writer = Worker { () -> Int in
      var random = SplitMix64(seed: seed &+ 3_000_000), written = 0
      while written < run.limit {
        let count = output.value.write(ramp(.random(in: 1...run.chunk, using: &random), from: written))
        guard count > 0 else { break }
        written += count
      }
      if run.ending == .app {
        input.value.close()
        output.value.close()
      }
      return written
    }
    guard let written = writer.value else { return nil }
    if run.ending == .appRelease { channel.value = nil }
    return reader.value.map { (written, $0) }
  }
  /// One thread, whose run loop delivers the events. Nil: it waited in vain.
  private static func scheduled(
    _ input: InputStream, _ output: OutputStream, _ run: Run, _ seed: UInt64
  ) -> App? {
    var random = SplitMix64(seed: seed &+ 2_000_000), written = 0, read: [UInt8] = [], isDone = (false, false)
    let recorder = StreamRecorder { stream, event in
      switch event {
      case .hasBytesAvailable: read += input.read(.random(in: 1...run.chunk, using: &random)) ?? []
      case .hasSpaceAvailable where written < run.limit:
        // −1 if the far end has ended the channel since the event: nothing was written.
        written += max(output.write(ramp(.random(in: 1...run.chunk, using: &random), from: written)), 0)
      case .hasSpaceAvailable: isDone.1 = true
      case .endEncountered, .errorOccurred: if stream === input { isDone.0 = true } else { isDone.1 = true }
      default: break
      }
    }
    for stream in [input, output] as [Foundation.Stream] {
      stream.delegate = recorder
      stream.schedule(in: .current, forMode: .default)
      stream.open()
    }
    let isEnding = run.ending == .app || run.ending == .appRelease
    guard RunLoop.turn(until: { isDone.1 && (isEnding || isDone.0) }) else { return nil }
    close(input, output, run)
    return (written, read)
  }
  /// One thread, which asks for the flags again and again. Nil: in vain.
  private static func polled(
    _ input: InputStream, _ output: OutputStream, _ run: Run, _ seed: UInt64
  ) -> App? {
    var random = SplitMix64(seed: seed &+ 2_000_000), written = 0, read: [UInt8] = []
    let isEnding = run.ending == .app || run.ending == .appRelease
    let limit = Date(timeIntervalSinceNow: Hang.seconds)
    input.open()
    output.open()
    while Date() < limit {
      if input.hasBytesAvailable { read += input.read(.random(in: 1...run.chunk, using: &random)) ?? [] }
      if output.hasSpaceAvailable, written < run.limit {
        // −1 if the far end has ended the channel since the flag was asked for: nothing was written.
        written += max(output.write(ramp(.random(in: 1...run.chunk, using: &random), from: written)), 0)
      }
      guard isEnding ? written < run.limit : input.streamStatus == .open else {
        close(input, output, run)
        return (written, read)
      }
      sched_yield()
    }
    return nil
  }
  /// The app's end, unless that is the release of the channel.
  private static func close(_ input: InputStream, _ output: OutputStream, _ run: Run) {
    guard run.ending != .appRelease else { return }
    input.close()
    output.close()
  }
}
