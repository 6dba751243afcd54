// Package loadgen produces traffic, sends it, and judges what a limiter did with it.
//
// A Trace is who asks for what and when: read from an access log (ReadTrace) or made from a named workload and a seed
// (Generate). Replay sends one to running edges; a Lab starts those edges first. Either way the outcome is a stream of
// Decisions, and a Judge holds each against an exact log of every counted request:
//
//	exact(t) = number of counted requests of the source in (t-W, t], the present one included
//
// The package imports nothing of the limiter, so that what judges shares no code with what is judged; where it needs the
// limiter (simulation) or the PoP's routing, its caller hands them in as functions.
package loadgen
