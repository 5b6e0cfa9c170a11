// Bench ID WORKLOADS REPETITIONS BATCHES: the work of one row of Benchmarks/run; see CBound/cbound.h for the line
// printed. The main function is synchronous: callgrind aborts on an async one.

let arguments = CommandLine.arguments
guard arguments.count == 5, let repetitions = Int(arguments[3]), let batches = Int(arguments[4]) else {
  fail("usage: Bench ID WORKLOADS REPETITIONS BATCHES")
}
let id = arguments[1]
let workloads = arguments[2]
switch id {
case "B1", "B2", "x.loop": codec(id, workloads, repetitions, batches)
case _ where id.hasPrefix("B3."): server(id, workloads, repetitions, batches)
case _ where id.hasPrefix("B4.queue.") || id.hasPrefix("x.queue."): queue(id, repetitions, batches)
case _ where id.hasPrefix("B4.host.") || id.hasPrefix("x.host."): host(id, repetitions, batches)
case _ where id.hasPrefix("x.core."): core(id, repetitions, batches)
case _ where id.hasPrefix("B5."): discovery(id, repetitions, batches)
case _ where id.hasPrefix("B9."): receive(id, repetitions, batches)
case _ where id.hasPrefix("x.pairing."): pairing(id, repetitions, batches)
case _ where id.hasPrefix("B6."): capture(id, workloads, repetitions, batches)
case _ where id.hasPrefix("B10."): scan(id, repetitions, batches)
case _ where id.hasPrefix("B11."): stream(id, repetitions, batches)
case "B7": radio(id, repetitions, batches)
default: fail("no row \(id)")
}
