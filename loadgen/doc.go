// Package loadgen is the map of the rooms in which traffic is made, sent and judged. None of them
// imports anything of the limiter, so that what judges shares no code with what is judged; where
// they need the limiter (virtual time) or the PoP's routing, cmd/sluice-loadgen hands it in as
// functions.
//
//	trace     who asks for what and when: read, merged, written         imports nothing of ours
//	workload  traces that have a name, by a seed                        trace
//	judge     decisions against an exact log; figures; virtual time     trace
//	design    how others limit rates, judged on the same stream         judge, trace
//	page      numbers, tables, charts, the style of a page              nothing
//	report    what a run found, as text, JSON and HTML                  design, judge, trace, page
//	promise   reports held against what the documents promise           report, judge, page
//	whatif    what rules would have done to a log                       report, judge, trace, page
//	residential  a scraper from many homes, and the visitors beside it  judge, page, trace, workload
//	socket    connections that never wait (epoll)                       nothing
//	process   programs on this machine: start, end, cost                nothing
//	origin    the server behind the edges                               nothing
//	scrape    what running servers tell of themselves                   nothing
//	answer    answers of HTTP/1.1, and what an edge says in them        judge
//	replay    a trace sent to running edges, over HTTP/1.1 or 2         answer, judge, trace, socket, process
//	lab       PoPs of real processes, and what goes wrong in them       replay, judge, trace, process, origin, scrape, page
//	rival     the same trace at nginx, HAProxy and envoyproxy/ratelimit, the last behind cmd/lab/ratelimitproxy  replay, judge, trace, process, origin, scrape
//
// The life of a decision: trace.Read or workload.Generate makes a trace.Trace. replay.Replay sends
// it to edges that run (lab.Site.Run starts them first and does faults to them), or judge.Simulate
// hands it to a judge.Limiter in virtual time. Either way each request becomes a judge.Decision,
// and a judge holds it against the exact log of all that was counted. What comes of that,
// judge.Figures, goes with its baseline and with other designs (design.Design.Run) into a
// report.Report, which is written as text, JSON and HTML.
package loadgen
