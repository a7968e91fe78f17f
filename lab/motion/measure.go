package motion

import "math"

// place is where something is, in the world's unit.
type place [3]float64

func (p place) minus(q place) place { return place{p[0] - q[0], p[1] - q[1], p[2] - q[2]} }
func (p place) length() float64     { return math.Sqrt(p[0]*p[0] + p[1]*p[1] + p[2]*p[2]) }

// truth says where something really was at a tick with fraction; false: it is not known, or it was put elsewhere about then.
type truth interface {
	where(tick float64) (place, bool)
}

// recorded is a true path that was written down step by step: the last steps of it.
type recorded struct {
	first, last float64
	leapt       float64 // tick of the newest teleport
	leap        float64 // from what change of its step on something was put elsewhere
	at          [recordedTicks]place
}

// recordedTicks is longer than anything is shown late.
const recordedTicks = 256

// Around a teleport nothing is compared, in ticks.
const (
	beforeLeap = 12
	afterLeap  = 30
)

func (r *recorded) record(tick float64, p place) {
	if r.last == 0 {
		r.first, r.leapt = tick, math.Inf(-1)
	} else if tick > r.first+1 {
		a, b := r.get(tick-1), r.get(tick-2)
		if p.minus(a).minus(a.minus(b)).length() > r.leap {
			r.leapt = tick
		}
	}
	r.last = tick
	r.at[int(tick)%recordedTicks] = p
}

func (r *recorded) get(tick float64) place { return r.at[int(tick)%recordedTicks] }

func (r *recorded) where(tick float64) (p place, ok bool) {
	k := math.Floor(tick)
	if k < max(r.first, r.last-recordedTicks+1) || k+1 > r.last || tick > r.leapt-beforeLeap && tick < r.leapt+afterLeap {
		return p, false
	}
	a, b := r.get(k), r.get(k+1)
	for i := range p {
		p[i] = a[i] + (b[i]-a[i])*(tick-k)
	}
	return p, true
}

// path is one thing as one client shows it: its last frames.
type path struct {
	truth truth
	n     int // frames in a row
	still int // frames in which the true one did not move
	p, q  place
	step  place // the true one's last
	tick  float64
	quiet float64 // until that tick nothing is compared
}

// What a path must have before it counts.
const (
	newFrames   = 15 // after it came into sight
	stillFrames = 30
)

// meter compares shown paths with true ones.
type meter struct {
	frameTicks float64 // a frame's time
	slack      float64 // what nobody sees
	leap       float64 // from what change of a step on something was put elsewhere

	frames, jumps uint64
	jolts, trues  spread
	speeds        spread
	speedSum      float64
	off2          float64
}

// frame notes what a thing's path shows at a tick.
func (m *meter) frame(w *path, p place, tick float64) {
	now, ok := w.truth.where(tick)
	before, ok2 := w.truth.where(tick - m.frameTicks)
	if !ok || !ok2 {
		w.n = 0
		return
	}
	step := now.minus(before)
	if w.n > 0 && step.minus(w.step).length() > m.leap {
		w.quiet = tick + afterLeap
	}
	w.step = step
	if w.still++; step != (place{}) {
		w.still = 0
	}
	if tick < w.quiet || w.still > stillFrames {
		w.n = 0
		w.step = step
		return
	}
	if w.n >= newFrames {
		m.compare(w, p, step, tick)
		off := p.minus(now).length()
		m.off2 += off * off
	}
	w.n++
	w.q, w.p, w.tick = w.p, p, tick
}

func (m *meter) compare(w *path, p, step place, tick float64) {
	d := p.minus(w.p).minus(step).length()
	way := step.length()
	m.frames++
	if d > way/2+m.slack {
		m.jumps++
	}
	if way > m.slack {
		m.speedSum += d / way
		m.speeds.add(d / way)
	}
	a, ok := w.truth.where(w.tick - m.frameTicks)
	b, ok2 := w.truth.where(w.tick)
	c, ok3 := w.truth.where(w.tick + m.frameTicks)
	if ok && ok2 && ok3 {
		m.jolts.add(p.minus(w.p).minus(w.p.minus(w.q)).length())
		m.trues.add(c.minus(b).minus(b.minus(a)).length())
	}
}

func (m *meter) merge(o *meter) {
	m.frames += o.frames
	m.jumps += o.jumps
	m.speedSum += o.speedSum
	m.off2 += o.off2
	m.jolts.merge(&o.jolts)
	m.trues.merge(&o.trues)
	m.speeds.merge(&o.speeds)
}

func (m *meter) motion() Motion {
	f := Motion{Frames: m.frames, JoltP50: m.jolts.quantile(0.5), JoltP99: m.jolts.quantile(0.99), JoltMax: m.jolts.most, TrueJoltP99: m.trues.quantile(0.99)}
	if f.TrueJoltP99 > 0 {
		f.JoltRatio = f.JoltP99 / f.TrueJoltP99
	}
	if m.frames > 0 {
		f.JumpPct = 100 * float64(m.jumps) / float64(m.frames)
		f.OffRMS = math.Sqrt(m.off2 / float64(m.frames))
	}
	if m.speeds.n > 0 {
		f.SpeedErrorPct = 100 * m.speedSum / float64(m.speeds.n)
		f.SpeedErrorP99Pct = 100 * m.speeds.quantile(0.99)
	}
	return f
}

// Motion is how something was shown. Lengths are in the world's unit.
type Motion struct {
	// Frames are those of single things that were compared.
	Frames uint64
	// Jolts are of the shown paths, TrueJoltP99 is of the true ones, JoltRatio the quotient of the 99th percentiles.
	JoltP50, JoltP99, JoltMax, TrueJoltP99, JoltRatio float64
	JumpPct                                           float64
	// SpeedErrorPct is the mean.
	SpeedErrorPct, SpeedErrorP99Pct float64
	// OffRMS is how far off the shown places are from the true ones at the tick shown.
	OffRMS float64
	// Underruns are frames past the newest packet, of all of Pictures.
	Pictures, Underruns uint64
	Corrections         uint64
	// DelayMs is the mean.
	DelayMs float64
}

// UnderrunPct is the share of underruns.
func (m *Motion) UnderrunPct() float64 {
	return 100 * float64(m.Underruns) / float64(max(m.Pictures, 1))
}

// spread is a histogram of numbers from 0 on, in 64 classes an octave: a class is 1.1 % wide.
type spread struct {
	n     uint64
	most  float64
	class [64 * octaves]uint32
}

const (
	octaves     = 36
	leastOctave = -20 // 2^-20 and less are one class
)

func (s *spread) add(v float64) {
	s.n++
	s.most = max(s.most, v)
	s.class[min(max(int(64*(math.Log2(v)-leastOctave)), 0), len(s.class)-1)]++
}

func (s *spread) merge(o *spread) {
	s.n += o.n
	s.most = max(s.most, o.most)
	for i, n := range o.class {
		s.class[i] += n
	}
}

// quantile is the number that a share of all is below of; 0 if there are none.
func (s *spread) quantile(share float64) float64 {
	left := share * float64(s.n)
	for i, n := range s.class {
		if n == 0 {
			continue
		}
		if float64(n) > left {
			if i == 0 {
				return 0
			}
			return math.Exp2((float64(i)+left/float64(n))/64 + leastOctave)
		}
		left -= float64(n)
	}
	return s.most
}
