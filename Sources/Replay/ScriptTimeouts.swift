import BindruneATT

/// Where a bearer dies: a transaction of the host had no end within 30 s.
struct BearerDeath: Sendable {
  /// The request or the indication.
  var step: Int
  /// From this time on, in nanoseconds since 1970, the host may send no request, command, notification or indication.
  var time: Int64
}

// Time-outs of transactions. Vol 3, Part F, §3.3.3.
extension Script {
  /// Finds the first transaction of the host on the link that times out: its answer comes too late or never, while the
  /// trace shows the link.
  func death(of link: Int) -> BearerDeath? {
    let patience = Bearer.transactionTimeout.components.seconds * 1_000_000_000
    /// The host's request, and its indication, that await an answer.
    var request: BearerDeath?, indication: BearerDeath?
    for index in links[link].steps {
      let step = steps[index], time = self.time(of: index)
      for waiting in [request, indication] { if let waiting, time >= waiting.time { return waiting } }
      guard let stream = step.stream, let opcode = step.payload.first.map({ ATTOpcode(rawValue: $0) }) else { continue }
      let death = BearerDeath(step: index, time: time.addingReportingOverflow(patience).partialValue)
      switch (stream, step.direction) {
      case (.client, .fromHost) where opcode.kind == .request: request = request ?? death
      case (.server, .fromController): request = nil
      case (.values, .fromHost) where opcode.kind == .indication: indication = indication ?? death
      case (.confirmations, .fromController): indication = nil
      default: break
      }
    }
    return nil
  }
  /// Of the last packet of the step.
  private func time(of step: Int) -> Int64 { steps[step].packets.last.map { packets[$0].time } ?? 0 }
  /// The link's bearer is dead when the step is played.
  func isDead(_ link: Int, at step: Int) -> Bool {
    guard let death = links[link].death, step < steps.count else { return false }
    return step > death.step && time(of: step) >= death.time
  }
}
