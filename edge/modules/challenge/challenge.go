// Package challenge asks who is over a limit that many share for a pass, and lets in who shows one.
//
// A limit that counts many clients as one (a network, a path, a TLS library) refuses visitors
// together with whom it is about. Under action: challenge its block is a question instead. The
// story, under a rule of 120 requests a minute to /products/*:
//
//  1. At 12:00:00 the 121st request within the minute begins a block of the path, as under every
//     rule, and every edge learns of it.
//  2. A visitor's browser requests a product and shows no pass. It gets a page (Page) with a
//     question (Keys.AppendQuestion): find a number whose SHA-256 after these letters begins with
//     13 bits that are zero.
//  3. The page's script finds one, in some tens of milliseconds, and sends it (Keys.Answer). The
//     answer sets a cookie with a pass, which is good for an hour at this host, and the page loads
//     what was requested.
//  4. From now on this browser's requests show the pass (Keys.Pass). They are counted by it, under
//     a limit of their own, and not by the path.
//
// Nothing is kept about questions and passes: both carry a MAC under the PoP's secret, so every
// edge reads what any of them made. A question names the pass that it leads to, so answering it a
// hundred times makes one pass, and one limit.
package challenge
