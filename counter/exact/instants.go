package exact

import "slices"

// Instants of a source are µs since the Unix epoch, ascending; several may be alike. Of a token
// bucket there is one, which is when all that has come has drained.

// live is those that still count.
func (r *Spec) live(at []int64, now int64) []int64 {
	if r.Interval > 0 {
		if len(at) > 0 && at[0] > now {
			return at
		}
		return nil
	}
	i := 0
	for i < len(at) && at[i]+r.Window <= now {
		i++
	}
	return at[i:]
}

// used is how much of the limit instants use.
func (r *Spec) used(at []int64, now int64) int {
	at = r.live(at, now)
	if r.Interval > 0 && len(at) > 0 {
		return int((at[0] - now + r.Interval - 1) / r.Interval)
	}
	return len(at)
}

// next is the instant of one request more, or, if that would be over the limit, when it would not
// be.
func (r *Spec) next(at []int64, now int64) (next, until int64) {
	at = r.live(at, now)
	if r.Interval > 0 {
		tat := now
		if len(at) > 0 {
			tat = at[0]
		}
		if full := tat - int64(r.Limit-1)*r.Interval; full > now {
			return 0, full
		}
		return tat + r.Interval, 0
	}
	if len(at) >= r.Limit {
		return 0, at[len(at)-r.Limit] + r.Window
	}
	return now, 0
}

// settled reports whether instants are over the limit without those of requests that are under way
// and may turn out not to count. Such a request's instant is moved on until its answer is there
// (restamp), so what is as old as Margin stands. For a bucket this is unknown.
func (r *Spec) settled(at []int64, now int64) bool {
	if at = r.live(at, now); !r.Holds {
		return true
	}
	return r.Interval == 0 && len(at) >= r.Limit && at[r.Limit-1]+r.margin <= now
}

// with is instants and one more. What is given is not changed.
func (r *Spec) with(at []int64, one int64) []int64 {
	if r.Interval > 0 {
		if len(at) > 0 {
			one = max(one, at[0])
		}
		return []int64{one}
	}
	i, _ := slices.BinarySearch(at, one)
	return slices.Insert(slices.Clone(at), i, one)
}

// without is instants without one of that time. Of a bucket a hit is taken out.
func (r *Spec) without(at []int64, one int64) []int64 {
	if r.Interval > 0 {
		if len(at) > 0 {
			return []int64{at[0] - r.Interval}
		}
		return at
	}
	if i, there := slices.BinarySearch(at, one); there {
		return slices.Delete(slices.Clone(at), i, i+1)
	}
	return at
}

// merge is instants and those of own that are not among them, and whether there are such.
func (r *Spec) merge(at, own []int64) (all []int64, more bool) {
	if r.Interval > 0 {
		if len(own) > 0 && (len(at) == 0 || own[0] > at[0]) {
			return own, true
		}
		return at, false
	}
	i := 0
	for _, one := range own {
		for i < len(at) && at[i] < one {
			i++
		}
		if i < len(at) && at[i] == one {
			i++ // each stands for one
			continue
		}
		all, more = append(all, one), true
	}
	if !more {
		return at, false
	}
	all = append(all, at...)
	slices.Sort(all)
	return all, true
}
