// Judges every capture of a folder:  swift run CheckFolder traces
import BindruneTrace
import Foundation

let folder = URL(filePath: CommandLine.arguments.dropFirst().first ?? ".")
var count = 0
for name in try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted()
where ["btsnoop", "pklg", "pcap", "pcapng"].contains(URL(filePath: name).pathExtension) {
  var file = try TraceFile(path: folder.appending(path: name).path), checker = DissectingSink(Checker())
  try file.read(into: &checker)
  for finding in checker.sink.findings {
    print("\(name): record \(finding.number): \(finding.rule.id): \(finding.seen)")
  }
  count += checker.sink.findingCount
}
exit(count == 0 ? EXIT_SUCCESS : EXIT_FAILURE)
