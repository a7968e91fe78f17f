package snap

import (
	"cmp"
	"math/bits"
	"slices"
)

// layout is a type as the codecs walk it. Columns are the fields with a number, in wire order; texts follow them.
type layout struct {
	typeSchema
	pub   int // columns that everybody gets: 0 … pub-1
	cols  int // all columns; those from pub on are the owner's
	tpub  int // texts that everybody gets
	texts int
	col   []column
	tbits []uint8 // by text: width of the length
	tmax  []int
	// owned: some field is the owner's, so each entity says whether such fields follow.
	owned bool
	// what are the columns that are no pose; pose are the others in the order of extrapolation.
	what, pose []uint8
	// rates are the columns that others are extrapolated along: while all are 0, nothing is.
	rates []uint8
	// coarse: some column is rounded in some ring.
	coarse bool
	// labels are the fields' names in an account: "player.pos.x".
	labels []string

	bits []uint8 // by column, for events
	min  []int32
}

// column is a field with a number.
type column struct {
	ahead    *ahead
	bits     uint8
	owner    bool
	angle    bool
	flag     bool // one bit
	codes    [rings]uint8
	lod      [rings]uint8
	min, max int32 // of a uint the bits of a uint32
	def      int32 // what an enter leaves out
	tol      int32
}

func newLayout(t typeSchema) *layout {
	l := &layout{typeSchema: t}
	poses := false
	rates := map[int]bool{}
	for i, f := range t.Fields {
		l.labels = append(l.labels, t.Name+"."+f.Name)
		l.owned = l.owned || f.Owner
		if f.Kind == kindText {
			l.texts++
			if !f.Owner {
				l.tpub++
			}
			l.tbits, l.tmax = append(l.tbits, uint8(f.Bits)), append(l.tmax, int(f.Max))
			continue
		}
		l.cols++
		if !f.Owner {
			l.pub++
		}
		c := column{ahead: f.Ahead, bits: uint8(f.Bits), owner: f.Owner, angle: f.Kind == kindAngle, flag: f.Bits == 1, tol: f.TolQ,
			min: int32(uint32(f.Min)), max: int32(uint32(f.Max)), def: int32(uint32(max(min(0, f.Max), f.Min)))}
		if f.Codes != nil {
			c.codes = *f.Codes
		}
		if f.Lod != nil {
			c.lod = *f.Lod
			l.coarse = true
		}
		if f.Ahead != nil {
			rates[f.Ahead.By] = true
			if f.Ahead.Angle != nil {
				rates[f.Ahead.By2] = true
			}
		}
		l.col = append(l.col, c)
		l.bits, l.min = append(l.bits, c.bits), append(l.min, c.min)
		poses = poses || f.Pose
		if f.Pose {
			l.pose = append(l.pose, uint8(i))
		} else {
			l.what = append(l.what, uint8(i))
		}
	}
	if !poses {
		l.pose, l.what = l.what, nil
	}
	stage := func(i uint8) int {
		switch c := &l.col[i]; {
		case c.ahead == nil:
			return 0
		case c.angle:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(l.pose, func(a, b uint8) int { return cmp.Compare(stage(a), stage(b)) })
	for i := range l.cols {
		if rates[i] {
			l.rates = append(l.rates, uint8(i))
		}
	}
	return l
}

// value turns column i's integer k into the number it stands for.
func (l *layout) value(i int, k int32) float64 {
	f := &l.Fields[i]
	if f.Kind == kindUint {
		return float64(uint32(k))
	}
	return float64(float64(k) * f.Q)
}

// whole is column i's integer as Go has it.
func (l *layout) whole(i int, k int32) int64 {
	if l.Fields[i].Kind == kindUint {
		return int64(uint32(k))
	}
	return int64(k)
}

// field returns the index of the field of that name, or -1.
func (l *layout) field(name string) int {
	return slices.IndexFunc(l.Fields, func(f fieldSchema) bool { return f.Name == name })
}

// indexBits is the number of bits that hold a number below n.
func indexBits(n int) uint { return uint(bits.Len(uint(max(n, 1) - 1))) }
