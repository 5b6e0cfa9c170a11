import Foundation
import TestSupport
import Testing

@testable import CoreBluetooth

/// A pipe without streams: bounds, SDUs, and the calls of both sides, each once.
@Suite struct ChannelPipeTests {
  /// The app's side, without waiting.
  final class User: ChannelPipeUser, @unchecked Sendable {
    // Sendable: used by one thread.
    var changes = 0
    func readinessChanged() { changes += 1 }
  }
  func read(_ far: FarEnd, _ count: Int) -> [UInt8] {
    var buffer = [UInt8](repeating: 0, count: count)
    let read = unsafe buffer.withUnsafeMutableBytes { unsafe far.pipe.read(into: $0) }
    return Array(buffer.prefix(read))
  }
  func write(_ far: FarEnd, _ octets: [UInt8]) -> Int { unsafe octets.withUnsafeBytes { unsafe far.pipe.write($0) } }

  @Test("writes of any size are cut: an SDU has as many octets as there are, and at most the MTU")
  func cut() {
    let far = FarEnd(outputCapacity: 100)
    #expect(write(far, ramp(250)) == 100)
    #expect(far.takeAll(23).map(\.count) == [23, 23, 23, 23, 8])
    #expect(write(far, ramp(1)) == 1)
    #expect(write(far, ramp(2, from: 1)) == 2)
    #expect(far.takeAll(23) == [[0, 1, 2]])
    #expect(write(far, ramp(100)) == 100)
    #expect(far.takeAll(100) == [ramp(100)])
  }
  @Test("the driver is told once that octets wait, and again after it has found none")
  func octetsWait() {
    let far = FarEnd()
    #expect(write(far, [1]) == 1 && write(far, [2]) == 1)
    #expect(far.count(.outputWaits) == 1)
    #expect(far.take(1) == [1])
    #expect(write(far, [3]) == 1)
    #expect(far.take(1) == [2] && far.take(1) == [3])
    #expect(write(far, [4]) == 1)
    #expect(far.count(.outputWaits) == 0)
    #expect(far.take(1) == [4] && far.take(1) == [])
    #expect(write(far, [5]) == 1)
    #expect(far.count(.outputWaits) == 1)
  }
  @Test("a driver that does not take stops the app, which is told once, when half of the room is free")
  func appStops() {
    let far = FarEnd(outputCapacity: 8), user = User()
    far.pipe.attach(user, to: .output)
    #expect(write(far, ramp(9)) == 8 && write(far, [1]) == 0)
    #expect(far.take(3) == [0, 1, 2] && user.changes == 0)
    #expect(far.take(1) == [3] && user.changes == 1)
    #expect(far.take(1) == [4] && user.changes == 1)
    // Without having been full there is nothing to tell.
    #expect(write(far, [1]) == 1 && far.takeAll(1).count == 4 && user.changes == 1)
  }
  @Test("an app that does not read stops the driver: SDUs count as read with their last octet")
  func driverStops() {
    let far = FarEnd(inputCapacity: 10), user = User()
    far.pipe.attach(user, to: .input)
    #expect(far.offer(ramp(4)) && far.offer(ramp(6)) && user.changes == 1)
    #expect(!far.offer([1]) && !far.offer([1, 2]))
    #expect(read(far, 3) == [0, 1, 2] && far.pipe.takeReadCount() == 0 && far.count(.inputWasRead) == 0)
    #expect(far.count(.inputHasRoom) == 1 && far.offer([1, 2]))
    #expect(read(far, 1) == [3] && far.count(.inputWasRead) == 1)
    #expect(read(far, 20) == ramp(6) + [1, 2])
    // Told once, until the driver asks.
    #expect(far.count(.inputWasRead) == 0 && far.pipe.takeReadCount() == 3 && far.pipe.takeReadCount() == 0)
    #expect(far.offer([7]) && user.changes == 2 && read(far, 1) == [7] && far.count(.inputWasRead) == 1)
    #expect(far.count(.inputHasRoom) == 0)
  }
  @Test("an empty SDU counts as read when everything before it was; a long one has room in an empty pipe only")
  func unusualSDUs() {
    let far = FarEnd(inputCapacity: 4)
    #expect(far.offer([]) && far.pipe.takeReadCount() == 1)
    #expect(far.offer([1]) && far.offer([]) && far.pipe.takeReadCount() == 0)
    #expect(!far.offer(ramp(9)) && read(far, 4) == [1] && far.pipe.takeReadCount() == 2)
    #expect(far.count(.inputHasRoom) == 1 && far.offer(ramp(9)) && !far.offer([1]))
    #expect(read(far, 9) == ramp(9) && far.offer([1, 2, 3, 4]) && read(far, 5) == [1, 2, 3, 4])
  }
  @Test("octets that arrived before the end are read after it; written ones are lost, and room ends")
  func end() {
    let far = FarEnd(), input = User(), output = User()
    far.pipe.attach(input, to: .input)
    far.pipe.attach(output, to: .output)
    #expect(far.offer(ramp(4)) && write(far, [1]) == 1)
    far.pipe.end(.closed)
    far.pipe.end(.failed(POSIXError(.EIO)))
    #expect(input.changes == 2 && output.changes == 1)
    #expect(far.take() == nil && write(far, [1]) == 0)
    guard case .ready = far.pipe.inputReadiness, case .ended(.closed) = far.pipe.outputReadiness else {
      return #expect(Bool(false), "\(far.pipe.inputReadiness), \(far.pipe.outputReadiness)")
    }
    #expect(far.offer([9]) && read(far, 9) == ramp(4))
    guard case .ended(.closed) = far.pipe.inputReadiness else {
      return #expect(Bool(false), "\(far.pipe.inputReadiness)")
    }
    far.pipe.close(.both)
    #expect(far.count(.appHasClosed) == 0 && far.count(.inputWasRead) == 0)
  }
  @Test("the channel closes with both streams: what was written is taken first, what was not read counts as read")
  func close() {
    let far = FarEnd()
    #expect(write(far, ramp(30)) == 30 && far.offer([1, 2]) && far.offer([3]))
    far.pipe.close(.input)
    #expect(far.pipe.takeReadCount() == 2 && far.count(.inputWasRead) == 1)
    // Nobody reads it, and the peer does not wait for that.
    #expect(far.offer([4]) && far.count(.inputWasRead) == 1 && far.pipe.takeReadCount() == 1)
    #expect(far.count(.appHasClosed) == 0 && write(far, [30]) == 1)
    far.pipe.close(.output)
    far.pipe.close(.both)
    #expect(far.count(.appHasClosed) == 1 && write(far, [31]) == 0)
    #expect(far.take() == ramp(23) && far.take() == ramp(8, from: 23) && far.take() == nil && far.take() == nil)
  }
  @Test("a refused SDU has room when the app closes its input")
  func closeAfterRefusal() {
    let far = FarEnd(inputCapacity: 2)
    #expect(far.offer([1, 2]) && !far.offer([3]))
    far.pipe.close(.input)
    #expect(far.count(.inputHasRoom) == 1 && far.offer([3]) && far.pipe.takeReadCount() == 2)
  }
  @Test("after the end the driver is not called: nothing has room for an SDU that was refused before it")
  func endAfterRefusal() {
    let far = FarEnd(inputCapacity: 2)
    #expect(far.offer([1, 2]) && !far.offer([3]))
    far.pipe.end(.closed)
    #expect(read(far, 2) == [1, 2])
    far.pipe.close(.both)
    #expect(FarEnd.Call.allCases.allSatisfy { far.count($0) == 0 })
  }
  @Test("octets keep their order around the end of the ring")
  func ring() {
    var random = SplitMix64(seed: 0x51)
    var ring = OctetRing(), written = 0, read = 0
    for _ in 0..<2000 {
      let count = Int.random(in: 0...(40 - ring.count), using: &random)
      ring.append(ramp(count, from: written).span, capacity: 40)
      written += count
      var buffer = [UInt8](repeating: 0, count: Int.random(in: 0...40, using: &random))
      let moved = unsafe buffer.withUnsafeMutableBytes { unsafe ring.move(to: $0) }
      #expect(Array(buffer.prefix(moved)) == ramp(moved, from: read))
      read += moved
      #expect(ring.count == written - read)
    }
  }
}
