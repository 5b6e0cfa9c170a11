import ArgumentParser

struct TraceCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "trace",
    abstract:
      "Read recorded traces: show, check, measure, compare, replay, convert and scrub them, or make a page of one.",
    discussion: """
      A trace is a btsnoop, PacketLogger, pcap or pcapng file, also compressed by gzip; - is standard input. An Android \
      bug report is one too, as bugreport.zip, bugreport.zip:NAME or its text. Every verb of bindrune records a trace \
      with --trace FILE; Android, macOS, btmon, hcidump and Wireshark record others.
      """,
    subcommands: [
      TraceShow.self, TraceCheck.self, TraceStats.self, TraceDiff.self, TraceReplay.self, TraceReport.self,
      TraceConvert.self,
      TraceScrub.self,
    ])
}
