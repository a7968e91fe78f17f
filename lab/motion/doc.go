// Package motion measures how evenly a client shows what moves, beside how it really moves: over bad links, without a browser.
//
// A [Screen] is a client's render clock and timeline, the twins of web/src/clock.ts and web/src/timeline.ts, fed with what a decoder
// holds and asked for a picture sixty times a second. [Run] puts 32 of the clients of lab/traffic behind bad links, in a time of its own
// in which a minute takes a few seconds, and [Grid] prints a table of such runs:
//
//	drumline bench --simulate
//
// The figures speak for the page because both clients give the same numbers for wire/testdata/motion.json.
//
// # What is measured
//
// Places are those of the fields x, y and z, or of the struct that holds a type's place; of things that have moved within the last half second,
// in the innermost ring, but for the own one, which a page predicts. Frames come every 1/60 s.
//
//   - jolt: the length of the second difference of a place, p[i+1] − 2p[i] + p[i−1]. The true path has jolts, too; its own are taken at the
//     ticks shown, but at an even pace, so that a clock that runs unevenly does not excuse what it shows. The ratio of both 99th percentiles
//     is what counts.
//   - jump: a frame whose step differs from the true one by more than half of it and 2.5 quanta (10 mm of 1/256 m). The true step is the way
//     of one frame's time up to the tick shown.
//   - speed error: that difference by the true step, in the mean, where the true step is over 2.5 quanta.
//   - underrun: a frame past the newest packet.
//   - correction: a thing that was shown elsewhere than it was, which is then blended out.
//   - delay: from a step until it is shown.
//
// What teleports, in the true path, is left out from 0.2 s before until 0.5 s after; what comes into sight for its first quarter second.
//
// # The true path
//
// In [Run] it is where the world has everything, step by step. A Screen on its own does not know the world, so it compares with what its
// own samples say half a second later, when all that will come has come: then the figures show what the link and the clock do to motion, and
// not what was lost between two samples.
package motion
